import { createHash } from "node:crypto";
import { once } from "node:events";
import { setImmediate as yieldToLoop } from "node:timers/promises";
import { Compressor, CompressStream, compress, Decompressor, decompress } from "zstd-napi";
import binding from "zstd-napi/binding.js";

const COMPRESSION_OPTIONS = { compressionLevel: 3 };
/** Texts up to this size are compressed in one call, since opening a stream costs some milliseconds. */
const MAX_SINGLE_CALL_BYTES = 1024 * 1024;

/** A zstd frame, and the hash and size of its text. */
export interface PackedText {
  packed: Buffer;
  /** Lower-case hex sha256 of the text. */
  sha256: string;
  /** Size of the text, bytes. */
  bytes: number;
}

/**
 * Compresses a text into one zstd frame and hashes it. Of a large text, only compressed bytes are kept in memory. The
 * same pieces give the same bytes with the same build of zstd.
 */
export class ZstdPacking {
  readonly #hash = createHash("sha256");
  readonly #pieces: Uint8Array[] = [];
  #stream: ReturnType<typeof openStream> | null;
  #textBytes = 0;

  /**
   * @param streamed true: also compresses a short text as a stream. The frame of a stream does not hold the size of
   * the text; the files of the archive have this form. false: a short text is compressed in one call
   */
  constructor(streamed = false) {
    this.#stream = streamed ? openStream() : null;
  }

  /**
   * Adds a piece of the text. Compressing takes some milliseconds per megabyte, and yields to the event loop in
   * between.
   * @param piece must not be changed after the call
   */
  async add(piece: Uint8Array): Promise<void> {
    this.#hash.update(piece);
    this.#textBytes += piece.length;
    this.#pieces.push(piece);
    if (!this.#stream && this.#textBytes <= MAX_SINGLE_CALL_BYTES) return;
    this.#stream ??= openStream();
    const { compressor } = this.#stream;
    for (const waitingPiece of this.#pieces.splice(0))
      if (!compressor.write(waitingPiece)) await once(compressor, "drain");
  }

  /** Ends the frame and returns it. May be called only once. */
  async end(): Promise<PackedText> {
    const packed = this.#stream
      ? await closeStream(this.#stream)
      : compress(Buffer.concat(this.#pieces), COMPRESSION_OPTIONS);
    return { packed, sha256: this.#hash.digest("hex"), bytes: this.#textBytes };
  }
}

function openStream() {
  const compressor = new CompressStream(COMPRESSION_OPTIONS);
  const packed: Buffer[] = [];
  compressor.on("data", (chunk: Buffer) => packed.push(chunk));
  const ended = once(compressor, "end");
  // `closeStream` throws this failure. Until then Node must not report it as an unhandled rejection.
  ended.catch(() => undefined);
  return { compressor, ended, packed };
}

async function closeStream({ compressor, ended, packed }: ReturnType<typeof openStream>): Promise<Buffer> {
  compressor.end();
  await ended;
  return Buffer.concat(packed);
}

/**
 * Packs short texts that resemble each other, to keep many of them in memory: the first text is the dictionary of all
 * others. A signed card of 1.4 kB takes some 0.3 kB; packing and unpacking take about 10 us each. Packed texts are
 * strings, since a `Buffer` of this size costs as much again. Only the packer that made them can unpack them.
 */
export class TextPacker {
  readonly #compressor = new Compressor();
  readonly #decompressor = new Decompressor();
  #hasDictionary = false;

  constructor() {
    this.#compressor.setParameters({ compressionLevel: 1, dictIDFlag: false });
  }

  /** @param text as a string, or its UTF-8 bytes */
  pack(text: string | Uint8Array): string {
    const bytes = typeof text === "string" ? Buffer.from(text, "utf8") : text;
    if (!this.#hasDictionary) {
      this.#compressor.loadDictionary(bytes);
      this.#decompressor.loadDictionary(bytes);
      this.#hasDictionary = true;
    }
    return this.#compressor.compress(bytes).toString("latin1");
  }

  unpack(packed: string): string {
    return this.#decompressor.decompress(Buffer.from(packed, "latin1")).toString("utf8");
  }
}

/** Size of the buffer for decompressed bytes: the largest block of zstd. */
const BLOCK_BYTES = 128 * 1024;
/** Decompressed bytes between two yields to the event loop, about 4 ms of work. */
const BYTES_PER_YIELD = 4 * 1024 * 1024;

/**
 * Thrown for bytes that are not whole zstd frames, or not a single frame where one is expected, and for frames that
 * decompress to more than allowed.
 */
export class BadFrame extends Error {
  override readonly name = "BadFrame";
}

/**
 * Decompresses one untrusted frame that is in memory, yielding to the event loop in between. Memory is bounded by the
 * frame's window and one block, whatever size the frame claims. Bytes after the frame are refused, since tools differ
 * in how they read a second frame or trailing bytes.
 * @param onChunk gets each chunk; it must copy the bytes it keeps, because the chunk's memory is reused
 * @returns the decompressed size in bytes
 * @throws BadFrame when the bytes are not exactly one frame, or decompress to more than `maxBytes`
 */
export async function streamFrame(
  packed: Uint8Array,
  maxBytes: number,
  onChunk: (chunk: Buffer) => void,
): Promise<number> {
  const decompressor = new binding.DCtx();
  const block = Buffer.allocUnsafe(BLOCK_BYTES);
  let [rest, size, bytesSinceYield, hasEnded] = [packed, 0, 0, false];
  for (let hasMore = rest.length > 0; hasMore; ) {
    if (hasEnded) throw new BadFrame(`${rest.length} bytes after the end of the frame`);
    const [hint, produced, consumed] = decompressStep(decompressor, block, rest);
    rest = rest.subarray(consumed);
    hasEnded = hint === 0;
    size += produced;
    bytesSinceYield += produced;
    if (size > maxBytes) throw new BadFrame(`the frame decompresses to more than ${maxBytes} bytes`);
    // After a full block the decompressor may hold more output, even when all input was consumed.
    hasMore = rest.length > 0 || (!hasEnded && produced === block.length);
    if (produced > 0) onChunk(block.subarray(0, produced));
    if (bytesSinceYield < BYTES_PER_YIELD) continue;
    bytesSinceYield = 0;
    await yieldToLoop();
  }
  if (!hasEnded) throw new BadFrame("the frame is cut off");
  return size;
}

/**
 * Decompresses untrusted frames, one after the other, at once.
 * @throws BadFrame when the bytes are not whole frames, or decompress to more than `maxBytes`
 */
export function unpackFrames(packed: Uint8Array, maxBytes: number): Buffer {
  const tooLongError = () => new BadFrame(`decompresses to more than ${maxBytes} bytes`);
  const statedBytes = statedSizeOf(packed);
  if (statedBytes !== null) {
    if (statedBytes > maxBytes) throw tooLongError();
    try {
      return decompress(packed);
    } catch (error) {
      throw new BadFrame((error as Error).message);
    }
  }
  const decompressor = new binding.DCtx();
  const blocks: Buffer[] = [];
  let [rest, size, lastHint] = [packed, 0, 0];
  for (let hasMore = rest.length > 0; hasMore; ) {
    const block = Buffer.allocUnsafe(BLOCK_BYTES);
    const [hint, produced, consumed] = decompressStep(decompressor, block, rest);
    rest = rest.subarray(consumed);
    lastHint = hint;
    size += produced;
    if (size > maxBytes) throw tooLongError();
    blocks.push(block.subarray(0, produced));
    hasMore = rest.length > 0 || (hint !== 0 && produced === block.length);
  }
  if (lastHint !== 0) throw new BadFrame("the frame is cut off");
  return Buffer.concat(blocks, size);
}

/** Returns the decompressed size that a single frame states; null for several frames, or a frame that states none. */
function statedSizeOf(packed: Uint8Array): number | null {
  try {
    return binding.findFrameCompressedSize(packed) === packed.length ? binding.getFrameContentSize(packed) : null;
  } catch (error) {
    throw new BadFrame((error as Error).message);
  }
}

function decompressStep(decompressor: InstanceType<typeof binding.DCtx>, block: Buffer, input: Uint8Array) {
  try {
    return decompressor.decompressStream(block, input);
  } catch (error) {
    throw new BadFrame((error as Error).message);
  }
}
