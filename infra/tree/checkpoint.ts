import { createHash } from "node:crypto";
import { fromBase64url } from "../keys/jwk.ts";
import type { Keyring } from "../keys/keys.ts";
import { verifyBytes } from "../keys/verify.ts";
import { cosignatureLine, cosignatureTime, MAX_SKEW_MS } from "./cosignature.ts";
import { HASH_BYTES } from "./hash.ts";
import {
  BadNote,
  ED25519,
  lineOf,
  type Note,
  type NoteKey,
  type NoteSigner,
  parseNote,
  signatureLine,
} from "./note.ts";
import { Unwitnessed, type WitnessPolicy, witnessedAt } from "./policy.ts";

/** A tree head: the first `size` leaves of the log named `origin` have this root (c2sp.org/tlog-checkpoint). */
export interface TreeHead {
  origin: string;
  size: number;
  root: Buffer;
  /** Further signed lines; a reader ignores those that it does not know. */
  extensions?: readonly string[];
}
/** A checkpoint whose signatures were verified, and its bytes. */
export interface Checkpoint extends TreeHead {
  /**
   * Time of the witness's cosignature, or null when the reader trusts no witness. With a policy that has a quorum, the time
   * since which the quorum has cosigned.
   */
  cosignedAt: Date | null;
  bytes: Buffer;
}
/** Keys that a reader trusts. With a witness, its cosignature is required; its time shows how fresh the checkpoint is. */
export interface CheckpointTrust {
  log: NoteKey;
  witness?: NoteKey;
  /** Further keys of this log and this witness: during a rotation the old and the new key are trusted. */
  logs?: readonly NoteKey[];
  witnesses?: readonly NoteKey[];
  /** Witnesses that are not the log's own, and how many of them must have cosigned. */
  policy?: WitnessPolicy | undefined;
}

/** Origin of a log that is published at this address: the address without its scheme. */
export const originOf = (baseUrl: string): string => baseUrl.replace(/^https?:\/\//, "").replace(/\/+$/, "");

/** Name of the witness's key beside a log's origin. */
export const witnessName = (origin: string): string => `${origin}/witness`;

/** Keys that a reader of our own log trusts at `now`: those in use of log and witness, and those that retire later. */
export function trustOf(origin: string, ring: Keyring, now: Date): CheckpointTrust {
  const believed = (purpose: "log" | "witness", name: string) => {
    const valid = ring.keys.filter(
      (one) => one.purpose === purpose && (!one.retired_at || new Date(one.retired_at) > now),
    );
    const [inUse, ...retiring] = valid.sort((a, b) => Number(!!a.retired_at) - Number(!!b.retired_at));
    const named = ({ x }: { x: string }) => ({ name, publicKey: fromBase64url(x)! });
    return { inUse: named(inUse!), retiring: retiring.map(named) };
  };
  const [log, witness] = [believed("log", origin), believed("witness", witnessName(origin))];
  return { log: log.inUse, logs: log.retiring, witness: witness.inUse, witnesses: witness.retiring };
}

/** First 16 hex of sha256(origin): the log's part of a feed cursor. */
export const logId = (origin: string): string => createHash("sha256").update(origin).digest("hex").slice(0, 16);

/** Text of a checkpoint, which log and witnesses sign. */
export const bodyOf = ({ origin, size, root, extensions = [] }: TreeHead): string =>
  [origin, size, root.toString("base64"), ...extensions].map((line) => `${line}\n`).join("");

/** Keys that sign beside those in use: they are being retired, and sign until readers know the new keys. */
export interface RetiringSigners {
  logs: readonly NoteSigner[];
  witnesses: readonly NoteSigner[];
}

/**
 * Makes the checkpoint that is published: signed by the log, cosigned by the witness at `at` (whole seconds).
 * @param others cosignature lines of witnesses that are not ours
 * @throws BadNote when a log key has another name than the origin
 */
export function signCheckpoint(
  head: TreeHead,
  log: NoteSigner,
  witness: NoteSigner,
  at: Date,
  retiring: RetiringSigners = { logs: [], witnesses: [] },
  others: readonly string[] = [],
): Buffer {
  const logs = [log, ...retiring.logs];
  const other = logs.find(({ name }) => name !== head.origin);
  if (other) throw new BadNote(`the log key is named ${other.name}, the origin is ${head.origin}`);
  const text = bodyOf(head);
  const lines = [
    ...logs.map((key) => signatureLine(key, ED25519, key.sign(Buffer.from(text)))),
    ...[witness, ...retiring.witnesses].map((key) => cosignatureLine(text, key, at)),
    ...others,
  ];
  return Buffer.from(`${text}\n${lines.join("")}`);
}

/** Origin, size, root and further lines of a note's text, unverified. @throws BadNote */
export function parseBody(text: string): TreeHead {
  const [origin, sizeText, rootText, ...extensions] = text.slice(0, -1).split("\n");
  const root = Buffer.from(rootText ?? "", "base64");
  const size = Number(sizeText);
  if (!origin) throw new BadNote("a checkpoint without origin");
  if (!/^(0|[1-9]\d{0,15})$/.test(sizeText ?? "") || !Number.isSafeInteger(size)) {
    throw new BadNote(`not a tree size: ${JSON.stringify(sizeText?.slice(0, 40))}`);
  }
  if (root.length !== HASH_BYTES || root.toString("base64") !== rootText) throw new BadNote("not a root hash");
  if (extensions.includes("")) throw new BadNote("an empty extension line");
  return { origin, size, root, extensions };
}

/**
 * Reads and verifies a checkpoint. Signature lines of keys outside `trust` are ignored. There must be at least one line of
 * the log and, if trusted, one of the witness; every line of a trusted key must verify.
 * @param now the verifier's clock; without it no time is checked, as when a log reads a checkpoint of its own
 * @throws BadNote when the origin is another log's, the log's signature or the trusted witness's is missing or wrong,
 * or a cosignature lies more than MAX_SKEW_MS ahead of `now`; Unwitnessed when the policy is not met.
 */
export function openCheckpoint(bytes: Uint8Array, trust: CheckpointTrust, now?: Date): Checkpoint {
  const note = parseNote(bytes);
  const head = parseBody(note.text);
  if (head.origin !== trust.log.name) throw new BadNote(`origin is ${head.origin}, not ${trust.log.name}`);
  const signed = linesOf(note, [trust.log, ...(trust.logs ?? [])]);
  if (signed.length === 0) throw new BadNote(`not signed by ${trust.log.name}`);
  refuseBad(note, signed);
  const own = cosignedAt(note, trust, now);
  return { ...head, cosignedAt: byPolicy(note, head.origin, trust, now) ?? own, bytes: Buffer.from(bytes) };
}

/** @throws Unwitnessed when none of the policy's logs signed, or its quorum did not cosign; BadNote */
function byPolicy(note: Note, origin: string, { policy }: CheckpointTrust, now: Date | undefined): Date | null {
  if (!policy) return null;
  const signed = linesOf(
    note,
    policy.logs.filter(({ name }) => name === origin),
  );
  if (policy.logs.length > 0 && signed.length === 0) throw new Unwitnessed(`no log of the policy signed for ${origin}`);
  refuseBad(note, signed);
  return witnessedAt(note, policy, now);
}

function refuseBad(note: Note, signed: readonly { key: NoteKey; line: Buffer }[]): void {
  for (const { key, line } of signed) {
    if (!verifyBytes(key.publicKey, Buffer.from(note.text), line)) {
      throw new BadNote(`the signature of ${key.name} does not hold`);
    }
  }
}

/** The log's signature lines of these keys. */
const linesOf = (note: Note, keys: readonly NoteKey[]): { key: NoteKey; line: Buffer }[] =>
  keys.flatMap((key) => {
    const line = lineOf(note, key, ED25519);
    return line ? [{ key, line }] : [];
  });

/** Time of the newest cosignature; null when no witness is trusted. @throws BadNote when the witness did not cosign */
function cosignedAt(note: Note, { witness, witnesses }: CheckpointTrust, now: Date | undefined): Date | null {
  if (!witness) return null;
  const times = [witness, ...(witnesses ?? [])]
    .map((key) => cosignatureTime(note, key))
    .filter((at): at is number => at !== null);
  if (times.length === 0) throw new BadNote(`not cosigned by ${witness.name}`);
  const newest = Math.max(...times);
  if (now && newest > now.getTime() + MAX_SKEW_MS) {
    throw new BadNote(
      `cosigned by ${witness.name} at ${new Date(newest).toISOString()}, which our clock, at ${now.toISOString()}, has not reached yet`,
    );
  }
  return new Date(newest);
}
