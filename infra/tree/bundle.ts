import { promisify } from "node:util";
import { gunzip, gzip } from "node:zlib";
import { Failure } from "../errors.ts";
import { TILE_WIDTH } from "./path.ts";

/** Longest entry (bytes of one leaf) whose length fits into the uint16 before it. */
const MAX_ENTRY_BYTES = 65_535;
/** Largest full bundle when unpacked, bytes. A reader stops unpacking an untrusted gzip there. */
export const MAX_BUNDLE_BYTES = TILE_WIDTH * (MAX_ENTRY_BYTES + 2);

/** Thrown for an entry bundle (at most 256 consecutive leaves, packed with gzip) that cannot be decoded. */
export class BadBundle extends Failure {
  constructor(reason: string) {
    super("failed", `entry bundle: ${reason}`);
  }
}

/**
 * Encodes entries, each after its length as big-endian uint16 (C2SP tlog-tiles, Log entries). @throws BadBundle for an
 * entry that is too long
 */
export function encodeEntries(entries: readonly Uint8Array[]): Buffer {
  const parts: Uint8Array[] = [];
  for (const entry of entries) {
    if (entry.length > MAX_ENTRY_BYTES) throw new BadBundle(`an entry of ${entry.length} bytes`);
    const length = Buffer.allocUnsafe(2);
    length.writeUInt16BE(entry.length);
    parts.push(length, entry);
  }
  return Buffer.concat(parts);
}

/** Decodes the entries of an unpacked bundle. The entries share its memory. @throws BadBundle when bytes are missing */
export function decodeEntries(bytes: Uint8Array): Buffer[] {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const entries: Buffer[] = [];
  for (let offset = 0; offset < buffer.length; ) {
    if (offset + 2 > buffer.length) throw new BadBundle("cut inside a length");
    const end = offset + 2 + buffer.readUInt16BE(offset);
    if (end > buffer.length) throw new BadBundle("cut inside an entry");
    entries.push(buffer.subarray(offset + 2, end));
    offset = end;
  }
  return entries;
}

/**
 * gzip level of a bundle. A partial bundle is replaced within minutes on a busy log, so it is packed fast. A full
 * bundle is permanent, but every mirror packs it again: with level 3 it is a sixth larger than with level 6, and takes
 * half of the time.
 */
const bundleLevel = (entries: number): number => (entries < TILE_WIDTH ? 1 : 3);

const gzipAsync = promisify(gzip);
const gunzipAsync = promisify(gunzip);

/**
 * Packs a bundle with gzip on the thread pool, for storing. The HTTP layer serves it with `Content-Encoding: gzip`
 * without negotiation, as C2SP tlog-tiles allows. Packed bytes may differ between versions of zlib; unpacked bytes do
 * not.
 */
export const packBundle = (entries: readonly Uint8Array[]): Promise<Buffer> =>
  gzipAsync(encodeEntries(entries), { level: bundleLevel(entries.length) });

/** Unpacks a bundle. @throws BadBundle when it is not gzip, is too long, or does not hold exactly `count` entries. */
export async function unpackBundle(packed: Uint8Array, count: number): Promise<Buffer[]> {
  let bytes: Buffer;
  try {
    bytes = await gunzipAsync(packed, { maxOutputLength: MAX_BUNDLE_BYTES });
  } catch (error) {
    throw new BadBundle((error as Error).message);
  }
  const entries = decodeEntries(bytes);
  if (entries.length !== count) throw new BadBundle(`${entries.length} entries instead of ${count}`);
  return entries;
}
