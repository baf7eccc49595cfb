import crc32C from "kafkajs/src/protocol/recordBatch/crc32C/crc32C.js";
import type { LogRecord, OpenedRecord } from "../log.ts";
import { compression } from "./codecs.ts";

/** Header that carries the event id. */
export const EVENT_ID = "event_id";
const EVENT_ID_BYTES = Buffer.from(EVENT_ID);

/** Places in a record batch (Kafka protocol, "Record Batch", magic 2) and flags of its attributes. */
const LENGTH_AT = 8;
const MAGIC_AT = 16;
const CRC_AT = 17;
const ATTRIBUTES_AT = 21;
const LAST_DELTA_AT = 23;
const FIRST_TIME_AT = 27;
const MAX_TIME_AT = 35;
const COUNT_AT = 57;
const RECORDS_AT = 61;
const CODEC = 0x07;
const APPEND_TIME = 0x08;
const CONTROL = 0x20;

/** Bytes that are no whole record batch of the newest form, or not those that were written. */
export class DamagedBatch extends Error {
  constructor(what: string) {
    super(`kafka: a record batch ${what}`);
    this.name = "DamagedBatch";
  }
}

/** A batch as it came, still compressed: the records [first, next) of its partition that were kept. */
export interface RawBatch {
  first: number;
  next: number;
  bytes: Buffer;
}

/**
 * The whole batches of what a fetch brought; its end may be cut off anywhere.
 * @throws DamagedBatch for batches of older forms, which brokers since Kafka 4 no longer have
 */
export function splitBatches(records: Buffer): RawBatch[] {
  const batches: RawBatch[] = [];
  for (let at = 0; at + RECORDS_AT <= records.length; ) {
    const end = at + LENGTH_AT + 4 + records.readInt32BE(at + LENGTH_AT);
    if (records[at + MAGIC_AT] !== 2) throw new DamagedBatch(`has the form ${records[at + MAGIC_AT]}`);
    if (end < at + RECORDS_AT) throw new DamagedBatch("is shorter than its head");
    if (end > records.length) break;
    const first = Number(records.readBigInt64BE(at));
    const next = first + records.readInt32BE(at + LAST_DELTA_AT) + 1;
    if (!Number.isSafeInteger(next) || first < 0 || next <= first) throw new DamagedBatch("has no offsets");
    batches.push({ first, next, bytes: records.subarray(at, end) });
    at = end;
  }
  return batches;
}

/**
 * Records of one batch, none for a control batch. As kafkajs reads them, except that bytes are held against their
 * checksum and every length against what is there.
 * @throws DamagedBatch; what the codec throws
 */
export const decodeBatch = (topic: string, partition: number, batch: RawBatch): Promise<LogRecord[]> =>
  decode(batch, (reader, head) => reader.record(topic, partition, head));

/** The same for records that are soon done with: all bytes become text once, instead of three pieces of each record. */
export const decodeWhole = (topic: string, partition: number, batch: RawBatch): Promise<OpenedRecord[]> =>
  decode(batch, (reader, head) => reader.opened(topic, partition, head));

/** What the head of a batch says of its records. */
interface Head {
  first: number;
  /** Unix ms. */
  firstTime: number;
  /** One moment for the whole batch where the broker sets it: one object, since nobody changes a record. */
  stamped: Date | null;
}

async function decode<T>({ first, bytes }: RawBatch, read: (reader: RecordReader, head: Head) => T): Promise<T[]> {
  if (crc32C(bytes.subarray(ATTRIBUTES_AT)) !== bytes.readUInt32BE(CRC_AT))
    throw new DamagedBatch("fails its checksum");
  const attributes = bytes.readInt16BE(ATTRIBUTES_AT);
  if (attributes & CONTROL) return [];
  const packed = bytes.subarray(RECORDS_AT);
  const codec = compression.lookupCodecByAttributes(attributes & CODEC);
  if (!codec && (attributes & CODEC) !== 0) throw new DamagedBatch(`has the unknown codec ${attributes & CODEC}`);
  const reader = new RecordReader(codec ? await codec.decompress(packed) : packed);
  const firstTime = Number(bytes.readBigInt64BE(FIRST_TIME_AT));
  const stamped = attributes & APPEND_TIME ? new Date(Number(bytes.readBigInt64BE(MAX_TIME_AT))) : null;
  const records: T[] = [];
  for (let left = bytes.readInt32BE(COUNT_AT); left > 0; left--) {
    records.push(read(reader, { first, firstTime, stamped }));
  }
  if (!reader.done) throw new DamagedBatch("has more than its records");
  return records;
}

const ABSENT = new Uint8Array();

/** Goes over the records of one batch. Numbers are varints in zigzag form (Kafka protocol, "Record"). */
class RecordReader {
  #at = 0;
  #end = 0;
  /** Where the value of the last record stood. */
  #valueAt = 0;
  /** All bytes as characters, once anybody asked for them. */
  #characters: string | null = null;

  constructor(private readonly bytes: Buffer) {}

  get done(): boolean {
    return this.#at === this.bytes.length;
  }

  opened(topic: string, partition: number, head: Head): OpenedRecord {
    this.#characters ??= this.bytes.toString("latin1");
    const { offset, eventId, key, value, appendedAt } = this.record(topic, partition, head);
    const characters = this.#characters.slice(this.#valueAt, this.#valueAt + value.length);
    return { topic, partition, offset, eventId, key, value, appendedAt, characters };
  }

  record(topic: string, partition: number, { first, firstTime, stamped }: Head): LogRecord {
    this.#end = this.bytes.length;
    const length = this.#int();
    this.#end = this.#past(length);
    this.#at++; // attributes, unused
    const time = this.#long();
    const offset = first + this.#int();
    const key = this.#text();
    const value = this.#bytes();
    const eventId = this.#eventId();
    if (this.#at !== this.#end) throw new DamagedBatch("has a record of another length than it says");
    return { topic, partition, offset, eventId, key, value, appendedAt: stamped ?? new Date(firstTime + time) };
  }

  /** All other headers are passed over. Said twice, it is no id of ours: both are given, and readers refuse that. */
  #eventId(): string {
    let found: string | null = null;
    for (let left = this.#int(); left > 0; left--) {
      const nameLength = this.#int();
      const at = this.#at;
      this.#at = this.#past(nameLength);
      const isIt = nameLength === EVENT_ID_BYTES.length && this.#isEventId(at);
      if (!isIt) this.#skip();
      else found = found === null ? this.#text() : `${found},${this.#text()}`;
    }
    return found ?? "";
  }

  #isEventId(at: number): boolean {
    for (let i = 0; i < EVENT_ID_BYTES.length; i++) if (this.bytes[at + i] !== EVENT_ID_BYTES[i]) return false;
    return true;
  }

  #text(): string {
    const length = this.#int();
    if (length === -1) return "";
    const from = this.#at;
    this.#at = this.#past(length);
    if (this.#characters !== null && this.#isAscii(from, this.#at)) return this.#characters.slice(from, this.#at);
    return this.bytes.toString("utf8", from, this.#at);
  }

  #isAscii(from: number, end: number): boolean {
    for (let i = from; i < end; i++) if (this.bytes[i]! >= 0x80) return false;
    return true;
  }

  #bytes(): Uint8Array {
    const length = this.#int();
    if (length === -1) return ABSENT;
    this.#valueAt = this.#at;
    this.#at = this.#past(length);
    return this.bytes.subarray(this.#valueAt, this.#at);
  }

  #skip(): void {
    const length = this.#int();
    if (length !== -1) this.#at = this.#past(length);
  }

  /** Where so many bytes from here end, inside of the record. */
  #past(length: number): number {
    const end = this.#at + length;
    if (length < 0 || end > this.#end) throw new DamagedBatch("has a length that reaches over its end");
    return end;
  }

  /** 32 bits. */
  #int(): number {
    let byte = this.bytes[this.#at++]!;
    let value = byte & 0x7f;
    for (let shift = 7; byte >= 0x80; shift += 7) {
      if (shift > 28) throw new DamagedBatch("has a number of more than 32 bits");
      byte = this.bytes[this.#at++]!;
      value |= (byte & 0x7f) << shift;
    }
    return (value >>> 1) ^ -(value & 1);
  }

  /** 64 bits as a double: moments are far below 2^53. */
  #long(): number {
    let byte = this.bytes[this.#at++]!;
    let value = byte & 0x7f;
    for (let scale = 128; byte >= 0x80; scale *= 128) {
      if (scale > 2 ** 63) throw new DamagedBatch("has a number of more than 64 bits");
      byte = this.bytes[this.#at++]!;
      value += (byte & 0x7f) * scale;
    }
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
}
