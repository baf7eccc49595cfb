import { NEED_HIGH, NEED_LOW, ROUNDING } from "./bounds.ts";
import { CUSUM_MISSES } from "./cusum.ts";
import { EPSILON } from "./latency.ts";
import { AFTER, BAD_BELOW, BLOCK_MS, EVIDENCE_ROWS, PERCENTILE, params, QUOTES_A_DAY, WALL_ONE_IN } from "./params.ts";
import { windowStart } from "./window.ts";

/** Rows that are worked on at once, about: 1 GB of the engine's memory, and as much again while it works. */
export const CHUNK_ROWS = 4_000_000;
/** Endpoints whose rows are printed at once (about 80 KB each), and whose cards are in hand at once. */
export const BATCH_CAPS = 1_024;

/** Latencies above this quantile are sorted first; the method's order statistics nearly always lie there. */
const TAIL_QUANTILE = 0.75;

const lines = (name: string, values: readonly number[]): [string, number][] =>
  values.map((value, k) => [`${name}_${k + 1}`, value]);

/** The numbers that sql/3x reads with `param(name)`: SQL writes none of them a second time. */
const NUMBERS: readonly [string, number][] = [
  ["scale", ROUNDING.scale],
  ["half", ROUNDING.half],
  ["epsilon", EPSILON],
  ["block_ms", BLOCK_MS],
  ["bad_below", BAD_BELOW],
  ["wall_one_in", WALL_ONE_IN],
  ["worst_blocks", params.buyers.worst_blocks_per_payer],
  ["p95", PERCENTILE],
  ["tail_quantile", TAIL_QUANTILE],
  ...lines(
    "high",
    NEED_HIGH.map(({ slope }) => slope),
  ),
  ...lines(
    "low",
    NEED_LOW.map(({ slope }) => slope),
  ),
  ...lines(
    "line",
    NEED_LOW.map(({ offset }) => offset),
  ),
  ["baseline_days", params.price.baseline_days],
  ["price_tolerance", params.price.tolerance],
  ["price_zero_ratio", params.price.zero_at_ratio],
  ["quotes_a_day", QUOTES_A_DAY],
  ["evidence_rows", EVIDENCE_ROWS],
  ["cusum_misses", CUSUM_MISSES],
];

/** Naive UTC, as the lake keeps time. */
const timestamp = (ms: number): string => `TIMESTAMP '${new Date(ms).toISOString().slice(0, -1).replace("T", " ")}'`;
const double = (value: number): string => (Number.isInteger(value) ? String(value) : `${value}::DOUBLE`);

/** Statements that give a connection the numbers and moments of one run. */
export function variablesOf(now: Date, chunkRows = CHUNK_ROWS): string {
  const moments: [string, number][] = [
    ["now", now.getTime()],
    ["window_start", windowStart(now).getTime()],
    ["theft_before", now.getTime() - AFTER.pendingTheft],
  ];
  return [
    ...[...NUMBERS, ["chunk_rows", chunkRows] as const].map(
      ([name, value]) => `SET VARIABLE ${name} = ${double(value)};`,
    ),
    ...moments.map(([name, ms]) => `SET VARIABLE ${name} = ${timestamp(ms)};`),
  ].join("\n");
}
