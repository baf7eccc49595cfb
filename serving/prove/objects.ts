import { Decompress } from "fzstd";
import { bytesOf, hex, sha256 } from "../client/bytes.ts";

/**
 * Reads an object of the service's public store by its key, from the service or from a saved file; null: there is none.
 * @param maxBytes longest object that is read from the service
 * @throws Error for a longer one, or when the service does not answer
 */
export type Get = (key: string, maxBytes: number) => Promise<Uint8Array | null>;

/** Called with the number of objects that a step has read so far, the number of all its objects, and their name. */
export type Progress = (done: number, total: number, what: string) => void;

/** Thrown for an object whose hash is not the expected one, or whose form is wrong. */
export class BadObject extends Error {}

/** Longest packed evidence file that is read, bytes. A browser holds one at a time. */
const MAX_PACKED_BYTES = 16 * 1024 * 1024;
/** Longest unpacked evidence file that is read, bytes. */
const MAX_UNPACKED_BYTES = 128 * 1024 * 1024;

/**
 * Unpacks a zstd frame (RFC 8878).
 * @throws BadObject for other bytes, or for a frame that unpacks to more than {@link MAX_UNPACKED_BYTES}
 */
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
  const unpacked = new Uint8Array(length);
  let offset = 0;
  for (const part of parts) {
    unpacked.set(part, offset);
    offset += part.length;
  }
  return unpacked;
}

/**
 * Returns the lines of one evidence file that contain a text. The file's key must contain the first 16 hex digits of
 * the SHA-256 of the unpacked file (docs/evidence.md).
 * @returns null when there is no such file
 * @throws BadObject
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

/**
 * Longest entry bundle (file of leaves of the log), bytes: 256 leaves of at most 65,535 bytes, each after two bytes
 * with its length.
 */
const MAX_BUNDLE_BYTES = 256 * 65_537;

/**
 * Returns the leaves of an entry bundle (c2sp.org/tlog-tiles, Log Entries); null when there is none.
 * @throws BadObject
 */
export async function readBundleLeaves(get: Get, key: string): Promise<Uint8Array[] | null> {
  const bytes = await get(key, MAX_BUNDLE_BYTES);
  if (!bytes) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const leaves: Uint8Array[] = [];
  for (let offset = 0; offset < bytes.length; ) {
    const end = offset + 2 <= bytes.length ? offset + 2 + view.getUint16(offset) : Number.POSITIVE_INFINITY;
    if (end > bytes.length) throw new BadObject(`${key} ends within a leaf`);
    leaves.push(bytes.subarray(offset + 2, end));
    offset = end;
  }
  return leaves;
}

/** Parses a JSON text that must be an object. @throws BadObject */
export function parseObject(key: string, bytes: Uint8Array): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch {
    // Not JSON: refused below.
  }
  throw new BadObject(`${key} is no JSON object`);
}

/** Returns the hash of a leaf (RFC 6962 section 2.1). */
export const leafHash = (leaf: Uint8Array | string): Promise<Uint8Array> =>
  sha256([0], typeof leaf === "string" ? bytesOf(leaf) : leaf);
/** Returns the hash of the subtree above two subtrees (RFC 6962 section 2.1). */
export const nodeHash = (left: Uint8Array, right: Uint8Array): Promise<Uint8Array> => sha256([1], left, right);
