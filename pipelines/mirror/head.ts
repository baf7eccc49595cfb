import type { Clock } from "../../infra/clock.ts";
import { type Checkpoint, type CheckpointTrust, openCheckpoint } from "../../infra/tree/checkpoint.ts";
import { BadNote } from "../../infra/tree/note.ts";
import { consistencyProof, verifyConsistency } from "../../infra/tree/proof.ts";
import type { TileReader } from "../../infra/tree/tiles.ts";
import { CHECKPOINT } from "../4-publish/objects.ts";
import { Forked, MirrorUsage, Rollback, Stale, Unproven } from "./errors.ts";
import type { Head, MirrorState } from "./state.ts";

/** Verify origin and signatures. @throws Unproven with the reason */
export function openHead(bytes: Uint8Array, trust: CheckpointTrust): Checkpoint {
  try {
    return openCheckpoint(bytes, trust);
  } catch (error) {
    if (!(error instanceof BadNote)) throw error;
    throw new Unproven(CHECKPOINT, `a checkpoint of ${trust.log.name} under the keys held`, error.message);
  }
}

/** Oldest acceptable cosignature unless the operator says otherwise: the log promises a new one every ten minutes. */
const MAX_AGE_SECONDS = 86_400;

/** @param maxAgeSeconds 0 asks nothing. @throws Stale, MirrorUsage when it was asked and no witness is trusted */
export function refuseStale(head: Checkpoint, clock: Clock, maxAgeSeconds: number | undefined): void {
  if (maxAgeSeconds === 0 || (maxAgeSeconds === undefined && !head.cosignedAt)) return;
  if (!head.cosignedAt) throw new MirrorUsage("the age of a checkpoint needs a witness key, or a --max-age of 0");
  const age = Math.floor((clock.now().getTime() - head.cosignedAt.getTime()) / 1000);
  const accepted = maxAgeSeconds ?? MAX_AGE_SECONDS;
  if (age > accepted) throw new Stale(head.cosignedAt, age, accepted);
}

/**
 * Hold a signed head against one that was seen before, as far as sizes and roots tell.
 * @throws Rollback, Forked after the evidence was written
 */
export async function refuseOlder(head: Checkpoint, seen: Head, state: MirrorState): Promise<void> {
  if (head.size < seen.size) throw new Rollback(seen.size, head.size);
  if (head.size > seen.size || head.root.toString("hex") === seen.root) return;
  await fork(head, seen, state, `two roots for ${head.size} leaves`);
}

/**
 * The proof that a larger tree begins with the one that was seen. Its hashes are proven under the head first, so a
 * proof that fails is the log's doing and not that of damaged tiles.
 * @throws Forked after the evidence was written; MissingObject, Tampered
 */
export async function refuseOther(head: Checkpoint, seen: Head, tiles: TileReader, state: MirrorState): Promise<void> {
  if (seen.size === 0 || seen.size === head.size) return;
  const proof = await consistencyProof(seen.size, head.size, tiles.node);
  const root = Buffer.from(seen.root, "hex");
  if (verifyConsistency(seen.size, head.size, root, head.root, proof)) return;
  await fork(head, seen, state, `the tree of ${head.size} leaves does not begin with that of ${seen.size}`);
}

async function fork(head: Checkpoint, seen: Head, state: MirrorState, says: string): Promise<never> {
  throw new Forked(says, await state.saveEvidence(seen.note, head.bytes.toString("utf8"), says));
}
