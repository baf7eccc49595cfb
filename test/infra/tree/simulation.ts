import { createHash } from "node:crypto";
import { TILE_WIDTH, tilePath } from "../../../infra/tree/path.ts";
import { consistencyProof, verifyConsistency } from "../../../infra/tree/proof.ts";
import { TileReader, TreeState } from "../../../infra/tree/tiles.ts";
import { inclusionProof, verifyInclusion } from "./inclusion.ts";

/**
 * A tree without leaves to look at: hashes alone, at any size, with its tiles in a store of the contract's shape and
 * every hash of it computed a second time by {@link Levels}, which knows nothing of tiles.
 */
export class Simulation {
  state = TreeState.empty;
  readonly tiles = new Map<string, Buffer>();
  readonly levels = new Levels();
  /** Root at every size at which a checkpoint stood. */
  readonly heads: { size: number; root: Buffer }[] = [];
  #made = 0;

  /** Grow by `count` leaves as one publication; every tile that it gives is created, never written over. */
  grow(count: number): void {
    const leaves = Array.from({ length: count }, () => sha256(Buffer.from(`leaf ${this.#made++}`)));
    for (const leaf of leaves) this.levels.push(leaf);
    const { state, tiles } = this.state.append(leaves);
    for (const { level, n, width, bytes } of tiles) {
      const path = tilePath(level, n, width);
      if (this.tiles.has(path)) throw new Error(`${path} would be written twice`);
      this.tiles.set(path, bytes);
      this.#checkTile(level, n, width, bytes);
    }
    this.state = state;
    if (!state.root().equals(this.levels.root(state.size))) throw new Error(`another root at ${state.size}`);
    this.heads.push({ size: state.size, root: state.root() });
  }

  /** What may be deleted after 48 hours: partial tiles whose full one is there. @returns how many */
  dropPartials(): number {
    let dropped = 0;
    for (const path of this.tiles.keys()) {
      const whole = /^(.*)\.p\/\d+$/.exec(path)?.[1];
      if (whole !== undefined && this.tiles.has(whole)) dropped += Number(this.tiles.delete(path));
    }
    return dropped;
  }

  /** Tiles that C2SP tlog-tiles asks for at the size now, and no other: full ones, and one partial a level. */
  wantedTiles(): Set<string> {
    const wanted = new Set<string>();
    for (let level = 0, hashes = this.state.size; hashes > 0; level++, hashes = Math.floor(hashes / TILE_WIDTH)) {
      for (let n = 0; n < Math.floor(hashes / TILE_WIDTH); n++) wanted.add(tilePath(level, n));
      if (hashes % TILE_WIDTH) wanted.add(tilePath(level, Math.floor(hashes / TILE_WIDTH), hashes % TILE_WIDTH));
    }
    return wanted;
  }

  reader(size: number, root: Buffer): Promise<TileReader> {
    return TileReader.open(size, root, async (path) => this.tiles.get(path) ?? null);
  }

  /** Inclusion of one leaf and consistency with one older head, each against the second computation. */
  async prove(reader: TileReader, index: number, older: { size: number; root: Buffer }): Promise<void> {
    const { size } = reader;
    const root = this.levels.root(size);
    const leaf = this.levels.node(0, index);
    const proof = await inclusionProof(index, size, reader.node);
    if (!same(proof, this.levels.path(index, size))) throw new Error(`another inclusion proof of ${index} in ${size}`);
    if (!verifyInclusion(index, size, leaf, proof, root)) throw new Error(`${index} is not included in ${size}`);
    const steps = await consistencyProof(older.size, size, reader.node);
    if (!verifyConsistency(older.size, size, older.root, root, steps)) throw new Error(`${older.size} -> ${size}`);
    const bad = Buffer.from(older.root);
    bad[index % 32]! ^= 1;
    if (verifyConsistency(older.size, size, bad, root, steps)) throw new Error("a false root is consistent");
    if (verifyInclusion(index, size, bad, proof, root)) throw new Error("a false leaf is included");
  }

  /** Every hash of a tile is a node of the second computation, eight levels up for each level of tiles. */
  #checkTile(level: number, n: number, width: number, bytes: Buffer): void {
    if (bytes.length !== width * 32) throw new Error(`${tilePath(level, n, width)} has ${bytes.length} bytes`);
    if (!this.levels.nodes(level * 8, n * TILE_WIDTH, width).equals(bytes)) {
      throw new Error(`${tilePath(level, n, width)} is not its ${width} hashes`);
    }
  }
}

const sha256 = (...parts: Uint8Array[]): Buffer => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
};
const NODE = Buffer.of(1);
const same = (a: readonly Uint8Array[], b: readonly Uint8Array[]): boolean =>
  a.length === b.length && a.every((hash, i) => Buffer.compare(hash, b[i]!) === 0);

/**
 * RFC 6962 by levels of a binary tree: every complete subtree's hash in one flat array a level. The other shapes follow
 * from the definition: a range is split at the largest power of two below its length.
 */
export class Levels {
  readonly #levels: { bytes: Buffer; count: number }[] = [];

  push(leaf: Buffer): void {
    let hash = leaf;
    for (let level = 0; ; level++) {
      const held = this.#append(level, hash);
      if (held % 2 === 1) return;
      hash = sha256(NODE, this.node(level, held - 2), this.node(level, held - 1));
    }
  }

  /** Hash of leaves [index * 2^level, (index + 1) * 2^level). */
  node(level: number, index: number): Buffer {
    return this.nodes(level, index, 1);
  }

  /** `count` neighbours of one level. */
  nodes(level: number, index: number, count: number): Buffer {
    const held = this.#levels[level];
    if (!held || index + count > held.count) throw new RangeError(`no node ${index + count - 1} on level ${level}`);
    return held.bytes.subarray(index * 32, (index + count) * 32);
  }

  root(size: number): Buffer {
    return size === 0 ? sha256() : this.#range(0, size);
  }

  /** PATH(index, D[size]) of section 2.1.1, from the leaf up. */
  path(index: number, size: number): Buffer[] {
    const proof: Buffer[] = [];
    let [start, end] = [0, size];
    while (end - start > 1) {
      const middle = start + split(end - start);
      if (index < middle) {
        proof.unshift(this.#range(middle, end));
        end = middle;
      } else {
        proof.unshift(this.#range(start, middle));
        start = middle;
      }
    }
    return proof;
  }

  #range(start: number, end: number): Buffer {
    const level = Math.log2(end - start);
    if (Number.isInteger(level)) return this.node(level, start / (end - start));
    const middle = start + split(end - start);
    return sha256(NODE, this.#range(start, middle), this.#range(middle, end));
  }

  #append(level: number, hash: Buffer): number {
    this.#levels[level] ??= { bytes: Buffer.alloc(32 * 64), count: 0 };
    const held = this.#levels[level];
    if ((held.count + 1) * 32 > held.bytes.length) {
      const larger = Buffer.alloc(held.bytes.length * 2);
      held.bytes.copy(larger);
      held.bytes = larger;
    }
    hash.copy(held.bytes, held.count * 32);
    held.count++;
    return held.count;
  }
}

const split = (n: number): number => 2 ** Math.ceil(Math.log2(n) - 1);

/** Small steps, single leaves, and steps over the edges of tiles and segments: how a log really grows. */
export function steps(total: number, draw: () => number): number[] {
  const sizes: number[] = [];
  for (let size = 0; size < total; ) {
    const kind = draw();
    const edge = TILE_WIDTH - (size % TILE_WIDTH);
    const step = kind < 0.2 ? 1 : kind < 0.5 ? edge + Math.floor(draw() * 3) - 1 : Math.ceil(draw() * (total / 100));
    sizes.push(Math.min(Math.max(1, step), total - size));
    size += sizes.at(-1)!;
  }
  return sizes;
}
