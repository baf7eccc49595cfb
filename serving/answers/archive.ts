import { type ArchiveManifest, KEPT_FOR, NEVER_MOVED } from "../../pipelines/record/archive.ts";
import { Problem } from "../http/problem.ts";
import type { ArchiveList, ArchiveQuery } from "../schemas/archive.ts";
import type { View } from "../tables/view.ts";

/** Manifests of one page. */
const PAGE = 100;

/** GET /v1/archive: the manifests that the log names, in its order, a page at a time. */
export function archiveList(view: View, { subject, page = "1" }: ArchiveQuery): ArchiveList {
  const n = Number(page);
  const all = view.archive.manifests(view.size, subject);
  const manifests = all.slice((n - 1) * PAGE, n * PAGE);
  const query = new URLSearchParams({ ...(subject ? { subject } : {}), page: String(n + 1) });
  return {
    schema: "svc.archive.list.v1",
    kept_in_the_database_for: KEPT_FOR,
    never_moved: [...NEVER_MOVED],
    manifests,
    next: n * PAGE < all.length ? `/v1/archive?${query}` : null,
  };
}

/** GET /v1/archive/{id}. @throws Problem not_found */
export function archiveManifest(view: View, id: string): ArchiveManifest {
  const manifest = view.archive.of(id);
  if (!manifest) throw new Problem("not_found", `${id} is not in the archive`);
  return manifest;
}
