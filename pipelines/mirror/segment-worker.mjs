/**
 * A thread of segment-threads.ts. Plain JavaScript, so that it starts without a loader. It reads a segment twice at most:
 * `prove` unpacks it, hashes its lines into tiles, holds their root against the one asked for, packs the entry bundles
 * and picks the leaves that the walk has to read; `cards` verifies the signatures of cards of a segment that was proven.
 * Memory is a window of the unpacked bytes, the hashes, and the packed bundles.
 */
import { hash, verify } from "node:crypto";
import { parentPort } from "node:worker_threads";
import { gzipSync } from "node:zlib";
import binding from "zstd-napi/binding.js";
import { keyFrom } from "../../infra/keys/raw-key.mjs";
import { cardSpan, signedBytesOf } from "../record/card-cut.mjs";

const WIDTH = 256;
const LEAVES = WIDTH * WIDTH;
const HASH = 32;
const LF = 0x0a;
/** Unpacked at once, behind the line that is not whole yet. */
const BLOCK = 1024 * 1024;

/** No segment; says why. */
class Bad extends Error {}

/** Calls `onLine(window, start, end)` for every line; the byte before `start` is the 0 that RFC 6962 puts before a leaf. */
function eachLine(packed, maxLine, onLine) {
  const frame = new binding.DCtx();
  const window = Buffer.allocUnsafeSlow(1 + maxLine + BLOCK);
  window[0] = 0;
  let [filled, count, ended] = [1, 0, false];
  const take = () => {
    const view = window.subarray(0, filled);
    let start = 1;
    for (let at = view.indexOf(LF, start); at >= 0; at = view.indexOf(LF, start)) {
      if (++count > LEAVES) throw new Bad(`more than ${LEAVES} lines`);
      if (at - start > maxLine) throw new Bad(`a line of more than ${maxLine} bytes`);
      onLine(window, start, at);
      window[at] = 0;
      start = at + 1;
    }
    if (filled - start > maxLine) throw new Bad(`a line of more than ${maxLine} bytes`);
    window.copy(window, 1, start, filled);
    filled = 1 + filled - start;
  };
  let left = packed;
  for (let more = left.length > 0; more; ) {
    if (ended) throw new Bad(`${left.length} bytes behind the end of its frame`);
    const [hint, produced, consumed] = unpack(frame, window.subarray(filled, filled + BLOCK), left);
    left = left.subarray(consumed);
    filled += produced;
    ended = hint === 0;
    // A full block may have left more behind it although nothing is left to read.
    more = left.length > 0 || (!ended && produced === BLOCK);
    take();
  }
  if (!ended) throw new Bad("it ends within its frame");
  if (filled > 1) throw new Bad("it ends within a line");
  if (count !== LEAVES) throw new Bad(`${count} lines`);
}

function unpack(frame, room, left) {
  try {
    return frame.decompressStream(room, left);
  } catch (error) {
    throw new Bad(error.message);
  }
}

/** Nodes of one level from those below: `width` hashes, a power of two, down to one, in place. */
function rootInto(hashes, at, width, out, outAt) {
  const nodes = Buffer.from(hashes.subarray(at, at + width * HASH));
  const pair = Buffer.alloc(1 + 2 * HASH, 1);
  for (let n = width / 2; n >= 1; n /= 2) {
    for (let i = 0; i < n; i++) {
      nodes.copy(pair, 1, 2 * i * HASH, (2 * i + 2) * HASH);
      hash("sha256", pair, "buffer").copy(nodes, i * HASH);
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
    const packed = gzipSync(this.#bytes.subarray(0, this.#size), { level });
    this.#size = 0;
    return packed;
  }
}

/**
 * Kind and index of a leaf. Of a card's leaf only what stands behind the card is read: JSON takes the last of two members
 * of one name, so no card can say otherwise; what is in the card is for its signature to prove.
 */
function placeOf(entry) {
  const span = entry.indexOf('"card":{') > 0 ? cardSpan(entry) : null;
  const behind = span && parsed(`{${entry.toString("utf8", span.end + 1)}`);
  if (behind?.kind === "grade" && Number.isInteger(behind.index)) return behind;
  return parsed(entry.toString("utf8")) ?? {};
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const held = new Map();

/** Kinds of leaves that name what the walk has to follow. */
const FOLLOWED = new Set(["keys", "index", "evidence", "archive"]);

function prove({ id, packed, want, first, maxLine, level }) {
  const bytes = Buffer.from(packed.buffer, packed.byteOffset, packed.length);
  const hashes = Buffer.allocUnsafeSlow(LEAVES * HASH);
  const tops = Buffer.allocUnsafeSlow(WIDTH * HASH);
  const bundle = new Bundle();
  const bundles = [];
  const followed = [];
  let [i, bad] = [0, null];
  eachLine(bytes, maxLine, (window, start, end) => {
    hash("sha256", window.subarray(start - 1, end), "buffer").copy(hashes, i * HASH);
    bundle.add(window, start, end);
    const entry = window.subarray(start, end);
    const { kind, index } = placeOf(entry);
    if (index !== first + i) bad ??= { i, text: entry.toString("utf8", 0, 80) };
    else if (FOLLOWED.has(kind)) followed.push({ i, entry: new Uint8Array(entry) });
    i++;
    if (i % WIDTH > 0) return;
    bundles.push(bundle.packed(level));
    rootInto(hashes, (i - WIDTH) * HASH, WIDTH, tops, (i / WIDTH - 1) * HASH);
  });
  const root = Buffer.alloc(HASH);
  rootInto(tops, 0, WIDTH, root, 0);
  if (!root.equals(want)) throw new Bad(root.toString("hex"));
  held.set(id, bytes);
  return { hashes, tops, bundles, followed, bad };
}

/** Cards from leaf `from` of the segment on that no key of their place signed, or that only the long way tells of. */
function cards({ id, maxLine, from, epochs }) {
  const doubtful = [];
  const byKid = epochs.map(({ vouching }) => new Map(vouching));
  let [i, epoch] = [0, 0];
  eachLine(held.get(id), maxLine, (window, start, end) => {
    while (epochs[epoch + 1] && epochs[epoch + 1].from <= i) epoch++;
    const at = i++;
    if (at < from) return;
    const entry = window.subarray(start, end);
    if (placeOf(entry).kind !== "grade") return;
    const span = cardSpan(entry);
    const card = span && parsed(entry.toString("utf8", span.start, span.end));
    const job = card && signedBytesOf(entry, card, (kid) => byKid[epoch]?.get(kid) ?? null);
    if (job && verify(null, job.bytes, keyFrom(job.publicKey), job.signature)) return;
    doubtful.push({ i: at, epoch, entry: new Uint8Array(entry) });
  });
  return { doubtful };
}

const WORK = { prove, cards };

parentPort.on("message", (ask) => {
  if (ask.what === "forget") return void held.delete(ask.id);
  try {
    parentPort.postMessage({ ask: ask.ask, ...WORK[ask.what](ask) });
  } catch (error) {
    if (!(error instanceof Bad)) throw error;
    parentPort.postMessage({ ask: ask.ask, got: error.message });
  }
});
