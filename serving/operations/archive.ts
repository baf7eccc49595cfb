import { IMMUTABLE } from "../../pipelines/4-publish/objects.ts";
import { archiveList, archiveManifest } from "../answers/archive.ts";
import { queryOf, validated } from "../http/problem.ts";
import { JSON_TYPE } from "../http/reply.ts";
import type { Operation } from "../operations.ts";
import { ArchiveList, ArchiveManifest, ArchiveParams, ArchiveQuery } from "../schemas/archive.ts";
import { MINUTE, replyJson } from "./json-text.ts";

const list: Operation = {
  id: "archive",
  path: "/v1/archive",
  summary: "Signed manifests of the files that old rows were moved to",
  query: ArchiveQuery,
  answer: ArchiveList,
  type: JSON_TYPE,
  limiter: (service) => service.readLimiter,
  run(call) {
    const list = archiveList(call.service.follower.view, validated(ArchiveQuery, queryOf(call.query)));
    return replyJson(call, JSON.stringify(list), MINUTE);
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
  run(call) {
    const { id } = validated(ArchiveParams, call.params);
    // A manifest is never changed: a wrong file is replaced by another one, under another id.
    return replyJson(call, JSON.stringify(archiveManifest(call.service.follower.view, id)), IMMUTABLE);
  },
};

export const ARCHIVE: readonly Operation[] = [list, byId];
