import { ArchiveUnproven } from "./errors.ts";
import { ID_BYTES } from "./line-piece.ts";
import { wordsOf } from "./words.ts";

/** Where something was cut out, and between what was cut; no JSON text holds it (sql/64_archive_shapes). */
export const CUT = 0x1f;
const RECORD_END = 0x1e;
const ZERO = 0x30;

/** Places in a record: its id stands first and its time (Unix ms) behind it, each of one length. */
const TIME_AT = ID_BYTES + 1;
const TIME_BYTES = 13;
export const MEASURED_AT = TIME_AT + TIME_BYTES + 1;

/** Records of one shape: see sql/65_archive_groups. */
export interface Group {
  cap: string;
  /** Number of the shapes that are alike, where bodies were cut when they came; null when they are cut here: their records have a slot then. */
  form: number | null;
  /** Hash of the records that tell none, lower-case hex, where there is one and bodies were cut when they came. */
  sha: string | null;
  shape: string;
  count: number;
  /** Checksum of the ids, upper and lower 32 bits. */
  lookHigh: number;
  lookLow: number;
  records: Uint8Array;
}

/** Ids begin with their kind; five characters behind it tell most of them apart. */
const KEY_AT = 4;
/** Records of one endpoint that are put in order by number: what the five characters say, and which record it is. */
const MOST_KEYED = 2 ** 13;

/**
 * Memory for the places of records, used by one endpoint after the other: arrays of their own for each would be a hundred
 * megabytes outside of the heap for a day, and have the collector mark again and again.
 */
export class RecordRoom {
  starts = new Uint32Array(0);
  ends = new Uint32Array(0);
  group = new Uint32Array(0);
  order = new Uint32Array(0);
  times = new Float64Array(0);
  keys = new Float64Array(0);

  /** Room for so many records. What was there is gone. */
  make(count: number): this {
    if (count <= this.starts.length) return this;
    const size = 2 * count;
    [this.starts, this.ends] = [new Uint32Array(size), new Uint32Array(size)];
    [this.group, this.order] = [new Uint32Array(size), new Uint32Array(size)];
    this.times = new Float64Array(size);
    this.keys = new Float64Array(Math.min(size, MOST_KEYED));
    return this;
  }
}

/** All records of one endpoint in the engine's own bytes: no string is made of any. */
export class ProbeRecords {
  readonly bytes: Buffer;
  /** Of the same bytes. */
  readonly words: DataView;
  /** By number of the record: where it begins, where it ends, and the number of its group. */
  readonly starts: Uint32Array;
  readonly ends: Uint32Array;
  readonly group: Uint32Array;
  /** Unix ms. */
  readonly times: Float64Array;

  readonly #count: number;
  readonly #room: RecordRoom;

  /**
   * @param room is theirs until other records are read
   * @throws ArchiveUnproven when they are not as many as were counted, or one is no record
   */
  constructor(own: readonly Group[], room: RecordRoom = new RecordRoom()) {
    const count = own.reduce((sum, group) => sum + group.count, 0);
    const [only, ...more] = own.map(({ records }) => records);
    const { buffer, byteOffset, length } = only!;
    this.bytes = more.length > 0 ? Buffer.concat([only!, ...more]) : Buffer.from(buffer, byteOffset, length);
    this.words = wordsOf(this.bytes);
    [this.#count, this.#room] = [count, room.make(count)];
    ({ starts: this.starts, ends: this.ends, group: this.group, times: this.times } = room);
    let [n, from, upto] = [0, 0, 0];
    for (const [g, { cap, count, records }] of own.entries()) {
      upto += records.length;
      for (let left = count; left > 0; left--) {
        const end = this.#endFrom(from + MEASURED_AT, upto);
        if (end < 0 || this.bytes[from + ID_BYTES] !== CUT || this.bytes[from + MEASURED_AT - 1] !== CUT)
          throw new ArchiveUnproven(`lines of ${cap}`, `${count}`, `${count - left}`);
        [this.starts[n], this.ends[n], this.group[n]] = [from, end, g];
        this.times[n] = this.#timeAt(from + TIME_AT);
        n++;
        from = end + 1;
      }
      if (from !== upto) throw new ArchiveUnproven(`lines of ${cap}`, `${count}`, "more");
    }
  }

  /** Text of a record, whatever is in it. */
  text(n: number): string {
    return this.bytes.toString("utf8", this.starts[n], this.ends[n]);
  }

  /** Where the record ends that has `at` in it, or -1. It has some characters more: a call of the engine's own search takes longer. */
  #endFrom(at: number, upto: number): number {
    const { bytes } = this;
    for (let i = at; i < upto; i++) if (bytes[i] === RECORD_END) return i;
    return -1;
  }

  #timeAt(at: number): number {
    let time = 0;
    for (let i = at; i < at + TIME_BYTES; i++) time = time * 10 + (this.bytes[i]! - ZERO);
    return time;
  }

  /** Numbers of the records in the order of their ids. */
  inOrder(): Uint32Array {
    const { bytes, starts } = this;
    const order = this.#room.order.subarray(0, this.#count);
    if (order.length > MOST_KEYED) {
      for (let n = 0; n < order.length; n++) order[n] = n;
    } else {
      const keys = this.#room.keys.subarray(0, order.length);
      for (let n = 0; n < keys.length; n++) {
        const at = starts[n]! + KEY_AT;
        keys[n] = (bytes[at]! * 2 ** 32 + bytes.readUInt32BE(at + 1)) * MOST_KEYED + n;
      }
      keys.sort();
      // A remainder of such large numbers takes the machine three times as long.
      for (let n = 0; n < order.length; n++) order[n] = keys[n]! - Math.floor(keys[n]! / MOST_KEYED) * MOST_KEYED;
      if (this.#isAscending(order)) return order;
    }
    return order.sort((a, b) => this.#compare(a, b));
  }

  #isAscending(order: Uint32Array): boolean {
    for (let n = 1; n < order.length; n++) if (this.#compare(order[n - 1]!, order[n]!) >= 0) return false;
    return true;
  }

  #compare(a: number, b: number): number {
    const { bytes, starts } = this;
    const [x, y] = [starts[a]!, starts[b]!];
    for (let i = 0; i < ID_BYTES; i++) {
      const differs = bytes[x + i]! - bytes[y + i]!;
      if (differs !== 0) return differs;
    }
    return 0;
  }
}
