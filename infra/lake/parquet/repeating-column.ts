import { ownText } from "../../own-text.ts";
import type { Column } from "./columns.ts";
import { levelBytes, Pages, PLAIN, RLE_DICTIONARY } from "./pages.ts";
import { varint } from "./thrift.ts";

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
      // Kept to the end of the file, so no piece of a longer text.
      this.#numbers.set(typeof value === "string" ? (ownText(value) as T) : value, number);
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
  /** Lengths of the runs that have ended, in turns with a value and without, and of the one that goes on. */
  readonly #runs: number[] = [];
  #run = 0;
  #isFull = true;

  /** @param values shared by columns whose rows mostly say the same: then each is looked for once */
  constructor(private readonly values = new Values<T>()) {}

  add(value: T | null): void {
    this.addNumber(value === null ? null : this.values.numberOf(value));
  }

  /** A value by its number among {@link values}: for whoever had to look for it already. */
  addNumber(number: number | null): void {
    if (this.#isFull === (number === null)) {
      this.#runs.push(this.#run);
      this.#run = 0;
      this.#isFull = number !== null;
    }
    this.#run++;
    if (number === null) {
      this.nulls++;
      return;
    }
    if (this.#used === this.#rows.length) {
      const larger = new Uint32Array(2 * this.#used);
      larger.set(this.#rows);
      this.#rows = larger;
    }
    this.#rows[this.#used++] = number;
  }

  close(): Pages {
    const pages = new Pages();
    const rows = this.nulls + this.#used;
    if (rows === 0) return pages;
    const levels = levelBytes([...this.#runs, this.#run]);
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
