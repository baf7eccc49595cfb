import { canonicalBytes, sha256 } from "../../infra/canonical.ts";

/** Crockford's base32, upper case: no I, L, O, U. */
const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

const ALPHABET_BYTES = Buffer.from(ALPHABET, "latin1");
/** Number of characters after an id's prefix. */
const ID_CHARS = 26;
const idBuffer = Buffer.alloc(ID_CHARS);

/**
 * Encodes the first 130 bits of a digest, high bit first, as 26 Crockford characters. The text is decoded from a
 * buffer in one step, since V8 stores a string that was joined character by character as a chain of pieces, which
 * takes half a kilobyte.
 */
export function crockford130(digest: Uint8Array): string {
  let length = 0;
  let pendingBitCount = 0;
  let pendingBits = 0;
  for (const byte of digest) {
    pendingBits = (pendingBits << 8) | byte;
    pendingBitCount += 8;
    while (pendingBitCount >= 5 && length < ID_CHARS) {
      pendingBitCount -= 5;
      idBuffer[length++] = ALPHABET_BYTES[(pendingBits >>> pendingBitCount) & 31]!;
    }
    pendingBits &= (1 << pendingBitCount) - 1;
    if (length === ID_CHARS) break;
  }
  return idBuffer.toString("latin1", 0, length);
}

/**
 * Computes the id of a list of texts: sha256 over the RFC 8785 bytes of the array (records.md). All ids are made with
 * this function.
 */
export function idOf(parts: readonly string[]): string {
  return crockford130(sha256(canonicalBytes([...parts])));
}

/**
 * Computes the id of a capability, that is, one priced endpoint. `url` must be normalised (url.ts); `tool` is the MCP
 * tool's name or "".
 */
export const capId = (method: string, url: string, tool = ""): string => `cap_${idOf(["1", method, url, tool])}`;

/**
 * Computes the event id of a record. The id does not depend on the record's content, so the id of a call's record is
 * known before the call. `slot`: what distinguishes records with one type and key, listed in records.md. `attempt`
 * begins at 0.
 */
export const recordId = (type: string, key: string, slot: string, attempt = 0): string =>
  `rec_${idOf([type, key, slot, String(attempt)])}`;

const PLANNED_CALLS: ReadonlySet<string> = new Set(["handshake", "mcp.probe", "paid.intent", "mcp.paid"]);

/**
 * Returns what must be equal in two records with one event id for the second to be a copy of the first, as in
 * sql/staging/stage (scope_of). The id of a planned call contains its planned time, so its day does not matter; the ids
 * of other records may be used again on another UTC day.
 * @param observedAt RFC 3339 UTC
 */
export const copyScopeOf = (type: string, observedAt: string): string =>
  PLANNED_CALLS.has(type) ? "" : observedAt.slice(0, 10);

/** Computes the id of an archive manifest from subject, day (YYYY-MM-DD) and sha256 of the unpacked file. */
export const archiveId = (subject: string, day: string, contentHash: string): string =>
  `arc_${idOf([subject, day, contentHash])}`;

/** Returns the slot of a probe or a paid call: block number and planned minute. */
export const plannedSlot = (block: number, minute: number): string => `${block}/${minute}`;

/**
 * Computes the id of a notice (a message to a watcher about a new card). Every attempt of every process computes the
 * same id for a notice, since the card's signature follows from the card's bytes.
 */
export const noticeId = (watcher: string, cardSignature: string): string =>
  `ntc_${idOf(["notice", watcher, cardSignature])}`;

const ID_FORM = /^(?:cap|rec|arc|wat|ntc)_[0-9A-HJKMNP-TV-Z]{26}$/;
/** Does this text have the form of an id with this prefix? It does not look the id up. */
export const isId = (prefix: "cap" | "rec" | "arc" | "wat" | "ntc", text: string): boolean =>
  text.startsWith(`${prefix}_`) && ID_FORM.test(text);

/**
 * Returns the bucket of a key: the first 6 bits of sha256(key), 0 to 63. A key's bucket never changes, while its
 * partition depends on the number of partitions.
 */
export const bucketOf = (key: string): number => sha256(key)[0]! >> 2;

/**
 * Returns the partition of a bucket: bucket >> (6 - log2 P), where the number of partitions P is a power of two up to
 * 64.
 * @throws RangeError
 */
export function partitionOfBucket(bucket: number, partitions: number): number {
  const log2 = Math.log2(partitions);
  if (!Number.isInteger(log2) || partitions < 1 || partitions > 64) {
    throw new RangeError(`partitions must be 1, 2, 4 .. 64, not ${partitions}`);
  }
  return bucket >> (6 - log2);
}

/**
 * Returns the partition of the log to which a key's records are appended.
 * @throws RangeError
 */
export const partitionOf = (key: string, partitions: number): number => partitionOfBucket(bucketOf(key), partitions);
