import { createHash } from "node:crypto";
import { fromBase64url } from "../keys/jwk.ts";
import type { Keyring } from "../keys/keys.ts";
import { verifyBytes } from "../keys/verify.ts";
import { HASH_BYTES } from "./hash.ts";
import {
  BadNote,
  COSIGNATURE,
  ED25519,
  lineOf,
  type Note,
  type NoteKey,
  type NoteSigner,
  parseNote,
  type SignatureType,
  signatureLine,
} from "./note.ts";

/** A tree head: the first `size` leaves of the log named `origin` have this root (c2sp.org/tlog-checkpoint). */
export interface TreeHead {
  origin: string;
  size: number;
  root: Buffer;
  /** Further lines, signed with the rest; a reader that does not know one passes over it. */
  extensions?: readonly string[];
}
/** What a reader has proven of a checkpoint, and its own bytes. */
export interface Checkpoint extends TreeHead {
  /** Moment of the witness's cosignature, or null when no witness is trusted. */
  cosignedAt: Date | null;
  bytes: Buffer;
}
/** Whom a reader believes. With a witness its cosignature is required: it says how fresh the checkpoint is. */
export interface CheckpointTrust {
  log: NoteKey;
  witness?: NoteKey;
  /** Further keys of the same log and the same witness: while keys are rotated, the old and the new one are believed. */
  logs?: readonly NoteKey[];
  witnesses?: readonly NoteKey[];
}

/**
 * How far a cosignature may lie ahead of the clock of whoever verifies it. It stands for freshness, so one of the
 * future would make a frozen log look fresh for as long as it lies ahead. Five minutes is what machines without good
 * time differ by (Kerberos allows as much), and half of the ten in which a log promises a new checkpoint.
 */
export const MAX_SKEW_MS = 5 * 60_000;

/** Origin of a log that is published at this address: the address without its scheme. */
export const originOf = (baseUrl: string): string => baseUrl.replace(/^https?:\/\//, "").replace(/\/+$/, "");

/** Name of the witness's key beside a log's origin. */
export const witnessName = (origin: string): string => `${origin}/witness`;

/** Whom a reader of our own log believes at `now`: log and witness by their keys in use, and those not retired yet. */
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

const bodyOf = ({ origin, size, root, extensions = [] }: TreeHead): string =>
  [origin, size, root.toString("base64"), ...extensions].map((line) => `${line}\n`).join("");

/** Message of a timestamped cosignature (c2sp.org/tlog-cosignature): two lines before the note's text. */
const cosigned = (text: string, seconds: number | bigint): Buffer =>
  Buffer.from(`cosignature/v1\ntime ${seconds}\n${text}`);

/** Who signs beside the keys in use: keys that are being retired, until readers know the new ones. */
export interface RetiringSigners {
  logs: readonly NoteSigner[];
  witnesses: readonly NoteSigner[];
}

/**
 * The checkpoint as it is published: signed by the log, cosigned by the witness as of `at` (whole seconds).
 * @throws BadNote when a log key has another name than the origin
 */
export function signCheckpoint(
  head: TreeHead,
  log: NoteSigner,
  witness: NoteSigner,
  at: Date,
  retiring: RetiringSigners = { logs: [], witnesses: [] },
): Buffer {
  const logs = [log, ...retiring.logs];
  const other = logs.find(({ name }) => name !== head.origin);
  if (other) throw new BadNote(`the log key is named ${other.name}, the origin is ${head.origin}`);
  const text = bodyOf(head);
  const seconds = Math.floor(at.getTime() / 1000);
  const stamp = Buffer.alloc(8);
  stamp.writeBigUInt64BE(BigInt(seconds));
  const lines = [
    ...logs.map((key) => signatureLine(key, ED25519, key.sign(Buffer.from(text)))),
    ...[witness, ...retiring.witnesses].map((key) =>
      signatureLine(key, COSIGNATURE, Buffer.concat([stamp, key.sign(cosigned(text, seconds))])),
    ),
  ];
  return Buffer.from(`${text}\n${lines.join("")}`);
}

/** Origin, size, root and further lines of a note's text. @throws BadNote */
function parseBody(text: string): TreeHead {
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
 * Read and verify a checkpoint. Lines of keys we do not know are ignored; of the known ones at least one a role must be
 * there, and each that is there must hold.
 * @param now the verifier's clock; without it no time is checked, as a log reads what it wrote by its own clock
 * @throws BadNote when the origin is another log's, the log's signature or the trusted witness's is missing or wrong,
 * or a cosignature lies more than MAX_SKEW_MS ahead of `now`.
 */
export function openCheckpoint(bytes: Uint8Array, trust: CheckpointTrust, now?: Date): Checkpoint {
  const note = parseNote(bytes);
  const head = parseBody(note.text);
  if (head.origin !== trust.log.name) throw new BadNote(`origin is ${head.origin}, not ${trust.log.name}`);
  const signed = linesOf(note, [trust.log, ...(trust.logs ?? [])], ED25519);
  if (signed.length === 0) throw new BadNote(`not signed by ${trust.log.name}`);
  for (const { key, line } of signed) {
    if (!verifyBytes(key.publicKey, Buffer.from(note.text), line)) {
      throw new BadNote(`the signature of ${key.name} does not hold`);
    }
  }
  return { ...head, cosignedAt: cosignedAt(note, trust, now), bytes: Buffer.from(bytes) };
}

/** The lines of these keys that the note has. */
const linesOf = (note: Note, keys: readonly NoteKey[], type: SignatureType): { key: NoteKey; line: Buffer }[] =>
  keys.flatMap((key) => {
    const line = lineOf(note, key, type);
    return line ? [{ key, line }] : [];
  });

/** Newest cosignature of a trusted witness; null when none is trusted. @throws BadNote when there is none of it */
function cosignedAt(note: Note, { witness, witnesses }: CheckpointTrust, now: Date | undefined): Date | null {
  if (!witness) return null;
  const lines = linesOf(note, [witness, ...(witnesses ?? [])], COSIGNATURE);
  if (lines.length === 0) throw new BadNote(`not cosigned by ${witness.name}`);
  const times = lines.map(({ key, line }) => cosignatureTime(note.text, line, key));
  const newest = Math.max(...times);
  if (now && newest > now.getTime() + MAX_SKEW_MS) {
    throw new BadNote(
      `cosigned by ${witness.name} at ${new Date(newest).toISOString()}, which our clock, at ${now.toISOString()}, has not reached yet`,
    );
  }
  return new Date(newest);
}

/** Eight bytes of seconds go further than a Date does. */
const MAX_DATE_MS = 8.64e15;

/** ms since 1970. */
function cosignatureTime(text: string, line: Buffer, witness: NoteKey): number {
  if (line.length !== 72) throw new BadNote(`not cosigned by ${witness.name}`);
  const seconds = line.readBigUInt64BE(0);
  if (!verifyBytes(witness.publicKey, cosigned(text, seconds), line.subarray(8))) {
    throw new BadNote(`the cosignature of ${witness.name} does not hold`);
  }
  const ms = Number(seconds) * 1000;
  if (ms > MAX_DATE_MS) throw new BadNote(`cosigned by ${witness.name} at second ${seconds}, which is no date`);
  return ms;
}
