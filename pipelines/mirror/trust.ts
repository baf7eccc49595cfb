import { z } from "zod";
import { fromBase64url } from "../../infra/keys/jwk.ts";
import { type CheckpointTrust, openCheckpoint, witnessName } from "../../infra/tree/checkpoint.ts";
import {
  BadNote,
  COSIGNATURE,
  ED25519,
  formatVkey,
  type NoteKey,
  parseNote,
  parseVkey,
} from "../../infra/tree/note.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { CHECKPOINT, HINT_KEYS, kindOfKey } from "../4-publish/objects.ts";
import { MirrorUsage, Unproven } from "./errors.ts";
import { MAX } from "./limits.ts";
import type { Source } from "./source.ts";
import { type MirrorState, type Pins, parseJson } from "./state.ts";

export interface GivenKeys {
  /** Signed-note vkeys (c2sp.org/signed-note): the log's of type 0x01, the witness's of type 0x04. */
  log?: string;
  witness?: string;
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
  if (first) say(`trust on first use: pinned ${pins.log} and ${pins.witness} as ${source.name} shows them`);
  return trust;
}

/** What was learned beside this log key is not forgotten because the key was named again. */
const withPinned = (log: string, witness: string | undefined, pinned: Pins | null): Pins =>
  pinned?.log === log ? { ...pinned, witness: witness ?? pinned.witness } : { log, witness: witness ?? null };

/** @throws BadNote for a vkey that is none */
export function fromPins({ log, witness, logs = [log], witnesses = witness ? [witness] : [] }: Pins): CheckpointTrust {
  const [first, ...more] = logs.map((vkey) => parseVkey(vkey, ED25519));
  const [seen, ...others] = witnesses.map((vkey) => parseVkey(vkey, COSIGNATURE));
  // A mirror that was told of no witness asks for none, whatever the log's documents name.
  return { log: first!, logs: more, ...(witness && seen ? { witness: seen, witnesses: others } : {}) };
}

const Keys = z.looseObject({ keys: z.array(z.looseObject({ x: z.string(), purpose: z.string() })).max(1024) });

/** The keys in the source's newest keys document that signed this checkpoint. */
export async function firstUse(source: Source, bytes: Uint8Array): Promise<Pins> {
  const origin = originOf(bytes);
  const hint = await source.get(HINT_KEYS, MAX.hint);
  const key = (hint && (parseJson(hint) as { key?: unknown } | undefined))?.key;
  if (typeof key !== "string" || kindOfKey(key) !== "keys") {
    throw new MirrorUsage(`${source.name} names no keys document: give --log-key and --witness-key`);
  }
  const document = await source.get(key, MAX.keys);
  if (!document) throw new MissingObject(key);
  const { data } = Keys.safeParse(parseJson(document));
  const named = (purpose: string, name: string): NoteKey[] =>
    (data?.keys ?? []).flatMap((one) => {
      const publicKey = one.purpose === purpose ? fromBase64url(one.x) : null;
      return publicKey ? [{ name, publicKey }] : [];
    });
  for (const log of named("log", origin)) {
    for (const witness of named("witness", witnessName(origin))) {
      if (!holds(bytes, { log, witness })) continue;
      return { log: formatVkey(log, ED25519), witness: formatVkey(witness, COSIGNATURE) };
    }
  }
  throw new Unproven(CHECKPOINT, `signatures of keys in ${key}`, "none");
}

/** First line of a note, unverified. @throws Unproven */
function originOf(bytes: Uint8Array): string {
  try {
    return parseNote(bytes).text.split("\n", 1)[0]!;
  } catch (error) {
    throw new Unproven(CHECKPOINT, "a signed note", (error as Error).message);
  }
}

function holds(bytes: Uint8Array, trust: CheckpointTrust): boolean {
  try {
    openCheckpoint(bytes, trust);
    return true;
  } catch (error) {
    if (error instanceof BadNote) return false;
    throw error;
  }
}
