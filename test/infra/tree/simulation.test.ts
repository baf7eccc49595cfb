import { describe, expect, it } from "vitest";
import { drawn } from "../../helpers/drawn.ts";
import { Simulation, steps } from "./simulation.ts";

/** The same at ten million leaves, with figures: `npx tsx test/bench/tree.bench.ts`. */
const LEAVES = 200_000;

describe.each([11])("a log of 200,000 leaves, grown step by step (seed %i)", (seed) => {
  const draw = drawn(seed);
  const tree = new Simulation();

  // 200,000 leaves.
  it("gives each tile once, each of the right hashes, and has the right root after each step", {
    timeout: 120_000,
  }, () => {
    for (const step of steps(LEAVES, draw)) tree.grow(step);
    expect(tree.state.size).toBe(LEAVES);
    for (const path of tree.wantedTiles()) expect(tree.tiles.has(path), path).toBe(true);
  });

  it("is left with exactly the tiles of the specification once old partial ones are deleted", () => {
    expect(tree.dropPartials()).toBeGreaterThan(50);
    const wanted = tree.wantedTiles();
    // A partial tile that never became full may still be read by an old checkpoint: narrower ones of the edge stay.
    const more = [...tree.tiles.keys()].filter((path) => !wanted.has(path));
    const edges = new Set([...wanted].filter((path) => path.includes(".p/")).map((path) => path.split(".p/")[0]));
    expect(more.filter((path) => !edges.has(path.split(".p/")[0]!))).toEqual([]);
  });

  it("proves inclusion and consistency from every checkpoint that ever stood", async () => {
    for (const [i, head] of tree.heads.entries()) {
      if (i % 5 !== 0) continue;
      const reader = await tree.reader(head.size, head.root);
      const older = tree.heads[Math.floor(draw() * (i + 1))]!;
      await tree.prove(reader, Math.floor(draw() * head.size), older);
    }
    const newest = tree.heads.at(-1)!;
    const reader = await tree.reader(newest.size, newest.root);
    for (const older of tree.heads) await tree.prove(reader, Math.floor(draw() * newest.size), older);
  });
});
