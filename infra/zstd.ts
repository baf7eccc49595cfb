import { createHash } from "node:crypto";
import { once } from "node:events";
import { setImmediate as turn } from "node:timers/promises";
import { CompressStream, compress } from "zstd-napi";
import binding from "zstd-napi/binding.js";

const LEVEL = { compressionLevel: 3 };
/** Up to here a text is packed in one call; a stream costs some milliseconds however little goes through it. */
const AT_ONCE_BYTES = 1024 * 1024;

/** A frame, and what it unpacks to. */
export interface PackedText {
  packed: Buffer;
  /** Of the text, lower-case hex, and its length. */
  sha256: string;
  bytes: number;
}

/**
 * A text on its way into one zstd frame, hashed on the way in; of a large one only packed bytes are held. Whoever packs
 * the same pieces with the same build of zstd has the same bytes.
 */
export class ZstdPacking {
  readonly #hash = createHash("sha256");
  readonly #held: Uint8Array[] = [];
  #stream: ReturnType<typeof begun> | null;
  #bytes = 0;

  /** @param streamed however short it is: a frame that does not say how long its text is, as those of the archive */
  constructor(streamed = false) {
    this.#stream = streamed ? begun() : null;
  }

  /**
   * @param piece is the packing's own from now on. Some milliseconds of work a megabyte, between which others get their
   * turn.
   */
  async add(piece: Uint8Array): Promise<void> {
    this.#hash.update(piece);
    this.#bytes += piece.length;
    this.#held.push(piece);
    if (!this.#stream && this.#bytes <= AT_ONCE_BYTES) return;
    this.#stream ??= begun();
    const { frame } = this.#stream;
    for (const held of this.#held.splice(0)) if (!frame.write(held)) await once(frame, "drain");
  }

  /** Once, at the end. */
  async end(): Promise<PackedText> {
    const packed = this.#stream ? await ended(this.#stream) : compress(Buffer.concat(this.#held), LEVEL);
    return { packed, sha256: this.#hash.digest("hex"), bytes: this.#bytes };
  }
}

function begun() {
  const frame = new CompressStream(LEVEL);
  const packed: Buffer[] = [];
  frame.on("data", (chunk: Buffer) => packed.push(chunk));
  const ended = once(frame, "end");
  // Looked at when it is ended; until then a failure is not an unhandled one.
  ended.catch(() => undefined);
  return { frame, ended, packed };
}

async function ended({ frame, ended, packed }: ReturnType<typeof begun>): Promise<Buffer> {
  frame.end();
  await ended;
  return Buffer.concat(packed);
}

/** Unpacked at once: what zstd itself writes a block of. */
const BLOCK_BYTES = 128 * 1024;
/** Unpacked bytes between two turns that others get: about 4 ms of work. */
const TURN_BYTES = 4 * 1024 * 1024;

/** Not one zstd frame, or longer than announced. */
export class BadFrame extends Error {
  override readonly name = "BadFrame";
}

/**
 * Unpack one frame of a stranger's that is in memory, in turns with others, whatever it claims of its size: memory is the
 * frame's window and one block. Exactly one frame is taken: a second one, or bytes behind it, would be read by some tools and
 * not by others. Nothing but `onChunk` keeps anything of it, and it may not keep the chunk itself: its memory is used again.
 * @returns how many bytes came @throws BadFrame past `maxBytes` bytes
 */
export async function streamFrame(
  packed: Uint8Array,
  maxBytes: number,
  onChunk: (chunk: Buffer) => void,
): Promise<number> {
  const frame = new binding.DCtx();
  const block = Buffer.allocUnsafe(BLOCK_BYTES);
  let [left, size, since, ended] = [packed, 0, 0, false];
  for (let more = left.length > 0; more; ) {
    if (ended) throw new BadFrame(`${left.length} bytes behind the end of its frame`);
    const [hint, produced, consumed] = step(frame, block, left);
    left = left.subarray(consumed);
    ended = hint === 0;
    size += produced;
    since += produced;
    if (size > maxBytes) throw new BadFrame(`it unpacks to more than ${maxBytes} bytes`);
    // A full block may have left more behind it although nothing is left to read.
    more = left.length > 0 || (!ended && produced === block.length);
    if (produced > 0) onChunk(block.subarray(0, produced));
    if (since < TURN_BYTES) continue;
    since = 0;
    await turn();
  }
  if (!ended) throw new BadFrame("it ends within its frame");
  return size;
}

function step(frame: InstanceType<typeof binding.DCtx>, block: Buffer, left: Uint8Array) {
  try {
    return frame.decompressStream(block, left);
  } catch (error) {
    throw new BadFrame((error as Error).message);
  }
}
