import { createHash } from "node:crypto";
import { fromBase64url } from "../keys/jwk.ts";
import type { Keyring } from "../keys/keys.ts";
import { verifyBytes } from "../keys/verify.ts";
import { isLoopbackHost, parseUrl } from "../url.ts";
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
  /** Further signed lines. A reader ignores lines that it does not know. */
  extensions?: readonly string[];
}
/** A checkpoint whose signatures were verified, and its bytes. */
export interface Checkpoint extends TreeHead {
  /**
   * Time of the witness's cosignature; null when the reader trusts no witness. With a policy that has a quorum: the
   * time since which a quorum has cosigned.
   */
  cosignedAt: Date | null;
  bytes: Buffer;
}
/**
 * Keys that a reader trusts. When a witness is set, its cosignature is required; the cosignature's time shows how fresh
 * the checkpoint is.
 */
export interface CheckpointTrust {
  log: NoteKey;
  witness?: NoteKey;
  /** Further keys of the log and of its witness: during a rotation both the old and the new key are trusted. */
  logs?: readonly NoteKey[];
  witnesses?: readonly NoteKey[];
  /** Independent witnesses, and how many of them must have cosigned. */
  policy?: WitnessPolicy | undefined;
}

/**
 * Returns the origin of a log that is published at this address: the address without its scheme and trailing slashes.
 */
export const originOf = (baseUrl: string): string => baseUrl.replace(/^https?:\/\//, "").replace(/\/+$/, "");

/**
 * Returns the address that an origin probably stands for. An origin has no scheme; a service on this machine, such as
 * the demo, has no TLS.
 */
export const addressOfOrigin = (origin: string): string =>
  `${isLoopbackHost(parseUrl(`http://${origin}`)?.hostname ?? "") ? "http" : "https"}://${origin}`;

/** Returns the name of the key of the log's own witness. */
export const witnessName = (origin: string): string => `${origin}/witness`;

/**
 * Returns the keys of log and witness that a reader of our own log trusts at `now`: those in use, and those that retire
 * later.
 */
export function trustOf(origin: string, ring: Keyring, now: Date): CheckpointTrust {
  const validKeys = (purpose: "log" | "witness", name: string) => {
    const valid = ring.keys.filter(
      (one) => one.purpose === purpose && (!one.retired_at || new Date(one.retired_at) > now),
    );
    const [inUse, ...retiring] = valid.sort((a, b) => Number(!!a.retired_at) - Number(!!b.retired_at));
    const toNoteKey = ({ x }: { x: string }) => ({ name, publicKey: fromBase64url(x)! });
    return { inUse: toNoteKey(inUse!), retiring: retiring.map(toNoteKey) };
  };
  const [log, witness] = [validKeys("log", origin), validKeys("witness", witnessName(origin))];
  return { log: log.inUse, logs: log.retiring, witness: witness.inUse, witnesses: witness.retiring };
}

/** Returns the id of the log that feed cursors contain: the first 16 hex digits of sha256(origin). */
export const logId = (origin: string): string => createHash("sha256").update(origin).digest("hex").slice(0, 16);

/** Returns the text of a checkpoint, which the log and witnesses sign. */
export const bodyOf = ({ origin, size, root, extensions = [] }: TreeHead): string =>
  [origin, size, root.toString("base64"), ...extensions].map((line) => `${line}\n`).join("");

/** Keys that sign in addition to those in use: they were replaced, and sign until readers know the new keys. */
export interface RetiringSigners {
  logs: readonly NoteSigner[];
  witnesses: readonly NoteSigner[];
}

/**
 * Creates the checkpoint that is published, signed by the log and cosigned by its witness at `at` (in whole seconds).
 * @param others cosignature lines of independent witnesses
 * @throws BadNote when the name of a log key is not the origin
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
  const misnamedKey = logs.find(({ name }) => name !== head.origin);
  if (misnamedKey) throw new BadNote(`the log key is named ${misnamedKey.name}, the origin is ${head.origin}`);
  const text = bodyOf(head);
  const lines = [
    ...logs.map((key) => signatureLine(key, ED25519, key.sign(Buffer.from(text)))),
    ...[witness, ...retiring.witnesses].map((key) => cosignatureLine(text, key, at)),
    ...others,
  ];
  return Buffer.from(`${text}\n${lines.join("")}`);
}

/** Parses origin, size, root and further lines of a note's text; verifies nothing. @throws BadNote */
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
 * Parses and verifies a checkpoint. Signature lines of keys outside `trust` are ignored. At least one line of the log
 * is required and, if a witness is trusted, one of the witness; every line of a trusted key must verify.
 * @param now the verifier's clock; when absent, no time is checked, as when a publisher reads its own checkpoint
 * @throws BadNote when the origin is another log's, the signature of the log or of the trusted witness is missing or
 * wrong, or a cosignature is more than MAX_SKEW_MS ahead of `now`; Unwitnessed when the policy is not met
 */
export function openCheckpoint(bytes: Uint8Array, trust: CheckpointTrust, now?: Date): Checkpoint {
  const note = parseNote(bytes);
  const head = parseBody(note.text);
  if (head.origin !== trust.log.name) throw new BadNote(`origin is ${head.origin}, not ${trust.log.name}`);
  const logSignatures = logSignaturesOf(note, [trust.log, ...(trust.logs ?? [])]);
  if (logSignatures.length === 0) throw new BadNote(`not signed by ${trust.log.name}`);
  verifySignatures(note, logSignatures);
  const ownCosignedAt = newestCosignatureTime(note, trust, now);
  return { ...head, cosignedAt: quorumTime(note, head.origin, trust, now) ?? ownCosignedAt, bytes: Buffer.from(bytes) };
}

/**
 * Checks the note against the policy. @returns the time since which its quorum has cosigned, or null without policy
 * @throws Unwitnessed when none of the policy's logs signed, or its quorum did not cosign; BadNote
 */
function quorumTime(note: Note, origin: string, { policy }: CheckpointTrust, now: Date | undefined): Date | null {
  if (!policy) return null;
  const logSignatures = logSignaturesOf(
    note,
    policy.logs.filter(({ name }) => name === origin),
  );
  if (policy.logs.length > 0 && logSignatures.length === 0)
    throw new Unwitnessed(`no log of the policy signed for ${origin}`);
  verifySignatures(note, logSignatures);
  return witnessedAt(note, policy, now);
}

function verifySignatures(note: Note, logSignatures: readonly { key: NoteKey; signature: Buffer }[]): void {
  for (const { key, signature } of logSignatures) {
    if (!verifyBytes(key.publicKey, Buffer.from(note.text), signature)) {
      throw new BadNote(`the signature of ${key.name} does not hold`);
    }
  }
}

/** Returns the log signatures in the note that were made with these keys. */
const logSignaturesOf = (note: Note, keys: readonly NoteKey[]): { key: NoteKey; signature: Buffer }[] =>
  keys.flatMap((key) => {
    const signature = lineOf(note, key, ED25519);
    return signature ? [{ key, signature }] : [];
  });

/**
 * Returns the time of the newest cosignature by the keys of the trusted witness; null when no witness is trusted.
 * @throws BadNote when the witness did not cosign
 */
function newestCosignatureTime(
  note: Note,
  { witness, witnesses }: CheckpointTrust,
  now: Date | undefined,
): Date | null {
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
