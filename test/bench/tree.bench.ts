/**
 * The tree alone at ten million leaves, by hashes: grown in steps as a log grows, each tile and root held against a second
 * computation, then proofs at random. `npx tsx test/bench/tree.bench.ts [leaves] [seed]`; about 2 GB at ten million.
 */
import { TreeState } from "../../infra/tree/tiles.ts";
import { drawn } from "../helpers/drawn.ts";
import { Simulation, steps } from "../infra/tree/simulation.ts";
import { peakGb, ratio, shown, timed } from "./ratio.ts";

const leaves = Number(process.argv[2] ?? 10_000_000);
const seed = Number(process.argv[3] ?? 11);
const PROOFS = 1_000;
/** As many leaves as the publisher adds at once: what the growth of one publication costs must not follow the size. */
const STEP = 1_000;

const draw = drawn(seed);
const tree = new Simulation();
const grown = steps(leaves, draw);
console.log(`${leaves.toLocaleString("en")} leaves in ${grown.length} steps, seed ${seed}`);
const growth = await timed(async () => {
  for (const [i, step] of grown.entries()) {
    tree.grow(step);
    if (i % 100 === 99) tree.dropPartials();
  }
});
console.log(`grown and checked       ${shown(growth)}`);
const missing = [...tree.wantedTiles()].filter((path) => !tree.tiles.has(path));
if (missing.length) throw new Error(`${missing.length} tiles are missing, ${missing[0]} among them`);

const newest = tree.heads.at(-1)!;
const reader = await tree.reader(newest.size, newest.root);
const proving = await timed(async () => {
  for (let i = 0; i < PROOFS; i++) {
    const older = tree.heads[Math.floor(draw() * tree.heads.length)]!;
    await tree.prove(reader, Math.floor(draw() * newest.size), older);
  }
});
console.log(
  `${PROOFS} proofs of each kind ${shown(proving)}  ${((proving.cpu / PROOFS) * 1e6).toFixed(0)} us CPU each`,
);

/** Median CPU of adding STEP leaves, microseconds. */
async function stepAt(state: TreeState): Promise<number> {
  const more = Array.from({ length: STEP }, (_, i) => tree.levels.node(0, i));
  const times: number[] = [];
  for (let i = 0; i < 50; i++) times.push((await timed(async () => state.append(more))).cpu * 1e6);
  return times.sort((a, b) => a - b)[times.length >> 1]!;
}
await stepAt(TreeState.empty);
const [small, large] = [await stepAt(TreeState.empty), await stepAt(tree.state)];
ratio(
  `tree: ${STEP} leaves more at ${leaves.toLocaleString("en")} against at 0`,
  `${(large / small).toFixed(2)} CPU`,
  "about 1",
);
console.log(
  `peak ${peakGb().toFixed(1)} GB, ${tree.tiles.size} tiles, ${tree.heads.length} checkpoints, every one proven to be a prefix where drawn`,
);
