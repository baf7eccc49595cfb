import { leafHash, rootOf, sameHash } from "../../infra/tree/hash.ts";
import { SEGMENT_LEAVES, TILE_WIDTH } from "../../infra/tree/path.ts";
import { MAX_LEAF_BYTES } from "../record/leaf.ts";
import { BadFrame, FrameReader } from "./unpack.ts";

const LF = 0x0a;
/** All that 65,536 leaves of full length have. */
const MAX_SEGMENT_BYTES = SEGMENT_LEAVES * (MAX_LEAF_BYTES + 1);

/** Cuts chunks into lines; what is longer than any leaf, or too much, is none of a segment. */
class Lines {
  #rest: Buffer = Buffer.alloc(0);
  count = 0;

  /** @param onLine may not keep the line: its memory is used again @throws BadFrame */
  constructor(private readonly onLine: (line: Buffer) => void) {}

  readonly add = (chunk: Buffer): void => {
    let from = 0;
    for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, from)) {
      const line = chunk.subarray(from, at);
      if (++this.count > SEGMENT_LEAVES) throw new BadFrame(`more than ${SEGMENT_LEAVES} lines`);
      this.onLine(this.#rest.length > 0 ? Buffer.concat([this.#rest, line]) : line);
      if (this.#rest.length > 0) this.#rest = Buffer.alloc(0);
      from = at + 1;
    }
    if (from === chunk.length) return;
    this.#rest = Buffer.concat([this.#rest, chunk.subarray(from)]);
    if (this.#rest.length > MAX_LEAF_BYTES) throw new BadFrame(`a line of more than ${MAX_LEAF_BYTES} bytes`);
  };

  end(): void {
    if (this.#rest.length > 0) throw new BadFrame("it ends within a line");
  }
}

/** Leaf hashes of a segment in order if they lead to `root`, its hash in level 2; else what came instead. */
export async function segmentHashes(
  packed: Uint8Array,
  root: Uint8Array,
): Promise<{ ok: true; hashes: Buffer[] } | { ok: false; got: string }> {
  const hashes: Buffer[] = [];
  const lines = new Lines((line) => hashes.push(leafHash(line)));
  try {
    const frame = new FrameReader(MAX_SEGMENT_BYTES, lines.add);
    await frame.write(packed);
    frame.end();
    lines.end();
  } catch (error) {
    if (error instanceof BadFrame) return { ok: false, got: error.message };
    throw error;
  }
  if (hashes.length !== SEGMENT_LEAVES) return { ok: false, got: `${hashes.length} lines` };
  const got = rootOf(hashes);
  return sameHash(got, root) ? { ok: true, hashes } : { ok: false, got: got.toString("hex") };
}

/** Packed bytes that are unpacked between two bundles' worth of lines. */
const SLICE_BYTES = 64 * 1024;

/** The leaves of a segment that was proven, 256 at a time. */
export async function* segmentBundles(packed: Uint8Array): AsyncGenerator<Buffer[]> {
  let held: Buffer[] = [];
  const lines = new Lines((line) => held.push(Buffer.from(line)));
  const frame = new FrameReader(MAX_SEGMENT_BYTES, lines.add);
  for (let at = 0; at < packed.length; at += SLICE_BYTES) {
    await frame.write(packed.subarray(at, at + SLICE_BYTES));
    let from = 0;
    for (; from + TILE_WIDTH <= held.length; from += TILE_WIDTH) yield held.slice(from, from + TILE_WIDTH);
    if (from > 0) held = held.slice(from);
  }
}
