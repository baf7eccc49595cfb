import { PACKED, PACKED_SCALE } from "./facts.ts";
import { NONE } from "./packed.ts";
import { AFTER, BLOCK_MS, EVIDENCE_ROWS, params } from "./params.ts";
import { windowStart } from "./window.ts";

/** Rows that are gathered at once, about: 24 bytes each. Every chunk reads the window of all endpoints again. */
export const CHUNK_ROWS = 16_000_000;
/** Endpoints whose cards are in hand at once, and about how many rows: those to digest take 350 bytes each. */
export const BATCH_CAPS = 8_192;
export const BATCH_ROWS = 900_000;
/** Endpoints whose sums are in hand at once: what lives longer than a moment is copied by every collection of garbage. */
export const SLICE_CAPS = 256;

/** The numbers that sql/3x reads with `param(name)`: SQL writes none of them a second time. */
const NUMBERS: readonly [string, number][] = [
  ["block_ms", BLOCK_MS],
  ["worst_blocks", params.buyers.worst_blocks_per_payer],
  ["evidence_rows", EVIDENCE_ROWS],
  ["none", NONE],
  ["packed_scale", PACKED_SCALE],
  ...Object.entries(PACKED).map(([name, place]): [string, number] => [`packed_${name}`, place]),
];

/** Naive UTC, as the lake keeps time. */
const timestamp = (ms: number): string => `TIMESTAMP '${new Date(ms).toISOString().slice(0, -1).replace("T", " ")}'`;
const double = (value: number): string => (Number.isInteger(value) ? String(value) : `'${value}'::DOUBLE`);

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
