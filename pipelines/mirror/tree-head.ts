import type { Clock } from "../../infra/clock.ts";
import type { Checkpoint, CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { consistencyProof, verifyConsistency } from "../../infra/tree/proof.ts";
import type { TileReader } from "../../infra/tree/tiles.ts";
import { Forked, MirrorUsage, Rollback, Stale } from "../published/errors.ts";
import type { Source } from "../published/source.ts";
import { firstUse, fromPins, type GivenKeys, type Pins } from "../published/trust.ts";
import type { MirrorState, SavedTreeHead } from "./state.ts";

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
export async function refuseOlder(head: Checkpoint, seen: SavedTreeHead, state: MirrorState): Promise<void> {
  if (head.size < seen.size) throw new Rollback(seen.size, head.size);
  if (head.size > seen.size || head.root.toString("hex") === seen.root) return;
  await fork(head, seen, state, `two roots for ${head.size} leaves`);
}

/**
 * The proof that a larger tree begins with the one that was seen. Its hashes are proven under the head first, so a
 * proof that fails is the log's doing and not that of damaged tiles.
 * @throws Forked after the evidence was written; MissingObject, Tampered
 */
export async function refuseOther(
  head: Checkpoint,
  seen: SavedTreeHead,
  tiles: TileReader,
  state: MirrorState,
): Promise<void> {
  if (seen.size === 0 || seen.size === head.size) return;
  const proof = await consistencyProof(seen.size, head.size, tiles.node);
  const root = Buffer.from(seen.root, "hex");
  if (verifyConsistency(seen.size, head.size, root, head.root, proof)) return;
  await fork(head, seen, state, `the tree of ${head.size} leaves does not begin with that of ${seen.size}`);
}

async function fork(head: Checkpoint, seen: SavedTreeHead, state: MirrorState, says: string): Promise<never> {
  throw new Forked(says, await state.saveEvidence(seen.note, head.bytes.toString("utf8"), says));
}

/**
 * Whom this mirror believes: the keys given, else the keys pinned before, else those that the source shows now, which
 * are then pinned and said aloud: trust on first use is believing whoever answers today.
 * @param bytes the source's checkpoint
 * @throws MirrorUsage, BadNote for a vkey that is none, Unproven when no key of the source signed its checkpoint
 */
export async function trustOf(
  source: Source,
  bytes: Uint8Array,
  state: MirrorState,
  given: GivenKeys,
  say: (text: string) => void,
): Promise<CheckpointTrust> {
  const pinned = await state.pins();
  if (given.witness && !given.log) throw new MirrorUsage("a witness key needs the log key beside it");
  if (!given.log && pinned) return fromPins(pinned);
  const first = given.log ? null : await firstUse(source, bytes);
  const pins: Pins = first ?? withPinned(given.log!, given.witness, pinned);
  const trust = fromPins(pins);
  const before = pinned && fromPins(pinned).log.name;
  if (before && before !== trust.log.name) {
    throw new MirrorUsage(`this folder mirrors ${before}, not ${trust.log.name}`);
  }
  if (pinned?.log !== pins.log || pinned.witness !== pins.witness) await state.savePins(pins);
  if (first)
    say(`trust on first use: pinned --log-key ${pins.log} --witness-key ${pins.witness} as ${source.name} shows them`);
  return trust;
}

/** What was learned beside this log key is not forgotten because the key was named again. */
const withPinned = (log: string, witness: string | undefined, pinned: Pins | null): Pins =>
  pinned?.log === log ? { ...pinned, witness: witness ?? pinned.witness } : { log, witness: witness ?? null };
