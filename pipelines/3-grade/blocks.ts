import { round6 } from "./bounds.ts";
import type { Said } from "./own.ts";
import { WALL_ONE_IN } from "./params.ts";
import { badRuns } from "./streaks.ts";
import { PARTS, type PartName, type PartSums } from "./sums.ts";

/** One block of one part: mean of its rows, and its weight. */
interface BlockSample {
  w: number;
  x: number | null;
}

const mean = (xs: readonly number[]): number | null =>
  xs.length === 0 ? null : round6(xs.reduce((sum, x) => sum + x, 0) / xs.length);
const known = <T>(xs: readonly (T | null)[]): T[] => xs.filter((x) => x !== null);
const meanOf = (xs: readonly (number | null)[]): number | null => mean(known(xs));
const shareOf = (xs: readonly (boolean | null)[]): number | null => meanOf(known(xs).map(Number));

/** Own rows by block, in time order. */
export function byBlock(rows: readonly Said[]): Said[][] {
  const blocks = new Map<number, Said[]>();
  for (const row of rows) {
    const block = blocks.get(row.block);
    if (block) block.push(row);
    else blocks.set(row.block, [row]);
  }
  return [...blocks].sort(([a], [b]) => a - b).map(([, block]) => block);
}

/** Blocks with a wall: the first m/20, in time order, are excused. */
export function wallsOf(blocks: readonly Said[][]): { excused: Set<Said[]>; walled: boolean } {
  const holding = blocks.filter((block) => block.some((row) => row.wall));
  const allowed = Math.floor(blocks.length / WALL_ONE_IN);
  return { excused: new Set(holding.slice(0, allowed)), walled: holding.length > allowed };
}

/** A paid block weighs the mean of its rows' weights, fixed before their outcome and never above 1. */
const weightOf = (paid: readonly Said[]): number =>
  paid.reduce((sum, { row }) => sum + Math.min(row.w ?? 1, 1), 0) / Math.max(1, paid.length);

function samplesOf(block: readonly Said[], excused: boolean): Record<PartName, BlockSample> {
  const paid = block.filter((row) => row.paid);
  const w = weightOf(paid);
  const looked = excused ? block.filter((row) => !row.wall) : block;
  return {
    liveness: { w: 1, x: shareOf(looked.map((row) => row.answered)) },
    honesty: { w: 1, x: shareOf(block.map((row) => row.honest)) },
    paid_honesty: { w: 1, x: shareOf(paid.map((row) => row.honest)) },
    delivery: { w, x: meanOf(paid.map((row) => row.delivery)) },
    outcome: { w, x: meanOf(paid.map((row) => row.outcome)) },
    schema_conformance: { w, x: shareOf(paid.map((row) => row.schema_ok)) },
  };
}

function sumsOf(samples: readonly BlockSample[]): PartSums | null {
  const xs: number[] = [];
  let w = 0;
  let s = 0;
  for (const sample of samples) {
    if (sample.x === null) continue;
    xs.push(sample.x);
    w += sample.w;
    s += sample.w * sample.x;
  }
  return xs.length === 0 ? null : { w: round6(w), s: round6(s), m: xs.length, ...badRuns(xs) };
}

/** Sums of every part, and the course of the paid blocks by the deepest check there was. */
export function partsOf(blocks: readonly Said[][]): {
  parts: Partial<Record<PartName, PartSums>>;
  course: number[];
  walled: boolean;
} {
  const { excused, walled } = wallsOf(blocks);
  const samples = blocks.map((block) => samplesOf(block, excused.has(block)));
  const parts: Partial<Record<PartName, PartSums>> = {};
  for (const name of PARTS) {
    const sums = sumsOf(samples.map((sample) => sample[name]));
    if (sums) parts[name] = sums;
  }
  return { parts, course: known(samples.map((sample) => sample.outcome.x ?? sample.delivery.x)), walled };
}
