/** Lines of text as UTF-8 bytes in one buffer that is used again: no text of a whole page is ever put together. */
export class Lines {
  #buffer: Buffer;
  #used = 0;

  /** @param bytes what is held at first; it grows to the longest page that comes */
  constructor(bytes = 1024 * 1024) {
    this.#buffer = Buffer.allocUnsafe(bytes);
  }

  /** One line; its end is added. */
  add(line: string): void {
    // A UTF-16 unit takes three bytes at most.
    const most = this.#used + 3 * line.length + 1;
    if (most > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(2 * most);
      this.#buffer.copy(larger, 0, 0, this.#used);
      this.#buffer = larger;
    }
    this.#used += this.#buffer.write(line, this.#used);
    this.#buffer[this.#used++] = 10;
  }

  /** What was added since the last take; its bytes hold until the next line is added. */
  take(): Uint8Array {
    const taken = this.#buffer.subarray(0, this.#used);
    this.#used = 0;
    return taken;
  }
}
