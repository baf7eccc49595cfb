import { FULL_LEVELS, levelBytes, Pages, PLAIN } from "./pages.ts";

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

/** Values of a page, one after the other behind room for the levels of a page without nulls. */
class PlainPage {
  #buffer = Buffer.allocUnsafe(PAGE_BYTES + 4 * 1024);
  #used = FULL_LEVELS;
  #rows = 0;
  /** Lengths of the runs that have ended, in turns with a value and without, and of the one that goes on. */
  #runs: number[] = [];
  #run = 0;
  #isFull = true;

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
    this.#count(true);
    return { buffer: this.#buffer, at };
  }

  /** A row without a value. */
  skip(): void {
    this.#count(false);
  }

  #count(hasValue: boolean): void {
    if (this.#isFull !== hasValue) {
      this.#runs.push(this.#run);
      this.#run = 0;
      this.#isFull = hasValue;
    }
    this.#run++;
    this.#rows++;
  }

  close(): void {
    if (this.#rows === 0) return;
    const levels = levelBytes([...this.#runs, this.#run]);
    this.pages.addData(this.#rows, PLAIN, this.#behind(levels));
    this.#used = FULL_LEVELS;
    this.#rows = 0;
    this.#runs = [];
    this.#run = 0;
    this.#isFull = true;
  }

  /** The values behind their levels: in place, unless nulls made those longer than what was kept free. */
  #behind(levels: Uint8Array): Uint8Array {
    const from = FULL_LEVELS - levels.length;
    if (from < 0) return Buffer.concat([levels, this.#buffer.subarray(FULL_LEVELS, this.#used)]);
    this.#buffer.set(levels, from);
    return this.#buffer.subarray(from, this.#used);
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

/** Bytes as they are, or nothing: for texts that are never said twice. */
export class BytesColumn implements Column {
  nulls = 0;
  readonly range = null;
  readonly #pages = new Pages();
  readonly #page = new PlainPage(this.#pages);

  add(bytes: Uint8Array): void {
    const { buffer, at } = this.#page.room(4 + bytes.length);
    buffer.writeUInt32LE(bytes.length, at);
    buffer.set(bytes, at + 4);
  }

  addNull(): void {
    this.nulls++;
    this.#page.skip();
  }

  /** A text of ASCII; a short one is copied sooner than the runtime is called. */
  addAscii(text: string): void {
    const { buffer, at } = this.#page.room(4 + text.length);
    buffer.writeUInt32LE(text.length, at);
    for (let i = 0; i < text.length; i++) buffer[at + 4 + i] = text.charCodeAt(i);
  }

  /** A short piece of longer bytes. */
  addPiece(bytes: Uint8Array, from: number, end: number): void {
    const { buffer, at } = this.#page.room(4 + end - from);
    buffer.writeUInt32LE(end - from, at);
    for (let i = from; i < end; i++) buffer[at + 4 + i - from] = bytes[i]!;
  }

  close(): Pages {
    this.#page.close();
    return this.#pages;
  }
}
