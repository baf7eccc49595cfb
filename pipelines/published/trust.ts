import { z } from "zod";
import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { fromBase64url } from "../../infra/keys/jwk.ts";
import { type Checkpoint, type CheckpointTrust, openCheckpoint, witnessName } from "../../infra/tree/checkpoint.ts";
import {
  BadNote,
  COSIGNATURE,
  ED25519,
  formatVkey,
  type NoteKey,
  parseNote,
  parseVkey,
} from "../../infra/tree/note.ts";
import { Unwitnessed, type WitnessPolicy } from "../../infra/tree/policy.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { parseJson, Unproven } from "./errors.ts";
import { MAX_BYTES } from "./limits.ts";
import { CHECKPOINT, KEYS_HINT, kindOfKey } from "./objects.ts";
import type { Source } from "./source.ts";

export interface GivenKeys {
  /**
   * Verifier keys in the form of c2sp.org/signed-note: that of the log (type 0x01), that of its own witness (type
   * 0x04).
   */
  log?: string;
  witness?: string;
  /** Witness policy: the logs that are accepted, and witnesses besides the log's own. */
  policy?: WitnessPolicy | undefined;
}

/**
 * The verifier keys that a mirror trusts, as signed-note vkeys. `log` and `witness` were given, or were found in the
 * source at first use. `logs` and `witnesses` are the valid keys of the newest proven keys document; once they are set,
 * only they are trusted, so that a rotation needs no operator and a retired key verifies nothing. If `witnesses` is
 * empty, that document has no successor for `witness`, whose cosignature then stays required.
 */
export const Pins = z.strictObject({
  log: z.string(),
  witness: z.string().nullable(),
  logs: z.array(z.string()).max(64).optional(),
  witnesses: z.array(z.string()).max(64).optional(),
});
export type Pins = z.infer<typeof Pins>;

/**
 * Verifies origin and signatures of a checkpoint.
 * @param clock null: the times of cosignatures are not checked
 * @throws Unproven with the reason, Unwitnessed when the policy is not met
 */
export function openTreeHead(bytes: Uint8Array, trust: CheckpointTrust, clock: Clock | null): Checkpoint {
  try {
    return openCheckpoint(bytes, trust, clock?.now());
  } catch (error) {
    if (!(error instanceof BadNote)) throw error;
    throw new Unproven(CHECKPOINT, `a checkpoint of ${trust.log.name} under the keys held`, error.message);
  }
}

/**
 * Reads the source's checkpoint and verifies it under the given keys. Without given keys it uses the keys that the
 * source itself publishes, and tells the operator so by `say`: the result then shows that the source is consistent, but
 * not whose log it is.
 * @param clock cosignatures that are later than this clock allows are refused; null when the record was made in
 * simulated time
 * @throws MissingObject, Unproven, Unwitnessed, Failure `usage` also for a malformed key
 */
export async function openSourceTreeHead(
  source: Source,
  keys: GivenKeys,
  say: (text: string) => void,
  clock: Clock | null = null,
): Promise<Checkpoint> {
  const bytes = await source.get(CHECKPOINT, MAX_BYTES.note);
  if (!bytes) throw new MissingObject(CHECKPOINT);
  if (keys.witness && !keys.log) throw new Failure("usage", "a witness key needs the log key beside it");
  const log = keys.log ?? logOfPolicy(keys.policy, bytes);
  const pins = log ? mergePins(log, keys.witness, null) : await findSigningKeys(source, bytes);
  if (!log) {
    const witness = pins.witness ? ` --witness-key ${pins.witness}` : "";
    say(`believing the keys that ${source.name} shows: --log-key ${pins.log}${witness}`);
  }
  return openTreeHead(bytes, { ...trustOfPins(pins), policy: keys.policy }, clock);
}

/**
 * Makes pins for given keys. If they are the pinned ones, keys that rotations have added are kept; else the given keys
 * themselves have to verify the checkpoint. A log key without a witness key does not drop a pinned witness.
 */
export function mergePins(log: string, givenWitness: string | undefined, pinned: Pins | null): Pins {
  const witness = givenWitness ?? pinned?.witness ?? null;
  return pinned?.log === log && pinned.witness === witness ? pinned : { log, witness };
}

/**
 * Returns the policy's verifier key for the log of this checkpoint; undefined when the policy names no logs.
 * @throws Unwitnessed for a log that the policy does not name
 */
export function logOfPolicy(policy: WitnessPolicy | undefined, bytes: Uint8Array): string | undefined {
  if (!policy || policy.logs.length === 0) return undefined;
  const origin = originOf(bytes);
  const log = policy.logs.find(({ name }) => name === origin);
  if (!log) throw new Unwitnessed(`the witness policy names no log ${origin}`);
  return formatVkey(log, ED25519);
}

/** Parses a verifier key. @throws Failure `usage` when it is malformed */
export function parseVerifierKey(vkey: string, type: Parameters<typeof parseVkey>[1]): NoteKey {
  try {
    return parseVkey(vkey, type);
  } catch (error) {
    if (error instanceof BadNote) throw new Failure("usage", error.message);
    throw error;
  }
}

/** @throws Failure `usage` for a malformed verifier key */
export function trustOfPins({ log, witness, logs = [log], witnesses = [] }: Pins): CheckpointTrust {
  const [firstLog, ...otherLogs] = logs.map((vkey) => parseVerifierKey(vkey, ED25519));
  // Without a pinned witness key no cosignature is required, even if the log's keys documents list witness keys. With
  // one, a cosignature is always required: a log that lists no witness any more does not lower what the reader wanted.
  const requiredWitnesses = !witness ? [] : witnesses.length > 0 ? witnesses : [witness];
  const [firstWitness, ...otherWitnesses] = requiredWitnesses.map((vkey) => parseVerifierKey(vkey, COSIGNATURE));
  return {
    log: firstLog!,
    logs: otherLogs,
    ...(firstWitness ? { witness: firstWitness, witnesses: otherWitnesses } : {}),
  };
}

const HintedKeysDocument = z.looseObject({
  keys: z.array(z.looseObject({ x: z.string(), purpose: z.string() })).max(1024),
});

/**
 * Finds the keys in the source's newest keys document that signed this checkpoint.
 * @throws MissingObject, Unproven, Failure
 */
export async function findSigningKeys(source: Source, bytes: Uint8Array): Promise<Pins> {
  const origin = originOf(bytes);
  const hint = await source.get(KEYS_HINT, MAX_BYTES.hint);
  const key = (hint && (parseJson(hint) as { key?: unknown } | undefined))?.key;
  if (typeof key !== "string" || kindOfKey(key) !== "keys") {
    throw new Failure("usage", `${source.name} names no keys document: give --log-key and --witness-key`);
  }
  const document = await source.get(key, MAX_BYTES.keys);
  if (!document) throw new MissingObject(key);
  const { data } = HintedKeysDocument.safeParse(parseJson(document));
  const keysFor = (purpose: string, name: string): NoteKey[] =>
    (data?.keys ?? []).flatMap((one) => {
      const publicKey = one.purpose === purpose ? fromBase64url(one.x) : null;
      return publicKey ? [{ name, publicKey }] : [];
    });
  for (const log of keysFor("log", origin)) {
    for (const witness of keysFor("witness", witnessName(origin))) {
      if (!isSignedBy(bytes, { log, witness })) continue;
      return { log: formatVkey(log, ED25519), witness: formatVkey(witness, COSIGNATURE) };
    }
  }
  throw new Unproven(CHECKPOINT, `signatures of keys in ${key}`, "none");
}

/** Returns the first line of a note, the origin, without verifying signatures. @throws Unproven */
function originOf(bytes: Uint8Array): string {
  try {
    return parseNote(bytes).text.split("\n", 1)[0]!;
  } catch (error) {
    throw new Unproven(CHECKPOINT, "a signed note", (error as Error).message);
  }
}

function isSignedBy(bytes: Uint8Array, trust: CheckpointTrust): boolean {
  try {
    openCheckpoint(bytes, trust);
    return true;
  } catch (error) {
    if (error instanceof BadNote) return false;
    throw error;
  }
}
