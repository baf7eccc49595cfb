import { describe, expect, it } from "vitest";
import { computeRoot, EMPTY_ROOT, leafHash } from "../../../infra/tree/hash.ts";
import { tilePath } from "../../../infra/tree/path.ts";
import { consistencyProof, prefixProof, provenPrefix, verifyConsistency } from "../../../infra/tree/proof.ts";
import { MissingObject, Tampered, TileReader, TreeState } from "../../../infra/tree/tiles.ts";
import { fc } from "../../helpers/histories.ts";
import { inclusionProof, subtreeProof, verifyInclusion, verifySubtree } from "./inclusion.ts";
import { naiveConsistency, naiveLeaf, naiveLeaves, naivePath, naiveRoot } from "./naive.ts";

const LEAVES = naiveLeaves(70_000);

/** Grow a tree in these steps, keeping every tile that was given out, as a store would. */
function grow(steps: readonly number[]): { state: TreeState; tiles: Map<string, Buffer> } {
  let state = TreeState.empty;
  const tiles = new Map<string, Buffer>();
  for (const step of steps) {
    const next = state.append(LEAVES.slice(state.size, state.size + step));
    for (const tile of next.tiles) tiles.set(tilePath(tile.level, tile.n, tile.width), tile.bytes);
    state = next.state;
  }
  return { state, tiles };
}

const readerOf = (tiles: Map<string, Buffer>, state: TreeState) =>
  TileReader.open(state.size, state.root(), async (path) => tiles.get(path) ?? null);

const sizes = fc.array(fc.integer({ min: 0, max: 400 }), { minLength: 1, maxLength: 6 });

describe("hashing", () => {
  it("agrees with RFC 6962 word for word", () => {
    expect(leafHash(Buffer.from("abc"))).toEqual(naiveLeaf(Buffer.from("abc")));
    expect(computeRoot([])).toEqual(EMPTY_ROOT);
    for (let n = 1; n < 70; n++) expect(computeRoot(LEAVES.slice(0, n))).toEqual(naiveRoot(LEAVES.slice(0, n)));
  });
});

describe("a growing tree", () => {
  // Draws trees.
  it("has the naive root after any steps, and every tile is what C2SP says", () =>
    fc.assert(
      fc.property(sizes, (steps) => {
        const { state, tiles } = grow(steps);
        expect(state.root()).toEqual(naiveRoot(LEAVES.slice(0, state.size)));
        // Not toEqual, which compares element by element: five seconds of this test.
        for (const [path, bytes] of tiles) expect(naiveTile(path).equals(bytes), path).toBe(true);
      }),
      { numRuns: 25 },
    ));

  it("gives the tiles of the example in tlog-tiles: 70,000 leaves", () => {
    const { tiles } = grow([70_000]);
    const count = (prefix: string, partial: boolean) =>
      [...tiles.keys()].filter((path) => path.startsWith(prefix) && path.includes(".p/") === partial).length;
    expect([count("tile/0/", false), count("tile/1/", false)]).toEqual([273, 1]);
    const partials = [...tiles.keys()].filter((path) => path.includes(".p/"));
    expect(partials).toEqual(["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]);
  });

  it("writes nothing again: growing by nothing, or by one, gives only what changed", () => {
    const { state } = grow([300]);
    expect(state.append([]).tiles).toEqual([]);
    expect(state.append(LEAVES.slice(300, 301)).tiles.map((t) => tilePath(t.level, t.n, t.width))).toEqual([
      "tile/0/001.p/45",
    ]);
    const full = grow([511]).state.append(LEAVES.slice(511, 512)).tiles;
    expect(full.map((t) => tilePath(t.level, t.n, t.width))).toEqual(["tile/0/001", "tile/1/000.p/2"]);
  });

  it("comes back from its tiles, also when the partial ones are gone and the full ones there", async () => {
    const small = grow([700]);
    const { tiles } = grow([700, 68_000]);
    for (const path of tiles.keys()) if (path.includes(".p/")) tiles.delete(path);
    const fetch = async (path: string) => tiles.get(path) ?? null;
    const back = await TreeState.load(700, small.state.root(), fetch);
    expect(back.append(LEAVES.slice(700, 800)).state.root()).toEqual(naiveRoot(LEAVES.slice(0, 800)));
  });

  it("refuses an edge that leads to another root, or lacks a tile", async () => {
    const { state, tiles } = grow([700]);
    const fetch = async (path: string) => tiles.get(path) ?? null;
    await expect(TreeState.load(700, naiveRoot(LEAVES.slice(0, 701)), fetch)).rejects.toThrow(Tampered);
    tiles.delete("tile/0/002.p/188");
    await expect(TreeState.load(700, state.root(), fetch)).rejects.toThrow(MissingObject);
  });
});

function naiveTile(path: string): Buffer {
  const match = /^tile\/(\d)\/(\d{3})(?:\.p\/(\d+))?$/.exec(path)!;
  const [level, n, width] = [Number(match[1]), Number(match[2]), Number(match[3] ?? 256)];
  const span = 256 ** level;
  const first = n * 256;
  return Buffer.concat(
    Array.from({ length: width }, (_, i) => naiveRoot(LEAVES.slice((first + i) * span, (first + i + 1) * span))),
  );
}

describe("proofs", () => {
  it("are the naive ones, verify, and hold for nothing else", () =>
    fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 1500 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        async (size, where) => {
          const { state, tiles } = grow([size]);
          const reader = await readerOf(tiles, state);
          const leaves = LEAVES.slice(0, size);
          const index = Math.min(size - 1, Math.floor(where * size));
          const path = await inclusionProof(index, size, reader.node);
          expect(path).toEqual(naivePath(index, leaves));
          expect(verifyInclusion(index, size, leaves[index]!, path, state.root())).toBe(true);
          expect(verifyInclusion(index, size, LEAVES[size]!, path, state.root())).toBe(false);
          if (size > 1) expect(verifyInclusion(index ^ 1, size, leaves[index]!, path, state.root())).toBe(false);

          const older = index + 1;
          const olderRoot = naiveRoot(LEAVES.slice(0, older));
          const proof = await consistencyProof(older, size, reader.node);
          expect(proof).toEqual(naiveConsistency(older, leaves));
          expect(verifyConsistency(older, size, olderRoot, state.root(), proof)).toBe(true);
          expect(verifyConsistency(older, size, naiveRoot(LEAVES.slice(1, older + 1)), state.root(), proof)).toBe(
            false,
          );
        },
      ),
      { numRuns: 30 },
    ));

  it("of subtrees: any complete one, and nothing that is none", () =>
    fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 1500 }),
        fc.integer({ min: 0, max: 10 }),
        fc.nat(),
        async (size, height, pick) => {
          const width = 2 ** height;
          fc.pre(width <= size);
          const start = (pick % Math.floor(size / width)) * width;
          const { state, tiles } = grow([size]);
          const reader = await readerOf(tiles, state);
          const proof = await subtreeProof(start, start + width, size, reader.node);
          const hash = naiveRoot(LEAVES.slice(start, start + width));
          expect(verifySubtree(start, start + width, size, hash, proof, state.root())).toBe(true);
          expect(verifySubtree(start, start + width, size, LEAVES[size]!, proof, state.root())).toBe(false);
          // Not aligned: no complete subtree, whatever the proof says.
          const shifted = verifySubtree(start + 1, start + width + 1, size + 1, hash, proof, state.root());
          if (width > 1) expect(shifted).toBe(false);
        },
      ),
      { numRuns: 25 },
    ));

  it("one hash of level 2 proves a segment of 65,536 leaves", async () => {
    const { state, tiles } = grow([70_000]);
    const reader = await readerOf(tiles, state);
    const proof = await subtreeProof(0, 65_536, 70_000, reader.node);
    expect(proof).toHaveLength(1);
    expect(verifySubtree(0, 65_536, 70_000, naiveRoot(LEAVES.slice(0, 65_536)), proof, state.root())).toBe(true);
    await expect(subtreeProof(65_536, 131_072, 70_000, reader.node)).rejects.toThrow(RangeError);
  });

  it("a reader notices a tile that was changed anywhere below the root", async () => {
    const { state, tiles } = grow([70_000]);
    const bad = Buffer.from(tiles.get("tile/0/100")!);
    bad[77]! ^= 1;
    tiles.set("tile/0/100", bad);
    const reader = await readerOf(tiles, state);
    await expect(inclusionProof(100 * 256, 70_000, reader.node)).rejects.toThrow(/tile\/0\/100 .* expected .* got/);
    expect(await inclusionProof(99 * 256, 70_000, reader.node)).toHaveLength(17);
  });
});

describe("the root of a prefix", () => {
  it("is computed from nodes of the larger tree alone, for every pair of sizes; fewer, more or other nodes show none", async () => {
    for (let n = 2; n <= 34; n++) {
      const { state, tiles } = grow([n]);
      const { node } = await readerOf(tiles, state);
      const root = naiveRoot(LEAVES.slice(0, n));
      for (let m = 1; m < n; m++) {
        const nodes = await prefixProof(m, n, node);
        expect(provenPrefix(m, n, root, nodes)).toEqual(naiveRoot(LEAVES.slice(0, m)));
        expect(provenPrefix(m, n, root, nodes.slice(1))).toBeNull();
        expect(provenPrefix(m, n, root, [...nodes, root])).toBeNull();
        expect(provenPrefix(m, n, naiveRoot(LEAVES.slice(1, n)), nodes)).toBeNull();
        for (const at of nodes.keys()) expect(provenPrefix(m, n, root, nodes.with(at, Buffer.alloc(32)))).toBeNull();
      }
    }
  });

  it("has no proof for sizes that are none, and for nodes of another length", async () => {
    const { state, tiles } = grow([9]);
    const { node } = await readerOf(tiles, state);
    const nodes = await prefixProof(5, 9, node);
    const root = state.root();
    for (const [m, n] of [
      [0, 9],
      [9, 9],
      [10, 9],
      [5.5, 9],
      [-1, 9],
      [5, 2 ** 60],
    ] as const) {
      expect(provenPrefix(m, n, root, nodes)).toBeNull();
    }
    expect(provenPrefix(5, 9, root, [])).toBeNull();
    expect(
      provenPrefix(
        5,
        9,
        root,
        nodes.map((one) => one.subarray(1)),
      ),
    ).toBeNull();
  });
});
