import { ArchiveUnproven } from "./errors.ts";
import { ID_BYTES } from "./line-piece.ts";
import { wordsOf } from "./words.ts";

/** Where something was cut out, and between what was cut; no JSON text holds it (sql/64_archive_shapes). */
export const CUT = 0x1f;
const RECORD_END = 0x1e;
/** Between what is said of a group (sql/65_archive_bundles). */
const PART_END = 0x1d;
const [ZERO, NINE] = [0x30, 0x39];

/** Places in a record: its id stands first and its time (Unix ms) behind it, each of one length. */
const TIME_AT = ID_BYTES + 1;
const TIME_BYTES = 13;
export const MEASURED_AT = TIME_AT + TIME_BYTES + 1;

/** Records of one endpoint and shape, in their bundle. */
export interface Group {
  cap: string;
  /** Where the capability stands. */
  capAt: number;
  /** Number of the shapes that are alike, where bodies were cut when they came; null when they are cut here: with a slot. */
  form: number | null;
  /** Where bodies are cut here, else null. */
  shape: string | null;
  /** Where the hash of records that tell none stands, lower-case hex, and ends: at one place where there is none. */
  shaAt: number;
  shaEnd: number;
  /** Where its records begin. */
  recordsAt: number;
  /** Number of its first record; the others are behind it. */
  first: number;
  count: number;
}

/** Ids begin with their kind; five characters behind it tell most of them apart. */
const KEY_AT = 4;
/** Records of one endpoint that are put in order by number: what the five characters say, and which record it is. */
const MOST_KEYED = 2 ** 13;
/** So few are put in order one after the other. */
const FEW = 12;

/**
 * Memory for the places of records, used by one bundle after the other: arrays of their own for each would be a hundred
 * megabytes outside of the heap for a day, and have the collector mark again and again.
 */
export class RecordRoom {
  starts = new Uint32Array(0);
  ends = new Uint32Array(0);
  group = new Uint32Array(0);
  own = new Uint32Array(0);
  order = new Uint32Array(0);
  times = new Float64Array(0);
  keys = new Float64Array(0);

  /** Room for so many records. What was there is gone. */
  make(count: number): this {
    if (count <= this.starts.length) return this;
    const size = 2 * count;
    [this.starts, this.ends, this.group] = [new Uint32Array(size), new Uint32Array(size), new Uint32Array(size)];
    [this.own, this.order] = [new Uint32Array(size), new Uint32Array(size)];
    this.times = new Float64Array(size);
    this.keys = new Float64Array(Math.min(size, MOST_KEYED));
    return this;
  }
}

/** All records of some endpoints in the engine's own bytes: no string is made of any. */
export class ProbeRecords {
  readonly bytes: Buffer;
  /** Of the same bytes. */
  readonly words: DataView;
  /** Capabilities ascending. */
  readonly groups: readonly Group[];
  /** By number of the record: where it begins, where it ends, and the number of its group. */
  readonly starts: Uint32Array;
  readonly ends: Uint32Array;
  readonly group: Uint32Array;
  /** Unix ms. */
  readonly times: Float64Array;
  /** Numbers of the records of one endpoint: see {@link inOrder}. */
  readonly order: Uint32Array;

  readonly #room: RecordRoom;

  /**
   * @param count records that they have to be
   * @param room is theirs until other records are read
   * @throws ArchiveUnproven when they are not as many as were counted, or one is no record
   */
  constructor({ buffer, byteOffset, length }: Uint8Array, count: number, room: RecordRoom = new RecordRoom()) {
    this.bytes = Buffer.from(buffer, byteOffset, length);
    this.words = wordsOf(this.bytes);
    this.#room = room.make(count);
    ({ starts: this.starts, ends: this.ends, group: this.group, times: this.times, order: this.order } = room);
    const groups: Group[] = [];
    let [at, first] = [0, 0];
    while (at < length) {
      const group = this.#groupAt(at, first);
      first += group.count;
      if (first > count) throw new ArchiveUnproven(`lines of ${group.cap}`, `${count} with others`, `${first}`);
      at = this.#readRecords(group, groups.length);
      groups.push(group);
    }
    if (first !== count) throw new ArchiveUnproven("records of a bundle", `${count}`, `${first}`);
    this.groups = groups;
  }

  /** Text of a record, whatever is in it. */
  text(n: number): string {
    return this.bytes.toString("utf8", this.starts[n], this.ends[n]);
  }

  /** Groups of one endpoint after those of another, capabilities ascending. */
  *endpoints(): Generator<readonly Group[]> {
    const byCap = this.groups.toSorted((a, b) => (a.cap < b.cap ? -1 : a.cap > b.cap ? 1 : 0));
    let own: Group[] = [];
    for (const group of byCap) {
      if (own.length > 0 && own[0]!.cap !== group.cap) {
        yield own;
        own = [];
      }
      own.push(group);
    }
    if (own.length > 0) yield own;
  }

  /** Put the numbers of these records into `order`, in the order of their ids. @returns how many they are */
  inOrder(own: readonly Group[]): number {
    const { order } = this.#room;
    let count = 0;
    for (const group of own) for (let n = group.first; n < group.first + group.count; n++) order[count++] = n;
    if (count <= FEW) this.#insert(count);
    else if (count > MOST_KEYED || !this.#byKeys(count)) order.subarray(0, count).sort((a, b) => this.#compare(a, b));
    return count;
  }

  #insert(count: number): void {
    const { order } = this.#room;
    for (let i = 1; i < count; i++) {
      const n = order[i]!;
      let place = i;
      for (; place > 0 && this.#compare(order[place - 1]!, n) > 0; place--) order[place] = order[place - 1]!;
      order[place] = n;
    }
  }

  /** @returns were the characters of the keys enough? */
  #byKeys(count: number): boolean {
    const { bytes, starts } = this;
    const { own, order } = this.#room;
    const keys = this.#room.keys.subarray(0, count);
    for (let n = 0; n < count; n++) {
      own[n] = order[n]!;
      const at = starts[own[n]!]! + KEY_AT;
      keys[n] = (bytes[at]! * 2 ** 32 + bytes.readUInt32BE(at + 1)) * MOST_KEYED + n;
    }
    keys.sort();
    // A remainder of such large numbers takes the machine three times as long.
    for (let n = 0; n < count; n++) order[n] = own[keys[n]! - Math.floor(keys[n]! / MOST_KEYED) * MOST_KEYED]!;
    for (let n = 1; n < count; n++) if (this.#compare(order[n - 1]!, order[n]!) >= 0) return false;
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

  /** What stands of a group before its records. @throws ArchiveUnproven */
  #groupAt(capAt: number, first: number): Group {
    const capEnd = this.#partEnd(capAt);
    const cap = this.bytes.toString("utf8", capAt, capEnd);
    const formEnd = this.#partEnd(capEnd + 1);
    const shapeEnd = this.#partEnd(formEnd + 1);
    const shaEnd = this.#partEnd(shapeEnd + 1);
    const form = formEnd === capEnd + 1 ? null : this.#numberAt(capEnd + 1, formEnd);
    const shape = form === null ? this.bytes.toString("utf8", formEnd + 1, shapeEnd) : null;
    if (shape === "") throw new ArchiveUnproven(`lines of ${cap}`, "a shape", "no such shape");
    const countEnd = this.#partEnd(shaEnd + 1);
    const count = this.#numberAt(shaEnd + 1, countEnd);
    return { cap, capAt, form, shape, shaAt: shapeEnd + 1, shaEnd, recordsAt: countEnd + 1, first, count };
  }

  /** @returns behind the last of them @throws ArchiveUnproven */
  #readRecords({ cap, recordsAt, first, count }: Group, group: number): number {
    const { bytes, starts, ends, times } = this;
    let from = recordsAt;
    for (let n = first; n < first + count; n++) {
      const end = this.#recordEnd(from + MEASURED_AT);
      if (end < 0 || bytes[from + ID_BYTES] !== CUT || bytes[from + MEASURED_AT - 1] !== CUT)
        throw new ArchiveUnproven(`lines of ${cap}`, `${count}`, `${n - first}`);
      [starts[n], ends[n], this.group[n]] = [from, end, group];
      times[n] = this.#numberAt(from + TIME_AT, from + TIME_AT + TIME_BYTES);
      from = end + 1;
    }
    return from;
  }

  /** Where the record ends that has `at` in it, or -1. It has some characters more: a call of the engine's own search takes longer. */
  #recordEnd(at: number): number {
    const { bytes } = this;
    for (let i = at; i < bytes.length; i++) if (bytes[i] === RECORD_END) return i;
    return -1;
  }

  /** Where the part ends that begins here. @throws ArchiveUnproven */
  #partEnd(at: number): number {
    const { bytes } = this;
    for (let i = at; i < bytes.length; i++) if (bytes[i] === PART_END) return i;
    throw new ArchiveUnproven("records of a bundle", "a group", this.bytes.toString("utf8", at, at + ID_BYTES));
  }

  /** @throws ArchiveUnproven for what is no number */
  #numberAt(at: number, end: number): number {
    const { bytes } = this;
    let number = 0;
    for (let i = at; i < end; i++) {
      const byte = bytes[i]!;
      if (!(byte >= ZERO && byte <= NINE))
        throw new ArchiveUnproven("records of a bundle", "a number", bytes.toString("utf8", at, end));
      number = number * 10 + (byte - ZERO);
    }
    return number;
  }
}
