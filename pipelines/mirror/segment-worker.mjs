/**
 * A thread of segment-threads.ts. Plain JavaScript, so that it starts without a loader. A segment is read twice at most:
 * `prove` unpacks it, hashes its lines into tiles, holds their root against the one asked for, packs the entry bundles
 * and picks the leaves that the walk has to read; `cards` verifies the signatures of cards of a segment that was proven.
 * `frame` tells what a shard or a file of lines unpacks to.
 * Memory is a window of the unpacked bytes, the hashes, and the packed bundles.
 */
import { hash, verify } from "node:crypto";
import { parentPort } from "node:worker_threads";
import { gzipSync } from "node:zlib";
import { keyFrom } from "../../infra/keys/raw-key.mjs";
import { BadFrame, unpackBlocks } from "../../infra/zstd-blocks.mjs";
import { TextFacts } from "../published/lines.mjs";
import { signedBytesOf } from "../record/card-cut.mjs";

const WIDTH = 256;
const LEAVES = WIDTH * WIDTH;
const HASH = 32;
/** Unpacked at once. */
const BLOCK = 1024 * 1024;
const LF = 0x0a;
/** Room for a packed bundle in one piece, and so little that it is not fetched from the system and given back for each. */
const PACKED_BYTES = 96 * 1024;

/** Calls `onLine(window, start, end)` for every line; the byte before `start` is the 0 that RFC 6962 puts before a leaf. */
function eachLine(packed, maxLine, onLine) {
  const window = Buffer.allocUnsafeSlow(1 + maxLine + BLOCK);
  window[0] = 0;
  let [filled, count] = [1, 0];
  const room = () => window.subarray(filled, filled + BLOCK);
  for (const produced of unpackBlocks(packed, Number.POSITIVE_INFINITY, room)) {
    filled += produced;
    const view = window.subarray(0, filled);
    let start = 1;
    for (let at = view.indexOf(LF, start); at >= 0; at = view.indexOf(LF, start)) {
      if (++count > LEAVES) throw new BadFrame(`more than ${LEAVES} lines`);
      if (at - start > maxLine) throw new BadFrame(`a line of more than ${maxLine} bytes`);
      onLine(window, start, at);
      window[at] = 0;
      start = at + 1;
    }
    if (filled - start > maxLine) throw new BadFrame(`a line of more than ${maxLine} bytes`);
    window.copy(window, 1, start, filled);
    filled = 1 + filled - start;
  }
  if (filled > 1) throw new BadFrame("it ends within a line");
  if (count !== LEAVES) throw new BadFrame(`${count} lines`);
}

/** A hash by way of its latin1 text: a buffer for each costs more than the hash. */
const hashInto = (bytes, out, at) => out.latin1Write(hash("sha256", bytes, "latin1"), at, HASH);

const nodes = Buffer.allocUnsafeSlow(WIDTH * HASH);
const pair = Buffer.alloc(1 + 2 * HASH, 1);

/** Root over 256 hashes, level by level in place. */
function rootInto(hashes, at, out, outAt) {
  hashes.copy(nodes, 0, at, at + WIDTH * HASH);
  for (let n = WIDTH / 2; n >= 1; n /= 2) {
    for (let i = 0; i < n; i++) {
      nodes.copy(pair, 1, 2 * i * HASH, (2 * i + 2) * HASH);
      hashInto(pair, nodes, i * HASH);
    }
  }
  nodes.copy(out, outAt, 0, HASH);
}

/** Entry bundle in the making: every entry behind its length (C2SP tlog-tiles), in memory that is used again. */
class Bundle {
  #bytes = Buffer.allocUnsafeSlow(1024 * 1024);
  #size = 0;

  add(window, start, end) {
    const length = end - start;
    if (this.#size + 2 + length > this.#bytes.length) {
      this.#bytes = Buffer.concat([this.#bytes.subarray(0, this.#size)], 2 * this.#bytes.length + length);
    }
    this.#size = this.#bytes.writeUInt16BE(length, this.#size);
    window.copy(this.#bytes, this.#size, start, end);
    this.#size += length;
  }

  packed(level) {
    const packed = gzipSync(this.#bytes.subarray(0, this.#size), { level, chunkSize: PACKED_BYTES });
    this.#size = 0;
    return packed;
  }
}

/** The value, or null when the text is no JSON. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Kinds of leaves that name what the walk has to follow. */
const FOLLOWED = new Set(["keys", "index", "evidence", "archive"]);

function prove({ packed, want, first, maxLine, level }) {
  const bytes = Buffer.from(packed.buffer, packed.byteOffset, packed.length);
  const hashes = Buffer.allocUnsafeSlow(LEAVES * HASH);
  const tops = Buffer.allocUnsafeSlow(WIDTH * HASH);
  const bundle = new Bundle();
  const bundles = [];
  const followed = [];
  let [i, bad] = [0, null];
  eachLine(bytes, maxLine, (window, start, end) => {
    hashInto(window.subarray(start - 1, end), hashes, i * HASH);
    bundle.add(window, start, end);
    const { kind, index } = parsed(window.toString("utf8", start, end)) ?? {};
    if (index !== first + i) bad ??= { i, text: window.toString("utf8", start, Math.min(end, start + 80)) };
    else if (FOLLOWED.has(kind)) followed.push({ i, entry: new Uint8Array(window.subarray(start, end)) });
    i++;
    if (i % WIDTH > 0) return;
    bundles.push(bundle.packed(level));
    rootInto(hashes, (i - WIDTH) * HASH, tops, (i / WIDTH - 1) * HASH);
  });
  const root = Buffer.alloc(HASH);
  rootInto(tops, 0, root, 0);
  if (!root.equals(want)) throw new BadFrame(root.toString("hex"));
  const lengths = bundles.map((one) => one.length);
  const together = Buffer.concat(bundles);
  const answer = { packed, hashes, tops, bundles: together, lengths, followed, bad };
  return { answer, moved: [packed.buffer, hashes.buffer, tops.buffer, together.buffer] };
}

/** Cards from leaf `from` of the segment on that no key of their position signed, or that only the long way tells of. */
function cards({ packed, maxLine, from, epochs }) {
  const doubtful = [];
  const byKid = epochs.map(({ vouching }) => new Map(vouching));
  let [i, epoch] = [0, 0];
  eachLine(Buffer.from(packed.buffer, packed.byteOffset, packed.length), maxLine, (window, start, end) => {
    while (epochs[epoch + 1] && epochs[epoch + 1].from <= i) epoch++;
    const at = i++;
    if (at < from) return;
    const entry = window.subarray(start, end);
    const { kind, card } = parsed(entry.toString("utf8")) ?? {};
    if (kind !== "grade") return;
    const job = signedBytesOf(entry, card, (kid) => byKid[epoch]?.get(kid) ?? null);
    if (job && verify(null, job.bytes, keyFrom(job.publicKey), job.signature)) return;
    doubtful.push({ i: at, epoch, entry: new Uint8Array(entry) });
  });
  return { answer: { packed, doubtful }, moved: [packed.buffer] };
}

let block = null;

/** What a frame of lines unpacks to. Its lines are only counted, so none is held, however long. */
function frame({ packed, maxBytes }) {
  block ??= Buffer.allocUnsafeSlow(BLOCK);
  const facts = new TextFacts(0);
  const bytes = Buffer.from(packed.buffer, packed.byteOffset, packed.length);
  for (const produced of unpackBlocks(bytes, maxBytes, () => block)) facts.add(block.subarray(0, produced));
  return { answer: facts.end() };
}

const WORK = { prove, cards, frame };

parentPort.on("message", (ask) => {
  try {
    const { answer, moved = [] } = WORK[ask.what](ask);
    parentPort.postMessage({ ask: ask.ask, ...answer }, moved);
  } catch (error) {
    if (!(error instanceof BadFrame)) throw error;
    parentPort.postMessage({ ask: ask.ask, got: error.message });
  }
});
