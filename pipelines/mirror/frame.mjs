/**
 * zstd frames of strangers on a thread (segment-worker.mjs): unpacked a block at a time whatever they claim of their size,
 * exactly one frame each, as unpack.ts does it on the main thread. Plain JavaScript.
 */
import { createHash } from "node:crypto";
import binding from "zstd-napi/binding.js";

const LF = 0x0a;
/** Unpacked at once. */
export const BLOCK = 1024 * 1024;

/** Not what it has to be; says why. */
export class Bad extends Error {}

/** Unpack into `window` from where `roomAt` says, at most BLOCK bytes a time, and tell `onBlock` how many came. */
export function eachBlock(packed, window, roomAt, onBlock) {
  const frame = new binding.DCtx();
  let [left, ended] = [packed, false];
  for (let more = left.length > 0; more; ) {
    if (ended) throw new Bad(`${left.length} bytes behind the end of its frame`);
    const at = roomAt();
    const [hint, produced, consumed] = unpack(frame, window.subarray(at, at + BLOCK), left);
    left = left.subarray(consumed);
    ended = hint === 0;
    // A full block may have left more behind it although nothing is left to read.
    more = left.length > 0 || (!ended && produced === BLOCK);
    onBlock(produced);
  }
  if (!ended) throw new Bad("it ends within its frame");
}

function unpack(frame, room, left) {
  try {
    return frame.decompressStream(room, left);
  } catch (error) {
    throw new Bad(error.message);
  }
}

let block = null;

/** What a frame of lines unpacks to: length, hash, lines, and the longest line. @throws Bad past `maxBytes` bytes */
export function frameOf({ packed, maxBytes }) {
  block ??= Buffer.allocUnsafeSlow(BLOCK);
  const hash = createHash("sha256");
  let [size, lines, line, longest] = [0, 0, 0, 0];
  const read = (produced) => {
    size += produced;
    if (size > maxBytes) throw new Bad(`it unpacks to more than ${maxBytes} bytes`);
    const chunk = block.subarray(0, produced);
    hash.update(chunk);
    let from = 0;
    for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, from)) {
      longest = Math.max(longest, line + at - from);
      [lines, line, from] = [lines + 1, 0, at + 1];
    }
    line += produced - from;
  };
  const bytes = Buffer.from(packed.buffer, packed.byteOffset, packed.length);
  eachBlock(bytes, block, () => 0, read);
  return { size, lines, longest: Math.max(longest, line), sha256: hash.digest("hex") };
}
