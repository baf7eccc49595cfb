import { createHash } from "node:crypto";
import { ID_BYTES } from "./line-piece.ts";
import { copyWords, wordsOf } from "./words.ts";

/** A quote within a string of JSON is escaped, so this stands once in a line of probes: where the member is. */
const MEMBER = Buffer.from(',"record_id":"');
const NEEDED = MEMBER.length + ID_BYTES;
const AT_ONCE = 2_048;

/**
 * Ids of records in the order of their lines, hashed: of those that lines are made of, and of those that a text tells. A line
 * that tells none, another one or two makes another hash.
 */
export class LineIds {
  readonly #hash = createHash("sha256");
  readonly #ids = Buffer.allocUnsafe(AT_ONCE * ID_BYTES);
  readonly #idWords = wordsOf(this.#ids);
  #used = 0;
  /** Bytes of the text before the next piece, in which a member may have begun. */
  #rest: Uint8Array = new Uint8Array();

  /** Ids as they are, one behind the other. */
  add(ids: Uint8Array): void {
    this.#hash.update(ids);
  }

  /** The next piece of a text, wherever it was cut. It is read before this returns. */
  read(piece: Uint8Array): void {
    const text = Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    // What began in the piece before ends in the first bytes of this one.
    const seam = Buffer.concat([this.#rest, text.subarray(0, NEEDED - 1)]);
    const end = this.#readAll(seam, 0);
    if (text.length < NEEDED) {
      this.#rest = seam.subarray(Math.max(end, seam.length - NEEDED + 1));
      return;
    }
    const from = this.#readAll(text, Math.max(0, end - this.#rest.length));
    this.#rest = Uint8Array.prototype.slice.call(text, Math.max(from, text.length - NEEDED + 1));
  }

  /** @param first where to begin @returns behind the last member that is all here, or `first` */
  #readAll(text: Buffer, first: number): number {
    const words = wordsOf(text);
    let from = first;
    for (let at = text.indexOf(MEMBER, from); at >= 0 && at + NEEDED <= text.length; at = text.indexOf(MEMBER, from)) {
      from = at + NEEDED;
      copyWords(words, at + MEMBER.length, ID_BYTES, this.#idWords, this.#used);
      this.#used += ID_BYTES;
      if (this.#used === this.#ids.length) this.#flush();
    }
    return from;
  }

  /** Once, at the end: lower-case hex. */
  digest(): string {
    this.#flush();
    return this.#hash.digest("hex");
  }

  #flush(): void {
    this.#hash.update(this.#ids.subarray(0, this.#used));
    this.#used = 0;
  }
}
