/** Lines of a text that comes in chunks, for the main thread and for others: plain JavaScript. */
import { createHash } from "node:crypto";

const LF = 0x0a;

/** See lines.d.mts. */
export class Lines {
  #rest = [];
  #held = 0;
  count = 0;
  longest = 0;

  constructor(maxLine, onLine) {
    this.maxLine = maxLine;
    this.onLine = onLine;
  }

  add(chunk) {
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

  get isWhole() {
    return this.#held === 0;
  }

  #end(piece) {
    const length = this.#held + piece.length;
    this.count++;
    this.longest = Math.max(this.longest, length);
    if (this.onLine && length <= this.maxLine)
      this.onLine(this.#held > 0 ? Buffer.concat([...this.#rest, piece]) : piece);
    this.#rest = [];
    this.#held = 0;
  }
}

/** See lines.d.mts. */
export class TextFacts {
  #hash = createHash("sha256");
  #lines;
  #size = 0;

  constructor(maxLine, onLine) {
    this.#lines = new Lines(maxLine, onLine);
  }

  add(chunk) {
    this.#size += chunk.length;
    this.#hash.update(chunk);
    this.#lines.add(chunk);
  }

  end() {
    const { count, longest } = this.#lines;
    return { size: this.#size, lines: count, longest, sha256: this.#hash.digest("hex") };
  }
}
