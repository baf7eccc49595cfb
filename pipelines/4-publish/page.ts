const FIRST_BYTES = 512 * 1024;

/**
 * Text of one object after another in the same memory. V8 counts what lies outside its heap: fresh buffers of a large
 * index, hundreds of KiB each, made it mark the whole fold every few dozen shards, and everybody waited for seconds.
 */
export class Page {
  #memory = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #length = 0;

  /** What was added since the last {@link clear}; the same memory, so it is read before the next. */
  get bytes(): Buffer {
    return this.#memory.subarray(0, this.#length);
  }

  clear(): void {
    this.#length = 0;
  }

  add(text: string): void {
    // UTF-8 takes three bytes for a UTF-16 unit at most.
    const most = this.#length + 3 * text.length;
    if (most > this.#memory.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(most, 2 * this.#memory.length));
      this.#memory.copy(larger, 0, 0, this.#length);
      this.#memory = larger;
    }
    this.#length += this.#memory.write(text, this.#length);
  }
}
