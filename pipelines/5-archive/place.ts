import { type Keys, keysDocument } from "../../infra/keys/keys.ts";
import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { checkpointKeys, ownTrust } from "../4-publish/tree-head.ts";
import { ArchiveFold } from "../published/fold.ts";
import { RecordReader, readCheckpoint } from "../published/reader.ts";
import { RETENTION_DAYS } from "../record/archive.ts";
import { DAY_MS, dayOf } from "../record/time.ts";
import type { FilingParts } from "./filing.ts";

/** The stores, addresses and keys of a deployment's archive. */
export interface ArchivePlace extends Pick<FilingParts, "publicStore" | "cards" | "jwks" | "baseUrl"> {
  /** Keys that verify the checkpoint of our own tree, from which grades are read. */
  trust: CheckpointTrust;
}

/** The keys that are trusted for the checkpoint of our own tree. */
export const archiveTrust = (origin: string, keys: Keys): CheckpointTrust => ownTrust(checkpointKeys(origin, keys));

/** @param baseUrl base address of the served files */
export const createArchivePlace = (publicStore: Store, keys: Keys, origin: string, baseUrl: string): ArchivePlace => ({
  publicStore,
  trust: archiveTrust(origin, keys),
  cards: keys.cards,
  jwks: async () => keysDocument(keys.ring),
  baseUrl: baseUrl.replace(/\/+$/, ""),
});

/** Rows of UTC days before this one may move to the archive. */
export const firstRetainedDay = (now: Date): string => dayOf(new Date(now.getTime() - RETENTION_DAYS * DAY_MS));

/** Computes the state of the archive from the leaves of our public tree; it is empty before the first checkpoint. */
export async function readArchiveFold(store: Store, trust: CheckpointTrust): Promise<ArchiveFold> {
  const fold = new ArchiveFold();
  const head = await readCheckpoint(store, trust);
  if (!head) return fold;
  for await (const { leaf } of (await RecordReader.open(store, head)).leaves()) fold.apply(leaf);
  return fold;
}
