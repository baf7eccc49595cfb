import { Failure } from "../../infra/errors.ts";
import type { RetiredKey } from "../../infra/keys/keys.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { Store } from "../../infra/store/store.ts";
import {
  bodyOf,
  type CheckpointTrust,
  openCheckpoint,
  signCheckpoint,
  type TreeHead,
  witnessName,
} from "../../infra/tree/checkpoint.ts";
import { sameHash } from "../../infra/tree/hash.ts";
import { ED25519, type NoteSigner, signatureLine } from "../../infra/tree/note.ts";
import { CHECKPOINT } from "../published/objects.ts";
import { isSimulated, readCheckpoint, SIMULATED_TIME } from "../published/reader.ts";
import type { Witnesses } from "./witnesses.ts";
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

/** What is done with the checkpoint that is there. */
interface Swap {
  head: TreeHead;
  keys: CheckpointKeys;
  at: Date;
  refresh: boolean;
}

/** The head to sign, or why none is: a larger checkpoint, or one of this head that is new enough. @throws Fork */
function toSign({ head, keys, at, refresh }: Swap, bytes: Uint8Array | null): TreeHead | "larger" | "there" {
  const theirs = bytes && openCheckpoint(bytes, ownTrust(keys));
  if (!theirs) return head;
  if (theirs.size === head.size && !sameHash(theirs.root, head.root)) {
    throw new Fork(head.size, head.root, theirs.root);
  }
  if (theirs.size > head.size) return "larger";
  if (theirs.size === head.size && (!refresh || theirs.cosignedAt! >= wholeSecond(at))) return "there";
  return isSimulated(theirs) ? { ...head, extensions: [SIMULATED_TIME] } : head;
}

/**
 * Publish the checkpoint of this head, or a fresher one of the same head when `refresh`. A larger one stays: a
 * publisher that was paused never takes the checkpoint back. Once a checkpoint has the extension line of simulated time,
 * every later one has it too. Witnesses are asked before it is published, since its root is decided: whatever ends this
 * process meanwhile, no other root of this size can follow.
 * @returns false when a larger one is there.
 * @throws Fork; BelowQuorum where the settings hold a checkpoint back
 */
export async function publishCheckpoint(
  store: Store,
  head: TreeHead,
  keys: CheckpointKeys,
  at: Date,
  { refresh = false, witnesses }: { refresh?: boolean; witnesses?: Witnesses | undefined } = {},
): Promise<boolean> {
  const swap: Swap = { head, keys, at, refresh };
  const cosigned = witnesses ? await cosignedBy(witnesses, store, swap) : null;
  let superseded = false;
  await swapPublic(store, CHECKPOINT, (object) => {
    const signed = toSign(swap, object?.bytes ?? null);
    superseded = signed === "larger";
    if (typeof signed === "string") return null;
    const retiring = { logs: replacedAs(keys, "log", at), witnesses: replacedAs(keys, "witness", at) };
    const others = cosigned?.text === bodyOf(signed) ? cosigned.lines : [];
    return signCheckpoint(signed, keys.log, keys.witness, at, retiring, others);
  });
  return !superseded;
}

/** Cosignatures of the text that is to be published; null when none is. */
async function cosignedBy(witnesses: Witnesses, publicStore: Store, swap: Swap) {
  const theirs = await readCheckpoint(publicStore, ownTrust(swap.keys));
  const signed = toSign(swap, theirs?.bytes ?? null);
  if (typeof signed === "string") return null;
  const text = bodyOf(signed);
  // A witness knows the log by one key for a long time, so those that are being retired sign too.
  const lines = [swap.keys.log, ...replacedAs(swap.keys, "log", swap.at)].map((key) =>
    signatureLine(key, ED25519, key.sign(Buffer.from(text))),
  );
  const note = Buffer.from(`${text}\n${lines.join("")}`);
  return { text, lines: await witnesses.collect({ note, head: signed, publicStore }) };
}

const wholeSecond = (at: Date): Date => new Date(Math.floor(at.getTime() / 1000) * 1000);
