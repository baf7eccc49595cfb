import { FULL_LEVELS, levelBytes, Pages, PLAIN, RLE_DICTIONARY } from "./pages.ts";
import { varint } from "./thrift.ts";

/** A page is closed once it holds so many bytes: as many as the compressor packs without taking new memory. */
const PAGE_BYTES = 112 * 1024;

/** A column on its way into a row group. */
export interface Column {
  /** All rows as pages; nothing may be added any more. */
  close(): Pages;
  readonly nulls: number;
  /** Smallest and largest value as PLAIN has them, where the column keeps them. */
  readonly range: { least: Uint8Array; most: Uint8Array } | null;
}

/** Values of a page without nulls, one after the other behind room for their levels. */
class PlainPage {
  #buffer = Buffer.allocUnsafe(PAGE_BYTES + 4 * 1024);
  #used = FULL_LEVELS;
  #rows = 0;

  constructor(private readonly pages: Pages) {}

  /** Where a value of so many bytes goes. It counts as a row. */
  room(bytes: number): { buffer: Buffer; at: number } {
    if (this.#used > PAGE_BYTES) this.close();
    const at = this.#used;
    this.#used += bytes;
    if (this.#used > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(2 * this.#used);
      this.#buffer.copy(larger, 0, 0, at);
      this.#buffer = larger;
    }
    this.#rows++;
    return { buffer: this.#buffer, at };
  }

  close(): void {
    if (this.#rows === 0) return;
    const levels = levelBytes([this.#rows]);
    const from = FULL_LEVELS - levels.length;
    this.#buffer.set(levels, from);
    this.pages.addData(this.#rows, PLAIN, this.#buffer.subarray(from, this.#used));
    this.#used = FULL_LEVELS;
    this.#rows = 0;
  }
}

/**
 * `value * scale` as 64 bits, the low ones first. The product may lie past 2^53, so it is made of two halves: each of
 * them stays exact while the scale is small.
 */
function putLong(buffer: Buffer, value: number, scale: number, at: number): void {
  const high = Math.floor(value / 2 ** 32);
  const low = (value - high * 2 ** 32) * scale;
  const carry = Math.floor(low / 2 ** 32);
  buffer.writeInt32LE((low - carry * 2 ** 32) | 0, at);
  buffer.writeInt32LE(high * scale + carry, at + 4);
}

/** Safe integers as INT64, each with a value. */
export class LongColumn implements Column {
  readonly nulls = 0;
  #least = Number.POSITIVE_INFINITY;
  #most = Number.NEGATIVE_INFINITY;
  readonly #pages = new Pages();
  readonly #page = new PlainPage(this.#pages);

  /** @param scale what each value is multiplied with: 1,000 where milliseconds come and microseconds are kept */
  constructor(private readonly scale = 1) {}

  add(value: number): void {
    if (value < this.#least) this.#least = value;
    if (value > this.#most) this.#most = value;
    const { buffer, at } = this.#page.room(8);
    putLong(buffer, value, this.scale, at);
  }

  get range() {
    return this.#most < this.#least ? null : { least: this.#bytes(this.#least), most: this.#bytes(this.#most) };
  }

  #bytes(value: number): Uint8Array {
    const bytes = Buffer.alloc(8);
    putLong(bytes, value, this.scale, 0);
    return bytes;
  }

  close(): Pages {
    this.#page.close();
    return this.#pages;
  }
}

/** Bytes as they are, each row with a value: for texts that are never said twice. */
export class BytesColumn implements Column {
  readonly nulls = 0;
  readonly range = null;
  readonly #pages = new Pages();
  readonly #page = new PlainPage(this.#pages);

  add(bytes: Uint8Array): void {
    const { buffer, at } = this.#page.room(4 + bytes.length);
    buffer.writeUInt32LE(bytes.length, at);
    buffer.set(bytes, at + 4);
  }

  /** A text of ASCII; a short one is copied sooner than the runtime is called. */
  addAscii(text: string): void {
    const { buffer, at } = this.#page.room(4 + text.length);
    buffer.writeUInt32LE(text.length, at);
    for (let i = 0; i < text.length; i++) buffer[at + 4 + i] = text.charCodeAt(i);
  }

  close(): Pages {
    this.#page.close();
    return this.#pages;
  }
}

const textBytes = (text: string): Uint8Array => {
  const bytes = Buffer.from(text);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  return Buffer.concat([length, bytes]);
};
const intBytes = (value: number): Uint8Array => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
};

/** Each value once, by number in the order of coming. */
export class Values<T extends string | number> {
  readonly #numbers = new Map<T, number>();
  #last: T | undefined;
  #lastNumber = 0;

  get size(): number {
    return this.#numbers.size;
  }

  numberOf(value: T): number {
    if (value === this.#last) return this.#lastNumber;
    let number = this.#numbers.get(value);
    if (number === undefined) {
      number = this.#numbers.size;
      this.#numbers.set(value, number);
    }
    this.#last = value;
    this.#lastNumber = number;
    return number;
  }

  /** All of them, as PLAIN has them. */
  bytes(): Uint8Array {
    const keys = [...this.#numbers.keys()];
    return Buffer.concat(keys.map((one) => (typeof one === "string" ? textBytes(one) : intBytes(one))));
  }
}

/**
 * Texts (BYTE_ARRAY) or small numbers (INT32) that repeat, or nothing: each value is kept once (2^24 at
 * most), rows name it by number.
 */
export class RepeatingColumn<T extends string | number> implements Column {
  nulls = 0;
  readonly range = null;
  /** Numbers of the rows with a value. */
  #rows = new Uint32Array(1024);
  #used = 0;
  /** Lengths of runs, in turns with a value and without. */
  readonly #runs = [0];

  /** @param values shared by columns whose rows mostly say the same: then each is looked for once */
  constructor(private readonly values = new Values<T>()) {}

  add(value: T | null): void {
    const isFull = this.#runs.length % 2 === 1;
    if (isFull === (value === null)) this.#runs.push(1);
    else this.#runs[this.#runs.length - 1]!++;
    if (value === null) {
      this.nulls++;
      return;
    }
    if (this.#used === this.#rows.length) {
      const larger = new Uint32Array(2 * this.#used);
      larger.set(this.#rows);
      this.#rows = larger;
    }
    this.#rows[this.#used++] = this.values.numberOf(value);
  }

  close(): Pages {
    const pages = new Pages();
    const rows = this.nulls + this.#used;
    if (rows === 0) return pages;
    const levels = levelBytes(this.#runs);
    if (this.#used === 0) {
      pages.addData(rows, PLAIN, levels);
      return pages;
    }
    pages.addDictionary(this.values.size, this.values.bytes());
    pages.addData(rows, RLE_DICTIONARY, Buffer.concat([levels, this.#numberBytes()]));
    return pages;
  }

  /** The hybrid of runs and packed bits again: one run where all rows say the same, else whole bytes as "packed bits". */
  #numberBytes(): Uint8Array {
    const distinct = this.values.size;
    if (distinct === 1) return Uint8Array.from([8, ...varint(2 * this.#used), 0]);
    const width = distinct <= 2 ** 8 ? 1 : distinct <= 2 ** 16 ? 2 : 3;
    // Bits come in groups of eight values; what lies past the last row is not read.
    const groups = Math.ceil(this.#used / 8);
    const numbers = Buffer.alloc(8 * groups * width);
    for (let i = 0; i < this.#used; i++) numbers.writeUIntLE(this.#rows[i]!, i * width, width);
    return Buffer.concat([Uint8Array.from([8 * width, ...varint(2 * groups + 1)]), numbers]);
  }
}
