import { copyWords, wordsOf } from "./words.ts";

/** Ids of records have one length: `rec_` and 26 characters (ids.ts). */
export const ID_BYTES = 30;

/** Lines that are hashed and packed at once: a megabyte or two, and some milliseconds between two looks at what else waits. */
const LINES_AT_ONCE = 4_096;
const PIECE_BYTES = 2 * 1024 * 1024;
/** A piece with less room left is due: most lines are shorter, and a longer one has its room made. */
const SPARE_BYTES = 64 * 1024;

/** Lines of a file as bytes, some thousands of them, and the ids that they were made for; then those behind them. */
export class LinePiece {
  #text = Buffer.allocUnsafeSlow(PIECE_BYTES);
  #words = wordsOf(this.#text);
  #used = 0;
  #count = 0;
  /** In front the last id of the lines before, by which the first one here is in order or not. */
  readonly #ids = Buffer.alloc((LINES_AT_ONCE + 1) * ID_BYTES);
  readonly #idWords = wordsOf(this.#ids);

  /**
   * The lines that follow are written into other memory; `text` as it was is the caller's, and `ids` has none any more.
   * @param memory of lines that nobody reads any more
   */
  begin(memory?: ArrayBuffer): void {
    this.#text = memory ? Buffer.from(memory) : Buffer.allocUnsafeSlow(PIECE_BYTES);
    this.#words = wordsOf(this.#text);
    this.#ids.copyWithin(0, this.#count * ID_BYTES, (this.#count + 1) * ID_BYTES);
    [this.#used, this.#count] = [0, 0];
  }

  get isDue(): boolean {
    return this.#count === LINES_AT_ONCE || this.#used > PIECE_BYTES - SPARE_BYTES;
  }

  /** Where the next line begins. */
  get used(): number {
    return this.#used;
  }

  /** @returns the lines, in memory that holds nothing else */
  get text(): Buffer {
    return this.#text.subarray(0, this.#used);
  }

  /** @returns the ids, {@link ID_BYTES} each */
  get ids(): Buffer {
    return this.#ids.subarray(ID_BYTES, (this.#count + 1) * ID_BYTES);
  }

  /** Id of the last line that was written, here or before. */
  get lastId(): string {
    return this.#ids.toString("latin1", this.#count * ID_BYTES, (this.#count + 1) * ID_BYTES);
  }

  /** Does the last id stand behind the one before it? */
  get isInOrder(): boolean {
    const [ids, at] = [this.#ids, this.#count * ID_BYTES];
    for (let i = at; i < at + ID_BYTES; i++) {
      const differs = ids[i]! - ids[i - ID_BYTES]!;
      if (differs !== 0) return differs > 0;
    }
    return false;
  }

  /** @returns memory with room for a line of so many bytes at `used` */
  room(bytes: number): Buffer {
    const needed = this.#used + bytes;
    if (needed > this.#text.length) {
      const larger = Buffer.allocUnsafeSlow(2 * needed);
      this.#text.copy(larger, 0, 0, this.#used);
      this.#text = larger;
      this.#words = wordsOf(larger);
    }
    return this.#text;
  }

  /** Of the memory that `room` gave. */
  get words(): DataView {
    return this.#words;
  }

  /** A line was written into its room. @param end behind it @param from,at where its id is */
  wrote(end: number, from: DataView, at: number): void {
    this.#used = end;
    copyWords(from, at, ID_BYTES, this.#idWords, ++this.#count * ID_BYTES);
  }

  /** @param line with its newline; its bytes, a character each @throws RangeError for what is no id */
  add(id: string, line: string): void {
    if (id.length !== ID_BYTES) throw new RangeError(`no id of a record: ${id}`);
    const text = this.room(line.length);
    this.wrote(this.#used + text.write(line, this.#used, "latin1"), wordsOf(Buffer.from(id, "latin1")), 0);
  }
}
