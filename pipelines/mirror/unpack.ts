import { setImmediate as turn } from "node:timers/promises";
import binding from "zstd-napi/binding.js";

/** Unpacked bytes between two turns that others get: about 4 ms of work. */
const TURN_BYTES = 4 * 1024 * 1024;

/** Not one zstd frame, or longer than announced. */
export class BadFrame extends Error {
  constructor(says: string) {
    super(says);
    this.name = "BadFrame";
  }
}

/**
 * Unpacks a stranger's zstd bytes as they come, a block at a time, whatever they claim of their size: memory is the
 * frame's window and one block. Exactly one frame is taken: a second one, or bytes behind it, would be read by some
 * tools and not by others.
 */
export class FrameReader {
  readonly #frame = new binding.DCtx();
  readonly #out = Buffer.allocUnsafe(binding.dStreamOutSize());
  #ended = false;
  /** Bytes unpacked so far. */
  size = 0;

  /** @param onChunk may not keep the chunk: its memory is used again */
  constructor(
    private readonly maxBytes: number,
    private readonly onChunk: (chunk: Buffer) => void,
  ) {}

  /** The next packed bytes. @throws BadFrame past `maxBytes` unpacked ones */
  async write(packed: Uint8Array): Promise<void> {
    let left = packed;
    let since = 0;
    // A full block may have left more behind it although nothing is left to read.
    for (let more = left.length > 0; more; ) {
      if (this.#ended) throw new BadFrame(`${left.length} bytes behind the end of its frame`);
      const { ended, produced, consumed } = this.#step(left);
      this.#ended = ended;
      left = left.subarray(consumed);
      more = left.length > 0 || (!ended && produced === this.#out.length);
      since += produced;
      if (since < TURN_BYTES) continue;
      since = 0;
      await turn();
    }
  }

  /** @returns how many bytes came @throws BadFrame when the frame is not whole */
  end(): number {
    if (!this.#ended) throw new BadFrame("it ends within its frame");
    return this.size;
  }

  #step(packed: Uint8Array): { ended: boolean; produced: number; consumed: number } {
    let done: readonly [unknown, number, number];
    try {
      done = this.#frame.decompressStream(this.#out, packed);
    } catch (error) {
      throw new BadFrame((error as Error).message);
    }
    const [left, produced, consumed] = done;
    this.size += produced;
    if (this.size > this.maxBytes) throw new BadFrame(`it unpacks to more than ${this.maxBytes} bytes`);
    if (produced > 0) this.onChunk(this.#out.subarray(0, produced));
    return { ended: left === 0, produced, consumed };
  }
}

/**
 * Unpack one frame that is in memory; nothing but `onChunk` keeps anything of it, and it may not keep the chunk itself.
 * @returns how many bytes came @throws BadFrame past `maxBytes` bytes
 */
export async function streamFrame(
  packed: Uint8Array,
  maxBytes: number,
  onChunk: (chunk: Buffer) => void,
): Promise<number> {
  const reader = new FrameReader(maxBytes, onChunk);
  await reader.write(packed);
  return reader.end();
}

/** The same, in one piece. @throws BadFrame past `maxBytes` bytes */
export async function unpackFrame(packed: Uint8Array, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  const size = await streamFrame(packed, maxBytes, (chunk) => chunks.push(Buffer.from(chunk)));
  return Buffer.concat(chunks, size);
}
