import { Decompress } from "fzstd";
import { bytesOf, hex, sha256 } from "../client/bytes.ts";

/**
 * Reads an object of the public store by its key: from the service, or from a saved file. null: there is none.
 * @param maxBytes longest that is read @throws Error for a longer one, or when the service does not answer
 */
export type Get = (key: string, maxBytes: number) => Promise<Uint8Array | null>;

/** Called with the number of objects of a step that were read so far, and the number of all. */
export type Progress = (done: number, of: number, what: string) => void;

/** An object that is not what the record says, or not of its form. */
export class BadObject extends Error {}

/** Longest packed and unpacked evidence file that is read, bytes: a browser holds one at a time. */
const MAX_PACKED_BYTES = 16 * 1024 * 1024;
const MAX_UNPACKED_BYTES = 128 * 1024 * 1024;

/** Unpacks a zstd frame (RFC 8878). @throws BadObject for what is none, or is longer than {@link MAX_UNPACKED_BYTES} */
function unpack(key: string, packed: Uint8Array): Uint8Array {
  const parts: Uint8Array[] = [];
  let length = 0;
  const stream = new Decompress((part) => {
    length += part.length;
    if (length > MAX_UNPACKED_BYTES) throw new BadObject(`${key} unpacks to more than ${MAX_UNPACKED_BYTES} bytes`);
    parts.push(part);
  });
  try {
    stream.push(packed, true);
  } catch (error) {
    if (error instanceof BadObject) throw error;
    throw new BadObject(`${key} is no zstd frame: ${(error as Error).message}`);
  }
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/**
 * Returns the lines of one evidence file that hold a text. The file's key has the beginning of the hash of its unpacked
 * bytes (docs/evidence.md).
 * @returns null where there is no such file @throws BadObject
 */
export async function readEvidenceLines(get: Get, key: string, text: string): Promise<string[] | null> {
  const hashInKey = /^evidence\/\d{4}-\d\d-\d\d\/\d{1,2}\.([0-9a-f]{16})\.ndjson\.zst$/.exec(key)?.[1];
  if (hashInKey === undefined) throw new BadObject(`${JSON.stringify(key.slice(0, 120))} is no evidence file`);
  const packed = await get(key, MAX_PACKED_BYTES);
  if (!packed) return null;
  const bytes = unpack(key, packed);
  const hash = hex(await sha256(bytes));
  if (!hash.startsWith(hashInKey)) throw new BadObject(`${key} unpacks to bytes with the hash ${hash}`);
  return new TextDecoder()
    .decode(bytes)
    .split("\n")
    .filter((line) => line.includes(text));
}

/** Longest entry bundle: 256 leaves of at most 65,535 bytes, each behind its length. */
const MAX_BUNDLE_BYTES = 256 * 65_537;

/** The leaves of an entry bundle (c2sp.org/tlog-tiles, Log Entries). @returns null where there is none @throws BadObject */
export async function readBundleLeaves(get: Get, key: string): Promise<Uint8Array[] | null> {
  const bytes = await get(key, MAX_BUNDLE_BYTES);
  if (!bytes) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const leaves: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 2 <= bytes.length ? at + 2 + view.getUint16(at) : Number.POSITIVE_INFINITY;
    if (end > bytes.length) throw new BadObject(`${key} ends within a leaf`);
    leaves.push(bytes.subarray(at + 2, end));
    at = end;
  }
  return leaves;
}

/** The object in a JSON text. @throws BadObject */
export function objectOf(key: string, bytes: Uint8Array): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch {
    // Not JSON: refused below.
  }
  throw new BadObject(`${key} is no JSON object`);
}

/** Hash of a leaf, and of two subtrees (RFC 6962 section 2.1). */
export const leafHash = (leaf: Uint8Array | string): Promise<Uint8Array> =>
  sha256([0], typeof leaf === "string" ? bytesOf(leaf) : leaf);
export const nodeHash = (left: Uint8Array, right: Uint8Array): Promise<Uint8Array> => sha256([1], left, right);
