import { Failure } from "../../infra/errors.ts";
import type { RetiredKey } from "../../infra/keys/keys.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { Store } from "../../infra/store/store.ts";
import {
  type CheckpointTrust,
  openCheckpoint,
  signCheckpoint,
  type TreeHead,
  witnessName,
} from "../../infra/tree/checkpoint.ts";
import { sameHash } from "../../infra/tree/hash.ts";
import type { NoteSigner } from "../../infra/tree/note.ts";
import { CHECKPOINT } from "../published/objects.ts";
import { isSimulated, SIMULATED_TIME } from "../published/reader.ts";
import { swapPublic } from "./writes.ts";

/** Two roots for one size, both signed by our key. Publishing stops: a fork cannot be mended. */
export class Fork extends Failure {
  constructor(size: number, ours: Uint8Array, theirs: Uint8Array) {
    const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
    super("failed", `fork: the checkpoint of ${size} leaves has root ${hex(theirs)}, ours has ${hex(ours)}`);
  }
}

export interface CheckpointKeys {
  log: NoteSigner;
  witness: NoteSigner;
  /** Keys that were replaced: they sign beside the new ones until they retire, and what they signed is still ours. */
  replaced?: readonly { role: "log" | "witness"; signer: NoteSigner; until: Date }[];
}

/** The checkpoint's keys under their names: the log's is the origin, the witness's stands below it. */
export function checkpointKeys(
  origin: string,
  signers: { log: Signer; witness: Signer; retired?: readonly RetiredKey[] },
): CheckpointKeys {
  const named = (name: string, signer: Signer) => ({
    name,
    publicKey: signer.publicKey,
    sign: (message: Uint8Array) => signer.sign(message),
  });
  const replaced = (signers.retired ?? []).flatMap(({ signer, until }) => {
    const role = signer.purpose;
    if (role !== "log" && role !== "witness") return [];
    return [{ role, signer: named(role === "log" ? origin : witnessName(origin), signer), until }];
  });
  return { log: named(origin, signers.log), witness: named(witnessName(origin), signers.witness), replaced };
}

const replacedAs = (keys: CheckpointKeys, role: "log" | "witness", at?: Date): NoteSigner[] =>
  (keys.replaced ?? []).flatMap((one) => (one.role === role && (!at || one.until > at) ? [one.signer] : []));

/** The keys under which our own checkpoints are accepted: those in use, and all that they replaced. */
export const ownTrust = (keys: CheckpointKeys): CheckpointTrust => ({
  ...keys,
  logs: replacedAs(keys, "log"),
  witnesses: replacedAs(keys, "witness"),
});

/**
 * Publish the checkpoint of this head, or a fresher one of the same head when `refresh`. A larger one stays: a
 * publisher that was paused never takes the checkpoint back. Once a checkpoint has the extension line of simulated time,
 * every later one has it too.
 * @returns false when a larger one is there.
 * @throws Fork
 */
export async function publishCheckpoint(
  store: Store,
  head: TreeHead,
  keys: CheckpointKeys,
  at: Date,
  refresh = false,
): Promise<boolean> {
  let superseded = false;
  await swapPublic(store, CHECKPOINT, (object) => {
    const theirs = object && openCheckpoint(object.bytes, ownTrust(keys));
    if (theirs && theirs.size === head.size && !sameHash(theirs.root, head.root)) {
      throw new Fork(head.size, head.root, theirs.root);
    }
    superseded = theirs !== null && theirs.size > head.size;
    if (superseded) return null;
    const older = theirs && theirs.size === head.size && (!refresh || theirs.cosignedAt! >= wholeSecond(at));
    if (older) return null;
    const retiring = { logs: replacedAs(keys, "log", at), witnesses: replacedAs(keys, "witness", at) };
    const signed = theirs && isSimulated(theirs) ? { ...head, extensions: [SIMULATED_TIME] } : head;
    return signCheckpoint(signed, keys.log, keys.witness, at, retiring);
  });
  return !superseded;
}

const wholeSecond = (at: Date): Date => new Date(Math.floor(at.getTime() / 1000) * 1000);
