import { createHash } from "node:crypto";

const LF = 0x0a;

/** Cuts chunks into lines, counts them and notes the longest, the one that is not ended yet included. */
export class Lines {
  #rest: Buffer[] = [];
  #held = 0;
  count = 0;
  longest = 0;

  /**
   * @param maxLine longer ones are counted and not handed out: no stranger's line fills the memory
   * @param onLine told of each line, without its newline; may not keep it, since its memory is used again
   */
  constructor(
    private readonly maxLine: number,
    private readonly onLine?: (line: Buffer) => void,
  ) {}

  add(chunk: Buffer): void {
    let from = 0;
    for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, from)) {
      this.#end(chunk.subarray(from, at));
      from = at + 1;
    }
    this.#held += chunk.length - from;
    this.longest = Math.max(this.longest, this.#held);
    // What is too long already is not held any further, and a copy is held since the chunk's memory is used again.
    if (this.onLine && this.#held > 0 && this.#held <= this.maxLine) this.#rest.push(Buffer.from(chunk.subarray(from)));
  }

  /** Does it end behind a newline? */
  get isWhole(): boolean {
    return this.#held === 0;
  }

  #end(piece: Buffer): void {
    const length = this.#held + piece.length;
    this.count++;
    this.longest = Math.max(this.longest, length);
    if (this.onLine && length <= this.maxLine)
      this.onLine(this.#held > 0 ? Buffer.concat([...this.#rest, piece]) : piece);
    this.#rest = [];
    this.#held = 0;
  }
}

/** What a text of lines is: bytes, lines, the longest of them without its newline, and the hash of all. */
export interface TextOfLines {
  size: number;
  lines: number;
  longest: number;
  sha256: string;
}

/** The same of a text, and its length and hash. */
export class TextFacts {
  readonly #hash = createHash("sha256");
  readonly #lines: Lines;
  #size = 0;

  constructor(maxLine: number, onLine?: (line: Buffer) => void) {
    this.#lines = new Lines(maxLine, onLine);
  }

  add(chunk: Buffer): void {
    this.#size += chunk.length;
    this.#hash.update(chunk);
    this.#lines.add(chunk);
  }

  end(): TextOfLines {
    const { count, longest } = this.#lines;
    return { size: this.#size, lines: count, longest, sha256: this.#hash.digest("hex") };
  }
}
