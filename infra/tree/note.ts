import { createHash } from "node:crypto";
import { Failure } from "../errors.ts";

/** Type of a signature line by which Ed25519 signs a note (c2sp.org/signed-note). */
export const ED25519 = 0x01;
/** Type of a signature line that is a timestamped cosignature with Ed25519 (c2sp.org/tlog-cosignature). */
export const COSIGNATURE = 0x04;
/** Type of cosignatures with ML-DSA-44 (c2sp.org/tlog-cosignature), which are ignored like lines of unknown keys. */
const ML_DSA = 0x06;
export type SignatureType = typeof ED25519 | typeof COSIGNATURE;

/** A name and key for verifying signature lines. `publicKey` is the raw 32 bytes of RFC 8032. */
export interface NoteKey {
  name: string;
  publicKey: Uint8Array;
}
/** A key for signing notes; `sign` returns the 64 bytes of an Ed25519 signature. */
export interface NoteSigner extends NoteKey {
  sign(message: Uint8Array): Uint8Array;
}
/** One signature of a note: the key's name and id (8 hex digits), and the bytes after the id. */
export interface SignatureLine {
  name: string;
  id: string;
  signature: Buffer;
}
export interface Note {
  /** The signed bytes, with the last newline. */
  text: string;
  signatures: SignatureLine[];
}

/** Thrown for bytes that are not a signed note, or for a note that no known key signed. */
export class BadNote extends Failure {
  constructor(reason: string) {
    super("failed", `note: ${reason}`);
  }
}

/** Longest note that is read, bytes. */
export const MAX_NOTE_BYTES = 64 * 1024;
/** Largest number of signature lines that are read; the specification requires at least 16. */
const MAX_SIGNATURES = 64;
const KEY_NAME = /^[^\s\p{Z}+]+$/u;
// biome-ignore lint/suspicious/noControlCharactersInRegex: a note with one is no note.
const CONTROL_CHARACTER = /[\x00-\x09\x0b-\x1f]/;

/** Returns the key id in hex: the first four bytes of sha256(name, newline, type, key). */
const keyId = ({ name, publicKey }: NoteKey, type: SignatureType): string =>
  createHash("sha256").update(`${name}\n`).update(Buffer.of(type)).update(publicKey).digest("hex").slice(0, 8);

/** Formats a verifier key as text: `name+id+base64(type, key)`. */
export const formatVkey = (key: NoteKey, type: SignatureType): string =>
  `${key.name}+${keyId(key, type)}+${Buffer.concat([Buffer.of(type), key.publicKey]).toString("base64")}`;

/** Parses a verifier key. @throws BadNote unless it is an Ed25519 key of this type with the right id. */
export function parseVkey(text: string, type: SignatureType): NoteKey {
  const [name, id, material, ...rest] = text.split("+");
  // Standard base64 has `+` in its alphabet, so the key may have been split too.
  const bytes = Buffer.from([material ?? "", ...rest].join("+"), "base64");
  const key = { name: name ?? "", publicKey: bytes.subarray(1) };
  if (bytes[0] === ML_DSA && bytes.length > 33) {
    throw new BadNote(`an ML-DSA-44 key, which is not read here: ${JSON.stringify(key.name.slice(0, 120))}`);
  }
  if (!KEY_NAME.test(key.name) || bytes.length !== 33 || bytes[0] !== type || keyId(key, type) !== id) {
    throw new BadNote(`not a verifier key of type ${type}: ${JSON.stringify(text.slice(0, 120))}`);
  }
  return key;
}

/** Formats one signature line. */
export const signatureLine = (key: NoteKey, type: SignatureType, signature: Uint8Array): string =>
  `— ${key.name} ${Buffer.concat([Buffer.from(keyId(key, type), "hex"), signature]).toString("base64")}\n`;

/**
 * Splits a note into its text and its signature lines, without verifying the signatures. @throws BadNote with the
 * reason
 */
export function parseNote(bytes: Uint8Array): Note {
  if (bytes.length > MAX_NOTE_BYTES) throw new BadNote(`longer than ${MAX_NOTE_BYTES} bytes`);
  let noteText: string;
  try {
    noteText = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new BadNote("not UTF-8");
  }
  if (CONTROL_CHARACTER.test(noteText)) throw new BadNote("a control character");
  const blankLineAt = noteText.lastIndexOf("\n\n");
  if (blankLineAt < 0 || !noteText.endsWith("\n"))
    throw new BadNote("no blank line before signatures, or no newline at the end");
  const lines = noteText.slice(blankLineAt + 2, -1).split("\n");
  if (lines.length > MAX_SIGNATURES) throw new BadNote(`more than ${MAX_SIGNATURES} signatures`);
  return { text: noteText.slice(0, blankLineAt + 1), signatures: lines.map(parseLine) };
}

function parseLine(line: string): SignatureLine {
  const match = /^— (\S+) ([A-Za-z0-9+/]+={0,2})$/.exec(line);
  const bytes = Buffer.from(match?.[2] ?? "", "base64");
  // The unused bits of the last base64 character must be zero; otherwise one signature could be written as two texts.
  if (!match || !KEY_NAME.test(match[1]!) || bytes.length < 5 || bytes.toString("base64") !== match[2]) {
    throw new BadNote(`not a signature line: ${JSON.stringify(line.slice(0, 80))}`);
  }
  return { name: match[1]!, id: bytes.subarray(0, 4).toString("hex"), signature: bytes.subarray(4) };
}

/** Returns the signature of this key and type in the note, or undefined. */
export function lineOf(note: Note, key: NoteKey, type: SignatureType): Buffer | undefined {
  const id = keyId(key, type);
  return note.signatures.find((line) => line.name === key.name && line.id === id)?.signature;
}
