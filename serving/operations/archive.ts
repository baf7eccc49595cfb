import { archiveList, archiveManifest } from "../answers/archive.ts";
import { etagOfText } from "../answers/trust.ts";
import { queryOf, validated } from "../http/problem.ts";
import { JSON_TYPE, reply } from "../http/reply.ts";
import type { Operation } from "../operations.ts";
import { ArchiveList, ArchiveManifest, ArchiveParams, ArchiveQuery } from "../schemas/archive.ts";

const list: Operation = {
  id: "archive",
  path: "/v1/archive",
  summary: "Signed manifests of the files that old rows were moved to",
  query: ArchiveQuery,
  answer: ArchiveList,
  type: JSON_TYPE,
  limiter: (service) => service.readLimiter,
  run({ service, request, query, limitHeaders }) {
    const text = JSON.stringify(archiveList(service.follower.view, validated(ArchiveQuery, queryOf(query))));
    const cache = "public, max-age=60";
    return reply(request, text, { type: JSON_TYPE, cache, etag: etagOfText(text), headers: limitHeaders });
  },
};

const byId: Operation = {
  id: "archiveManifest",
  path: "/v1/archive/:id",
  summary: "One manifest: day, rows, hash of the unpacked file, and the command that fetches and checks it",
  params: ArchiveParams,
  answer: ArchiveManifest,
  type: JSON_TYPE,
  limiter: (service) => service.readLimiter,
  run({ service, request, params, limitHeaders }) {
    const { id } = validated(ArchiveParams, params);
    const text = JSON.stringify(archiveManifest(service.follower.view, id));
    // A manifest is never changed: a wrong file is replaced by another one, under another id.
    const cache = "public, max-age=31536000, immutable";
    return reply(request, text, { type: JSON_TYPE, cache, etag: etagOfText(text), headers: limitHeaders });
  },
};

export const ARCHIVE: readonly Operation[] = [list, byId];
