import { canonicalBytes, sha256 } from "../../infra/canonical.ts";

/** Crockford's base32, upper case: no I, L, O, U. */
const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

const CODES = Buffer.from(ALPHABET, "latin1");
/** Characters of an id. */
const CHARS = 26;
const written = Buffer.alloc(CHARS);

/**
 * First 130 bits of a digest, high bit first, as 26 Crockford characters. The text is made in one piece: V8 keeps a
 * text that is joined character by character as a chain of pieces, half a kilobyte for these 26 characters.
 */
export function crockford130(digest: Uint8Array): string {
  let length = 0;
  let bits = 0;
  let held = 0;
  for (const byte of digest) {
    held = (held << 8) | byte;
    bits += 8;
    while (bits >= 5 && length < CHARS) {
      bits -= 5;
      written[length++] = CODES[(held >>> bits) & 31]!;
    }
    held &= (1 << bits) - 1;
    if (length === CHARS) break;
  }
  return written.toString("latin1", 0, length);
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
 * Notice id. Every attempt and every process gets one id for one notice, since a card's signature is determined by its
 * bytes.
 */
export const noticeId = (watcher: string, cardSignature: string): string =>
  `ntc_${idOf(["notice", watcher, cardSignature])}`;

const SHAPE = /^(?:cap|rec|arc|wat|ntc)_[0-9A-HJKMNP-TV-Z]{26}$/;
/** Does this text have the form of an id with this prefix? Whether the record has the id is another question. */
export const isId = (prefix: "cap" | "rec" | "arc" | "wat" | "ntc", text: string): boolean =>
  text.startsWith(`${prefix}_`) && SHAPE.test(text);

/** First 6 bits of sha256(key): one of 64 buckets, which never changes. */
export const bucketOf = (key: string): number => sha256(key)[0]! >> 2;

/** partition = bucket >> (6 - log2 P), P one of 1, 2, 4 .. 64. */
export function partitionOfBucket(bucket: number, partitions: number): number {
  const log2 = Math.log2(partitions);
  if (!Number.isInteger(log2) || partitions < 1 || partitions > 64) {
    throw new RangeError(`partitions must be 1, 2, 4 .. 64, not ${partitions}`);
  }
  return bucket >> (6 - log2);
}

/** Partition of the log for a key's records. @throws RangeError */
export const partitionOf = (key: string, partitions: number): number => partitionOfBucket(bucketOf(key), partitions);
