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

/** The error when our key has signed two roots for one tree size. Publishing stops, since a fork cannot be repaired. */
export class Fork extends Failure {
  constructor(size: number, ownRoot: Uint8Array, storedRoot: Uint8Array) {
    const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
    super("fork", `fork: the checkpoint of ${size} leaves has root ${hex(storedRoot)}, ours has ${hex(ownRoot)}`);
  }
}

/** The keys that sign a checkpoint: the log's key, and the key of the witness that this service runs itself. */
export interface CheckpointKeys {
  log: NoteSigner;
  witness: NoteSigner;
  /** Replaced keys. They sign beside the new keys until they retire, and their signatures are accepted for ever. */
  replaced?: readonly { role: "log" | "witness"; signer: NoteSigner; until: Date }[];
}

/**
 * Makes the checkpoint's keys from our signing keys, by giving each the name under which it signs: the log's key the
 * origin, the witness's key a name below it.
 */
export function checkpointKeys(
  origin: string,
  signers: { log: Signer; witness: Signer; retired?: readonly RetiredKey[] },
): CheckpointKeys {
  const toNoteSigner = (name: string, signer: Signer) => ({
    name,
    publicKey: signer.publicKey,
    sign: (message: Uint8Array) => signer.sign(message),
  });
  const replaced = (signers.retired ?? []).flatMap(({ signer, until }) => {
    const role = signer.purpose;
    if (role !== "log" && role !== "witness") return [];
    return [{ role, signer: toNoteSigner(role === "log" ? origin : witnessName(origin), signer), until }];
  });
  return {
    log: toNoteSigner(origin, signers.log),
    witness: toNoteSigner(witnessName(origin), signers.witness),
    replaced,
  };
}

const replacedKeysOf = (keys: CheckpointKeys, role: "log" | "witness", signAt?: Date): NoteSigner[] =>
  (keys.replaced ?? []).flatMap((one) => (one.role === role && (!signAt || one.until > signAt) ? [one.signer] : []));

/** The keys under which our own checkpoints are accepted: the present keys and all replaced ones. */
export const ownTrust = (keys: CheckpointKeys): CheckpointTrust => ({
  ...keys,
  logs: replacedKeysOf(keys, "log"),
  witnesses: replacedKeysOf(keys, "witness"),
});

/** The checkpoint that is to replace the stored one. */
interface CheckpointSwap {
  head: TreeHead;
  keys: CheckpointKeys;
  signAt: Date;
  /** True: it replaces the stored one also if both have the same head, so that its time is newer. */
  refresh: boolean;
}

/**
 * Returns the head to sign; `larger` if a larger checkpoint is stored; `there` if the stored checkpoint has this head
 * and, with `refresh`, was cosigned in the second of `signAt` or later.
 * @throws Fork
 */
function headToSign(
  { head, keys, signAt, refresh }: CheckpointSwap,
  bytes: Uint8Array | null,
): TreeHead | "larger" | "there" {
  const stored = bytes && openCheckpoint(bytes, ownTrust(keys));
  if (!stored) return head;
  if (stored.size === head.size && !sameHash(stored.root, head.root)) {
    throw new Fork(head.size, head.root, stored.root);
  }
  if (stored.size > head.size) return "larger";
  if (stored.size === head.size && (!refresh || stored.cosignedAt! >= toWholeSecond(signAt))) return "there";
  return isSimulated(stored) ? { ...head, extensions: [SIMULATED_TIME] } : head;
}

/**
 * Publishes the checkpoint of this head; with `refresh` also when the stored one has the same head. A larger
 * checkpoint is never replaced, so a paused publisher cannot take the log back. Once a checkpoint has the extension
 * line of simulated time, every later one has it too. Witnesses are asked before the checkpoint is published. This is
 * safe since the generation in the private store has fixed the root: no other root of this size can follow even if
 * this process dies.
 * @returns false when a larger checkpoint is stored
 * @throws Fork; BelowQuorum when too few witnesses cosigned and the settings demand a quorum
 */
export async function publishCheckpoint(
  store: Store,
  head: TreeHead,
  keys: CheckpointKeys,
  signAt: Date,
  { refresh = false, witnesses }: { refresh?: boolean; witnesses?: Witnesses | undefined } = {},
): Promise<boolean> {
  const swap: CheckpointSwap = { head, keys, signAt, refresh };
  const cosignatures = witnesses ? await collectCosignatures(witnesses, store, swap) : null;
  let isSuperseded = false;
  await swapPublic(store, CHECKPOINT, (object) => {
    const decision = headToSign(swap, object?.bytes ?? null);
    isSuperseded = decision === "larger";
    if (typeof decision === "string") return null;
    const retiringKeys = {
      logs: replacedKeysOf(keys, "log", signAt),
      witnesses: replacedKeysOf(keys, "witness", signAt),
    };
    const otherSignatures = cosignatures?.text === bodyOf(decision) ? cosignatures.lines : [];
    return signCheckpoint(decision, keys.log, keys.witness, signAt, retiringKeys, otherSignatures);
  });
  return !isSuperseded;
}

/** Collects other witnesses' cosignatures of the checkpoint to be published; null when nothing is to be published. */
async function collectCosignatures(witnesses: Witnesses, publicStore: Store, swap: CheckpointSwap) {
  const stored = await readCheckpoint(publicStore, ownTrust(swap.keys));
  const decision = headToSign(swap, stored?.bytes ?? null);
  if (typeof decision === "string") return null;
  const text = bodyOf(decision);
  // A witness may know only the log's older key, so keys that are being retired sign too.
  const lines = [swap.keys.log, ...replacedKeysOf(swap.keys, "log", swap.signAt)].map((key) =>
    signatureLine(key, ED25519, key.sign(Buffer.from(text))),
  );
  const note = Buffer.from(`${text}\n${lines.join("")}`);
  return { text, lines: await witnesses.collect({ note, head: decision, publicStore }) };
}

const toWholeSecond = (time: Date): Date => new Date(Math.floor(time.getTime() / 1000) * 1000);
