import { Kin } from "../../../pipelines/3-grade/kin.ts";
import { type Endpoint, gradeRows } from "../../../pipelines/3-grade/pure.ts";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";
import type { RunLine } from "../../../pipelines/record/card.ts";
import type { Flag } from "../../../pipelines/record/vocabulary.ts";
import { NOW } from "./random.ts";

export const HOUR = 3_600_000;
export const DAY = 24 * HOUR;
const NOBODY = { pay_to: null, domain: null, disputed: false, withdrawn: new Set<string>() };
export const before = (ms: number) => new Date(NOW.getTime() - ms);

const HANDSHAKE: Sample = {
  obs_id: "",
  t: NOW,
  kind: 0,
  payer: null,
  w: 1,
  fault: null,
  live: true,
  honest: true,
  settled: false,
  delivered: null,
  refunded: false,
  delivery: null,
  outcome: null,
  schema_ok: null,
  latency_ms: 400,
  price: 0.01,
  input: null,
  response_sha256: null,
  pay_to: "0xaa",
};
export const PAID: Sample = {
  ...HANDSHAKE,
  kind: 1,
  settled: true,
  delivered: true,
  delivery: 1,
  outcome: 1,
  schema_ok: true,
  input: "known_answer",
};

let serial = 0;
export const at = (ms: number, row: Partial<Sample> = {}, like = HANDSHAKE): Sample => ({
  ...like,
  obs_id: `rec-${String(++serial).padStart(6, "0")}`,
  t: before(ms),
  ...row,
});
/** A quiet good seller: a paid call and a handshake a day. */
export const good = (days = 40): Sample[] =>
  Array.from({ length: days }, (_, d) => [at(d * DAY + 2 * HOUR, {}, PAID), at(d * DAY + 9 * HOUR)]).flat();
export const theft = (ms: number): Sample =>
  at(ms, { delivered: false, delivery: null, outcome: 0, schema_ok: null }, PAID);

export const grade = (rows: Sample[], more: Partial<Endpoint> = {}, now = NOW): RunLine =>
  gradeRows({ cap: "cap_x", ...NOBODY, rows, ...more }, new Kin([]), now);
export const flagsOf = (line: RunLine): Flag[] => line.cards.find((card) => card.headline)!.card.flags;
