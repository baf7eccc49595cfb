import { createHash } from "node:crypto";

/** A quote within a string of JSON is escaped, so this stands once in a line of probes: where the member is. */
const MEMBER = Buffer.from(',"record_id":"');
const ID_BYTES = 30;
const NEEDED = MEMBER.length + ID_BYTES;
const AT_ONCE = 2_048;

/**
 * Ids of records in the order of their lines, hashed: of those that lines are made of, and of those that a text tells. A line
 * that tells none, another one or two makes another hash.
 */
export class LineIds {
  readonly #hash = createHash("sha256");
  readonly #ids = Buffer.allocUnsafe(AT_ONCE * ID_BYTES);
  #used = 0;
  /** Bytes of the text before the next piece, in which a member may have begun. */
  #rest: Uint8Array = new Uint8Array();

  /** Ids as they are. */
  add(ids: readonly string[]): void {
    this.#hash.update(ids.join(""), "latin1");
  }

  /** The next piece of a text, wherever it was cut. It is read before this returns. */
  read(piece: Uint8Array): void {
    const text = Buffer.concat([this.#rest, piece]);
    let from = 0;
    for (let at = text.indexOf(MEMBER); at >= 0 && at + NEEDED <= text.length; at = text.indexOf(MEMBER, from)) {
      from = at + NEEDED;
      this.#used += text.copy(this.#ids, this.#used, at + MEMBER.length, from);
      if (this.#used === this.#ids.length) this.#flush();
    }
    this.#rest = Uint8Array.prototype.slice.call(text, Math.max(from, text.length - NEEDED + 1));
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
