/** The one reader of zstd frames, for the main thread (zstd.ts) and for others: plain JavaScript. */
import binding from "zstd-napi/binding.js";

/** Not one zstd frame, or longer than announced. */
export class BadFrame extends Error {
  name = "BadFrame";
}

/** See zstd-blocks.d.mts. */
export function* unpackBlocks(packed, maxBytes, roomFor) {
  const frame = new binding.DCtx();
  let [left, size, ended] = [packed, 0, false];
  for (let more = left.length > 0; more; ) {
    if (ended) throw new BadFrame(`${left.length} bytes behind the end of its frame`);
    const room = roomFor();
    const [hint, produced, consumed] = step(frame, room, left);
    left = left.subarray(consumed);
    ended = hint === 0;
    size += produced;
    if (size > maxBytes) throw new BadFrame(`it unpacks to more than ${maxBytes} bytes`);
    // A full block may have left more behind it although nothing is left to read.
    more = left.length > 0 || (!ended && produced === room.length);
    if (produced > 0) yield produced;
  }
  if (!ended) throw new BadFrame("it ends within its frame");
}

function step(frame, room, left) {
  try {
    return frame.decompressStream(room, left);
  } catch (error) {
    throw new BadFrame(error.message);
  }
}
