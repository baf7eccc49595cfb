import { canonicalBytes, sha256 } from "../../infra/canonical.ts";

/** Crockford's base32, upper case: no I, L, O, U. */
const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

const CODES = Buffer.from(ALPHABET, "latin1");
/** Characters of an id. */
const CHARS = 26;
const idBytes = Buffer.alloc(CHARS);

/**
 * First 130 bits of a digest, high bit first, as 26 Crockford characters. The text is decoded from a buffer in one
 * step: V8 keeps a string that was joined character by character as a chain of half a kilobyte.
 */
export function crockford130(digest: Uint8Array): string {
  let length = 0;
  let bits = 0;
  let pendingBits = 0;
  for (const byte of digest) {
    pendingBits = (pendingBits << 8) | byte;
    bits += 8;
    while (bits >= 5 && length < CHARS) {
      bits -= 5;
      idBytes[length++] = CODES[(pendingBits >>> bits) & 31]!;
    }
    pendingBits &= (1 << bits) - 1;
    if (length === CHARS) break;
  }
  return idBytes.toString("latin1", 0, length);
}

/** The id of a list of texts: sha256 over the RFC 8785 bytes of the array (records.md). All ids are made with it. */
export function idOf(parts: readonly string[]): string {
  return crockford130(sha256(canonicalBytes([...parts])));
}

/** Capability id. `url` must be normalised (url.ts); `tool` is the MCP tool's name or "". */
export const capId = (method: string, url: string, tool = ""): string => `cap_${idOf(["1", method, url, tool])}`;

/** Event id of an envelope, known before the call. records.md lists the `slot` of each type; `attempt` begins at 0. */
export const recordId = (type: string, key: string, slot: string, attempt = 0): string =>
  `rec_${idOf([type, key, slot, String(attempt)])}`;

/** Archive manifest id over subject, day (YYYY-MM-DD) and sha256 of the unpacked file. */
export const archiveId = (subject: string, day: string, contentHash: string): string =>
  `arc_${idOf([subject, day, contentHash])}`;

/** Slot of a probe or a paid call: block number and planned minute. */
export const plannedSlot = (block: number, minute: number): string => `${block}/${minute}`;

/**
 * Notice id. Every attempt of every process computes the same id for a notice, since a card's bytes determine its
 * signature.
 */
export const noticeId = (watcher: string, cardSignature: string): string =>
  `ntc_${idOf(["notice", watcher, cardSignature])}`;

const ID_FORM = /^(?:cap|rec|arc|wat|ntc)_[0-9A-HJKMNP-TV-Z]{26}$/;
/** Does this text have the form of an id with this prefix? It does not look the id up. */
export const isId = (prefix: "cap" | "rec" | "arc" | "wat" | "ntc", text: string): boolean =>
  text.startsWith(`${prefix}_`) && ID_FORM.test(text);

/** Bucket of a key: the first 6 bits of sha256(key), 0 to 63. The buckets of the record never change. */
export const bucketOf = (key: string): number => sha256(key)[0]! >> 2;

/**
 * Partition of a bucket: bucket >> (6 - log2 P), where the number of partitions P is a power of two up to 64. @throws
 * RangeError
 */
export function partitionOfBucket(bucket: number, partitions: number): number {
  const log2 = Math.log2(partitions);
  if (!Number.isInteger(log2) || partitions < 1 || partitions > 64) {
    throw new RangeError(`partitions must be 1, 2, 4 .. 64, not ${partitions}`);
  }
  return bucket >> (6 - log2);
}

/** Partition of the log that a key's records go to. @throws RangeError */
export const partitionOf = (key: string, partitions: number): number => partitionOfBucket(bucketOf(key), partitions);
