/**
 * A text on its way into one zstd frame, wherever it is packed: on the main thread or on that of hash-worker.mjs. Plain
 * JavaScript, so that the thread starts without a loader.
 */
import binding from "zstd-napi/binding.js";

const { CCtx, CParameter, EndDirective } = binding;
const PART_BYTES = 1024 * 1024;
const NOTHING = new Uint8Array();

export class FrameParts {
  #frame = new CCtx();
  #parts = [];
  #part = null;
  #used = 0;

  /** @param level of zstd */
  constructor(level) {
    this.#frame.setParameter(CParameter.compressionLevel, level);
  }

  /** The next piece. It was read when this returns. */
  add(piece) {
    for (let rest = piece; rest.length > 0; ) rest = rest.subarray(this.#step(rest, EndDirective.continue).consumed);
  }

  /** Once, at the end. @returns the frame in parts, each in memory that holds nothing else */
  end() {
    while (this.#step(NOTHING, EndDirective.end).left !== 0);
    if (this.#used > 0) this.#parts.push(this.#part.slice(0, this.#used));
    return this.#parts;
  }

  #step(rest, directive) {
    this.#part ??= new Uint8Array(PART_BYTES);
    const [left, produced, consumed] = this.#frame.compressStream2(this.#part.subarray(this.#used), rest, directive);
    this.#used += produced;
    if (this.#used === this.#part.length) {
      this.#parts.push(this.#part);
      [this.#part, this.#used] = [null, 0];
    }
    return { left, consumed };
  }
}
