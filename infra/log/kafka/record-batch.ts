import type { LogRecord, OpenedRecord } from "../log.ts";
import { compression } from "./codecs.ts";
import { crc32c } from "./crc32c.ts";

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
export async function decodeBatch(topic: string, partition: number, batch: RawBatch): Promise<LogRecord[]> {
  const opened = await openBatch(topic, partition, batch);
  return Array.from({ length: opened.count }, (_, i) => opened.record(i));
}

/**
 * The same for whoever needs little of most records: where each of them stands, and its parts once they are asked for.
 * A batch is given whole or not at all. @throws as above
 */
export async function openBatch(topic: string, partition: number, { first, bytes }: RawBatch): Promise<OpenedBatch> {
  if (crc32c(bytes.subarray(ATTRIBUTES_AT)) !== bytes.readUInt32BE(CRC_AT))
    throw new DamagedBatch("fails its checksum");
  const attributes = bytes.readInt16BE(ATTRIBUTES_AT);
  const firstTime = Number(bytes.readBigInt64BE(FIRST_TIME_AT));
  const stamped = attributes & APPEND_TIME ? new Date(Number(bytes.readBigInt64BE(MAX_TIME_AT))) : null;
  const head = { topic, partition, first, firstTime, stamped };
  if (attributes & CONTROL) return new OpenedBatch(head, Buffer.alloc(0), 0);
  const packed = bytes.subarray(RECORDS_AT);
  const codec = compression.lookupCodecByAttributes(attributes & CODEC);
  if (!codec && (attributes & CODEC) !== 0) throw new DamagedBatch(`has the unknown codec ${attributes & CODEC}`);
  return new OpenedBatch(head, codec ? await codec.decompress(packed) : packed, bytes.readInt32BE(COUNT_AT));
}

/** What the head of a batch says of its records. */
interface Head {
  topic: string;
  partition: number;
  first: number;
  /** Unix ms. */
  firstTime: number;
  /** One moment for the whole batch where the broker sets it: one object, since nobody changes a record. */
  stamped: Date | null;
}

/** What is kept of each record: its offset behind the first one's, and where its parts begin and end. */
const FIELDS = 7;
const DELTA = 0;
const KEY = 1;
const VALUE = 3;
const ID = 5;
/** Bytes that become text at once. */
const PIECE_BYTES = 64 * 1024;
/** Where an event id stands that was said twice. */
const NOWHERE = -1;

/** The records of one batch, each by its number in it, from 0. */
export class OpenedBatch {
  readonly count: number;
  readonly #places: Int32Array;
  /** Ms behind the first one's; empty where the broker sets one moment for all. */
  readonly #times: number[] = [];
  /** Event ids that were said twice. */
  readonly #twice = new Map<number, string>();
  #piece = "";
  #pieceAt = 0;

  /** @throws DamagedBatch where the bytes are not so many records */
  constructor(
    private readonly head: Head,
    readonly bytes: Buffer,
    count: number,
  ) {
    this.count = Math.max(0, count);
    // No record is shorter than a byte. More of them than that are found to reach over the end.
    this.#places = new Int32Array(FIELDS * Math.min(this.count, bytes.length));
    const reader = new RecordReader(bytes);
    for (let i = 0; i < this.count; i++) {
      reader.next();
      const at = FIELDS * i;
      this.#places[at + DELTA] = reader.delta;
      this.#places[at + KEY] = reader.keyAt;
      this.#places[at + KEY + 1] = reader.keyEnd;
      this.#places[at + VALUE] = reader.valueAt;
      this.#places[at + VALUE + 1] = reader.valueEnd;
      this.#places[at + ID] = reader.idAt;
      this.#places[at + ID + 1] = reader.idEnd;
      if (head.stamped === null) this.#times.push(reader.time);
      if (reader.twice !== null) this.#twice.set(i, reader.twice);
    }
    if (!reader.done) throw new DamagedBatch("has more than its records");
  }

  /**
   * Bytes as characters (Latin-1), from {@link pieceAt} on, with the whole of a record among them and what follows it: made
   * once for many, and no larger than what the engine keeps among its short-lived things. Whoever keeps a part keeps it all.
   */
  piece(i: number): string {
    const from = this.keyAt(i);
    const end = Math.max(this.valueEnd(i), this.idEnd(i));
    if (from < this.#pieceAt || end > this.#pieceAt + this.#piece.length) {
      this.#piece = this.bytes.toString("latin1", from, Math.max(end, from + PIECE_BYTES));
      this.#pieceAt = from;
    }
    return this.#piece;
  }

  /** Where the piece begins that was given last. */
  get pieceAt(): number {
    return this.#pieceAt;
  }

  offset(i: number): number {
    return this.head.first + this.#places[FIELDS * i + DELTA]!;
  }

  /** Unix ms. */
  appendedMs(i: number): number {
    return this.head.stamped?.getTime() ?? this.head.firstTime + this.#times[i]!;
  }

  keyAt(i: number): number {
    return this.#places[FIELDS * i + KEY]!;
  }

  keyEnd(i: number): number {
    return this.#places[FIELDS * i + KEY + 1]!;
  }

  valueAt(i: number): number {
    return this.#places[FIELDS * i + VALUE]!;
  }

  valueEnd(i: number): number {
    return this.#places[FIELDS * i + VALUE + 1]!;
  }

  /** Where the event id stands; -1 where it was said twice. */
  idAt(i: number): number {
    return this.#places[FIELDS * i + ID]!;
  }

  idEnd(i: number): number {
    return this.#places[FIELDS * i + ID + 1]!;
  }

  eventId(i: number): string {
    return this.#twice.get(i) ?? this.#text(this.idAt(i), this.idEnd(i));
  }

  record(i: number): LogRecord {
    const { topic, partition, stamped } = this.head;
    const [offset, eventId] = [this.offset(i), this.eventId(i)];
    const key = this.#text(this.keyAt(i), this.keyEnd(i));
    const value = this.bytes.subarray(this.valueAt(i), this.valueEnd(i));
    return { topic, partition, offset, eventId, key, value, appendedAt: stamped ?? new Date(this.appendedMs(i)) };
  }

  /** A record that is soon done with: its texts are parts of the {@link piece}. */
  opened(i: number): OpenedRecord {
    const piece = this.piece(i);
    const characters = piece.slice(this.valueAt(i) - this.#pieceAt, this.valueEnd(i) - this.#pieceAt);
    const { topic, partition, offset, eventId, key, value, appendedAt } = this.record(i);
    return { topic, partition, offset, eventId, key, value, appendedAt, characters };
  }

  #text(from: number, end: number): string {
    const at = from - this.#pieceAt;
    if (at >= 0 && end - this.#pieceAt <= this.#piece.length && this.#isAscii(from, end))
      return this.#piece.slice(at, end - this.#pieceAt);
    return this.bytes.toString("utf8", from, end);
  }

  #isAscii(from: number, end: number): boolean {
    for (let i = from; i < end; i++) if (this.bytes[i]! >= 0x80) return false;
    return true;
  }
}

/** Goes over the records of one batch. Numbers are varints in zigzag form (Kafka protocol, "Record"). */
class RecordReader {
  #at = 0;
  #end = 0;
  /** Of the record that was read last: ms and offset behind the first one's, and where its parts stand. */
  time = 0;
  delta = 0;
  keyAt = 0;
  keyEnd = 0;
  valueAt = 0;
  valueEnd = 0;
  idAt = 0;
  idEnd = 0;
  /** Event ids that it says, where it says more than one. */
  twice: string | null = null;

  constructor(private readonly bytes: Buffer) {}

  get done(): boolean {
    return this.#at === this.bytes.length;
  }

  next(): void {
    this.#end = this.bytes.length;
    const length = this.#int();
    this.#end = this.#past(length);
    this.#at++; // attributes, unused
    this.time = this.#long();
    this.delta = this.#int();
    this.keyEnd = this.#pass();
    this.keyAt = this.#from;
    this.valueEnd = this.#pass();
    this.valueAt = this.#from;
    this.#findEventId();
    if (this.#at !== this.#end) throw new DamagedBatch("has a record of another length than it says");
  }

  /** All other headers are passed over. Said twice, it is no id of ours: both are given, and readers refuse that. */
  #findEventId(): void {
    this.idAt = 0;
    this.idEnd = 0;
    this.twice = null;
    let isFound = false;
    for (let left = this.#int(); left > 0; left--) {
      const nameLength = this.#int();
      const at = this.#at;
      this.#at = this.#past(nameLength);
      const isIt = nameLength === EVENT_ID_BYTES.length && this.#isEventId(at);
      const end = this.#pass();
      if (!isIt) continue;
      if (isFound) {
        const before: string = this.twice ?? this.bytes.toString("utf8", this.idAt, this.idEnd);
        this.twice = `${before},${this.bytes.toString("utf8", this.#from, end)}`;
        this.idAt = NOWHERE;
        this.idEnd = NOWHERE;
      } else {
        this.idAt = this.#from;
        this.idEnd = end;
      }
      isFound = true;
    }
  }

  #isEventId(at: number): boolean {
    for (let i = 0; i < EVENT_ID_BYTES.length; i++) if (this.bytes[at + i] !== EVENT_ID_BYTES[i]) return false;
    return true;
  }

  /** Where the bytes begin that were passed last. */
  #from = 0;

  /** Bytes with their length before them. Absent ones are as none. @returns where they end */
  #pass(): number {
    const length = this.#int();
    this.#from = this.#at;
    if (length !== -1) this.#at = this.#past(length);
    return this.#at;
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
