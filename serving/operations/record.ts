import { IMMUTABLE } from "../../pipelines/published/objects.ts";
import { NEVER_ARCHIVED, RETENTION_OF } from "../../pipelines/record/archive.ts";
import { OBJECT_ROOTS } from "../answers/objects.ts";
import { Problem, queryOf, validate } from "../http/problem.ts";
import { JSON_TYPE } from "../http/reply.ts";
import { ArchiveList, ArchiveManifest, ArchiveParams, ArchiveQuery } from "../schemas/archive.ts";
import { KeysDocument } from "../schemas/discovery.ts";
import type { View } from "../tables/view.ts";
import { CACHE_ONE_MINUTE, type Operation, replyJson } from "./operation.ts";

/** Largest number of manifests on one page. */
const MANIFESTS_PER_PAGE = 100;

/** Returns the answer of GET /v1/archive: one page of the manifests that the log names, in the log's order. */
function archiveList(view: View, { subject, page: n }: ArchiveQuery): ArchiveList {
  const all = [...view.archive.files.values()].filter(
    ({ index, manifest }) => index < view.size && (subject === undefined || manifest.subject === subject),
  );
  const manifests = all.slice((n - 1) * MANIFESTS_PER_PAGE, n * MANIFESTS_PER_PAGE).map(({ manifest }) => manifest);
  const query = new URLSearchParams({ ...(subject ? { subject } : {}), page: String(n + 1) });
  return {
    schema: "svc.archive.list.v1",
    kept_in_the_database_for: RETENTION_OF,
    never_moved: [...NEVER_ARCHIVED],
    manifests,
    next: n * MANIFESTS_PER_PAGE < all.length ? `/v1/archive?${query}` : null,
  };
}

/** Returns the answer of GET /v1/archive/{id}. @throws Problem not_found */
function archiveManifest(view: View, id: string): ArchiveManifest {
  const manifest = view.archive.files.get(id)?.manifest;
  if (!manifest) throw new Problem("not_found", `${id} is not in the archive`);
  return manifest;
}

const list: Operation = {
  id: "archive",
  needsRecord: true,
  path: "/v1/archive",
  summary: "Signed manifests of the files that old rows were moved to",
  query: ArchiveQuery,
  answer: ArchiveList,
  type: JSON_TYPE,
  tag: "record",
  cache: CACHE_ONE_MINUTE,
  limiter: (service) => service.readLimiter,
  run(call) {
    const list = archiveList(call.service.follower.view, validate(ArchiveQuery, queryOf(call.query)));
    return replyJson(call, JSON.stringify(list), CACHE_ONE_MINUTE);
  },
};

const manifestById: Operation = {
  id: "archiveManifest",
  needsRecord: true,
  path: "/v1/archive/:id",
  summary: "One manifest: day, rows, hash of the unpacked file, and the command that fetches and checks it",
  params: ArchiveParams,
  answer: ArchiveManifest,
  type: JSON_TYPE,
  tag: "record",
  cache: IMMUTABLE,
  errors: ["not_found"],
  limiter: (service) => service.readLimiter,
  run(call) {
    const { id } = validate(ArchiveParams, call.params);
    // A manifest is never changed: a wrong file is replaced by another one, under another id.
    return replyJson(call, JSON.stringify(archiveManifest(call.service.follower.view, id)), IMMUTABLE);
  },
};

export const ARCHIVE: readonly Operation[] = [list, manifestById];

const objectOperation = (root: string, path: string): Operation => ({
  id: `object-${root}`,
  path,
  summary: `Objects of the public log: ${root}`,
  type: "application/octet-stream",
  tag: "record",
  limiter: (service) => service.readLimiter,
  run({ service, request, client, path: objectPath }) {
    const key = objectPath.slice(1);
    return service.objects.answer(key, { ...request, client }, service.follower.view.archive.leafOfKey(key)?.sha256);
  },
});

/** Operations that serve the objects of the public store. The object with key `k` is at the path `/k`. */
export const OBJECTS: readonly Operation[] = [
  objectOperation("checkpoint", "/checkpoint"),
  ...OBJECT_ROOTS.map((root) => objectOperation(root, `/${root}/**`)),
];

/** The signing keys, retired ones too. */
export const KEYS: Operation = {
  id: "keys",
  path: "/.well-known/svc-keys.json",
  summary: "The published signing keys, retired ones too (JWKS)",
  answer: KeysDocument,
  type: JSON_TYPE,
  tag: "service",
  cache: CACHE_ONE_MINUTE,
  limiter: (service) => service.readLimiter,
  run(call) {
    return replyJson(call, JSON.stringify(call.service.jwks()), CACHE_ONE_MINUTE);
  },
};
