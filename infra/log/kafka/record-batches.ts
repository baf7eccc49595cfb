import { Failure } from "../../errors.ts";
import { BadFrame, unpackFrames } from "../../zstd.ts";
import { type LogRecord, MAX_VALUE_BYTES } from "../log.ts";

/**
 * Decodes Kafka's record batches (format 2, compressed with zstd or not at all) from the bytes that a broker stores.
 * The length field of a batch counts the bytes after that field. The checksum covers the bytes from the attributes
 * on. https://kafka.apache.org/documentation/#recordbatch
 */

/** Header of a record that carries the event id. */
export const EVENT_ID = "event_id";
const EVENT_ID_BYTES = Buffer.from(EVENT_ID);

/**
 * Largest number of bytes of the records of one batch after decompression. The writer puts at most 1.5 MB of values
 * into a batch (writer.ts), and a broker limits only the compressed size: 2 KB of zstd can hold 64 MiB of zeros.
 */
export const MAX_UNPACKED_BYTES = 16 * MAX_VALUE_BYTES;

/** Byte offsets of the fields of a batch. */
const LENGTH_AT = 8;
const MAGIC_AT = 16;
const CRC_AT = 17;
const ATTRIBUTES_AT = 21;
const FIRST_TIMESTAMP_AT = 27;
const MAX_TIMESTAMP_AT = 35;
const COUNT_AT = 57;
const RECORDS_AT = 61;

const MAGIC = 2;
const ZSTD = 4;
/** Masks of the attributes of a batch: its codec, the kind of its times, and whether it is an ordinary batch. */
const CODEC_BITS = 7;
const APPEND_TIME_BIT = 8;
const TRANSACTION_OR_CONTROL_BITS = 16 | 32;

/** Returns why `decodeBatches` does not support these batches; null if it does, or if they are damaged. */
export function whyUnsupported(bytes: Buffer): string | null {
  for (const batch of wholeBatches(bytes)) {
    if (batch[MAGIC_AT] !== MAGIC) return `record batches of format ${batch[MAGIC_AT]}`;
    const attributes = batch[ATTRIBUTES_AT + 1] ?? 0;
    const codec = attributes & CODEC_BITS;
    if (codec !== 0 && codec !== ZSTD) return `record batches of codec ${codec}`;
    if ((attributes & TRANSACTION_OR_CONTROL_BITS) !== 0) return "record batches of transactions";
  }
  return null;
}

/**
 * Decodes the records from the offset `from` on. A broker may cut off the last batch of its answer, but never the
 * first; a batch that is cut off is left out.
 * @throws Error for a wrong checksum, and for lengths and counts that do not fit; Failure `unreadable` if the
 * first batch from the offset on decompresses to more than MAX_UNPACKED_BYTES
 */
export function decodeBatches(topic: string, partition: number, bytes: Buffer, from: number): LogRecord[] {
  const records: LogRecord[] = [];
  const batches = [...wholeBatches(bytes)];
  for (const batch of batches) {
    try {
      addRecords(records, batch, topic, partition, from);
    } catch (error) {
      // The records before this batch are returned first. The next read begins at this batch and throws.
      if (error instanceof Failure && records.length > 0) break;
      throw error;
    }
  }
  if (batches.length === 0) throw new Error(`no whole record batch in ${bytes.length} bytes`);
  return records;
}

/** Yields the complete batches, until a length field is invalid or reaches past the end. */
function* wholeBatches(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at + MAGIC_AT < bytes.length; ) {
    const end = at + LENGTH_AT + 4 + bytes.readInt32BE(at + LENGTH_AT);
    if (end <= at + MAGIC_AT || end > bytes.length) return;
    yield bytes.subarray(at, end);
    at = end;
  }
}

function addRecords(records: LogRecord[], batch: Buffer, topic: string, partition: number, from: number): void {
  const firstOffset = Number(batch.readBigInt64BE(0));
  const damageError = (what: string) => new Error(`the record batch at offset ${firstOffset} is damaged: ${what}`);
  if (batch.length < RECORDS_AT) throw damageError(`${batch.length} bytes`);
  const [stored, computed] = [batch.readUInt32BE(CRC_AT), crc32c(batch, ATTRIBUTES_AT)];
  if (stored !== computed) throw damageError(`its checksum is ${computed}, not ${stored}`);
  const attributes = batch.readInt16BE(ATTRIBUTES_AT);
  const firstMs = Number(batch.readBigInt64BE(FIRST_TIMESTAMP_AT));
  const isAppendTime = (attributes & APPEND_TIME_BIT) !== 0;
  const appended = isAppendTime ? new Date(Number(batch.readBigInt64BE(MAX_TIMESTAMP_AT))) : null;
  const storedRecords = batch.subarray(RECORDS_AT);
  const isPacked = (attributes & CODEC_BITS) === ZSTD;
  const bytes = isPacked ? unpackRecords(storedRecords, `${topic}/${partition}`, firstOffset) : storedRecords;
  const fields = new FieldReader(bytes);
  for (let recordsLeft = batch.readInt32BE(COUNT_AT); recordsLeft > 0; recordsLeft--) {
    const end = fields.readVarint() + fields.position;
    fields.position++; // attributes of a record: none are defined
    const ms = firstMs + fields.readVarint();
    const offset = firstOffset + fields.readVarint();
    const keyAt = fields.skipBytes();
    const key = bytes.toString("utf8", keyAt, fields.position);
    const valueAt = fields.skipBytes();
    const value = bytes.subarray(valueAt, fields.position);
    const eventId = fields.readEventId();
    if (fields.position !== end)
      throw damageError(`the record at offset ${offset} ends at byte ${fields.position}, not ${end}`);
    if (offset < from) continue;
    records.push({ topic, partition, offset, eventId, key, value, appendedAt: appended ?? new Date(ms) });
  }
  if (fields.position !== bytes.length)
    throw damageError(`${bytes.length - fields.position} bytes behind its last record`);
}

function unpackRecords(packed: Buffer, name: string, firstOffset: number): Buffer {
  try {
    return unpackFrames(packed, MAX_UNPACKED_BYTES);
  } catch (error) {
    if (!(error instanceof BadFrame)) throw error;
    throw new Failure("unreadable", `log ${name}: the record batch at offset ${firstOffset} ${error.message}`);
  }
}

/** Reads the fields of records, one after the other. */
class FieldReader {
  position = 0;
  constructor(private readonly bytes: Buffer) {}

  /** Reads a number in zigzag encoding, with seven bits in each byte, the lowest first; exact up to 2^53. */
  readVarint(): number {
    let value = 0;
    for (let factor = 1; factor < 2 ** 70 && this.position < this.bytes.length; factor *= 128) {
      const byte = this.bytes[this.position++]!;
      value += (byte & 127) * factor;
      if (byte < 128) return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
    throw new Error(`a record batch has no number before byte ${this.position}`);
  }

  /** Reads a length (-1: null) and skips as many bytes. @returns the position of the first of these bytes */
  skipBytes(): number {
    const length = this.readVarint();
    const from = this.position;
    this.position += Math.max(0, length);
    if (length < -1 || this.position > this.bytes.length)
      throw new Error(`a record batch has no ${length} bytes at ${from}`);
    return from;
  }

  /** Reads the headers, and returns the value of `event_id`: "" without one; several are joined by commas, as in kafkajs. */
  readEventId(): string {
    let ids: string | undefined;
    for (let headersLeft = this.readVarint(); headersLeft > 0; headersLeft--) {
      const nameAt = this.skipBytes();
      const isId = EVENT_ID_BYTES.compare(this.bytes, nameAt, this.position) === 0;
      const from = this.skipBytes();
      if (!isId) continue;
      const text = this.bytes.toString("utf8", from, this.position);
      ids = ids === undefined ? text : `${ids},${text}`;
    }
    return ids ?? "";
  }
}

/**
 * Table of CRC-32C (Castagnoli; zlib's crc32 has another polynomial). Entry 256 k + n is the CRC of byte n followed
 * by k zero bytes.
 */
const CRC_TABLE = new Int32Array(4 * 256);
for (let n = 0; n < 256; n++) {
  let crc = n;
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  CRC_TABLE[n] = crc;
}
for (let n = 256; n < CRC_TABLE.length; n++)
  CRC_TABLE[n] = (CRC_TABLE[n - 256]! >>> 8) ^ CRC_TABLE[CRC_TABLE[n - 256]! & 255]!;

/** Returns the CRC-32C of the bytes from `from` on. It takes four bytes a step: 1.1 GB/s, against 0.5 with single bytes. */
export function crc32c(bytes: Buffer, from: number): number {
  let [crc, at] = [-1, from];
  for (const end = bytes.length - 3; at < end; at += 4) {
    crc ^= bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
    crc =
      CRC_TABLE[768 + (crc & 255)]! ^
      CRC_TABLE[512 + ((crc >>> 8) & 255)]! ^
      CRC_TABLE[256 + ((crc >>> 16) & 255)]! ^
      CRC_TABLE[crc >>> 24]!;
  }
  for (; at < bytes.length; at++) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ bytes[at]!) & 255]!;
  return ~crc >>> 0;
}
