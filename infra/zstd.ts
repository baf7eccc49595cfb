import { setImmediate as turn } from "node:timers/promises";
import { unpackBlocks } from "./zstd-blocks.mjs";

export { BadFrame } from "./zstd-blocks.mjs";

/** Unpacked at once: what zstd itself writes a block of. */
const BLOCK_BYTES = 128 * 1024;
/** Unpacked bytes between two turns that others get: about 4 ms of work. */
const TURN_BYTES = 4 * 1024 * 1024;

/**
 * Unpack one frame of a stranger's that is in memory, in turns with others; nothing but `onChunk` keeps anything of it, and
 * it may not keep the chunk itself: its memory is used again.
 * @returns how many bytes came @throws BadFrame past `maxBytes` bytes
 */
export async function streamFrame(
  packed: Uint8Array,
  maxBytes: number,
  onChunk: (chunk: Buffer) => void,
): Promise<number> {
  const block = Buffer.allocUnsafe(BLOCK_BYTES);
  let [size, since] = [0, 0];
  for (const produced of unpackBlocks(packed, maxBytes, () => block)) {
    onChunk(block.subarray(0, produced));
    size += produced;
    since += produced;
    if (since < TURN_BYTES) continue;
    since = 0;
    await turn();
  }
  return size;
}

/** The same, in one piece. @throws BadFrame past `maxBytes` bytes */
export async function unpackFrame(packed: Uint8Array, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  const size = await streamFrame(packed, maxBytes, (chunk) => chunks.push(Buffer.from(chunk)));
  return Buffer.concat(chunks, size);
}
