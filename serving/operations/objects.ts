import { OBJECT_ROOTS } from "../answers/objects.ts";
import type { Operation } from "../operations.ts";

const below = (root: string, path: string): Operation => ({
  id: `object-${root}`,
  path,
  summary: `Objects of the public log: ${root}`,
  type: "application/octet-stream",
  limiter: (service) => service.readLimiter,
  run({ service, request, path: asked }) {
    const key = asked.slice(1);
    return service.objects.answer(key, request, service.follower.view.archive.sha256Of(key));
  },
});

/** The public store at the root of the service. */
export const OBJECTS: readonly Operation[] = [
  below("checkpoint", "/checkpoint"),
  ...OBJECT_ROOTS.map((root) => below(root, `/${root}/**`)),
];
