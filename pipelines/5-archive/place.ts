import { type Keys, keysDocument } from "../../infra/keys/keys.ts";
import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { checkpointKeys, ownTrust } from "../4-publish/tree-head.ts";
import { ArchiveFold } from "../published/fold.ts";
import { RecordReader, readCheckpoint } from "../published/reader.ts";
import { KEPT_DAYS } from "../record/archive.ts";
import { DAY_MS, dayOf } from "../record/time.ts";
import type { FilingParts } from "./filing.ts";

/** Where the archive of a deployment lies, and who signs for it. */
export interface ArchivePlace extends Pick<FilingParts, "publicStore" | "cards" | "jwks" | "baseUrl"> {
  /** Keys of our own checkpoint: grades are read from the proven log. */
  trust: CheckpointTrust;
}

/** Whom we believe when we read our own public log. */
export const trustOf = (origin: string, keys: Keys): CheckpointTrust => ownTrust(checkpointKeys(origin, keys));

/** @param baseUrl address that files are served at */
export const archivePlace = (publicStore: Store, keys: Keys, origin: string, baseUrl: string): ArchivePlace => ({
  publicStore,
  trust: trustOf(origin, keys),
  cards: keys.cards,
  jwks: async () => keysDocument(keys.ring),
  baseUrl: baseUrl.replace(/\/+$/, ""),
});

/** UTC days before this one have ended so long ago that their rows may move. */
export const archivedUntil = (now: Date): string => dayOf(new Date(now.getTime() - KEPT_DAYS * DAY_MS));

/** What the public log says of the archive; empty before the first checkpoint. */
export async function archiveFold(store: Store, trust: CheckpointTrust): Promise<ArchiveFold> {
  const fold = new ArchiveFold();
  const head = await readCheckpoint(store, trust);
  if (!head) return fold;
  for await (const { leaf } of (await RecordReader.open(store, head)).leaves()) {
    if (leaf.kind === "archive") fold.archive(leaf);
  }
  return fold;
}
