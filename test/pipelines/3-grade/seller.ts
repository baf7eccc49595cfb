import { type Endpoint, gradeRows } from "../../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";
import type { RunLine } from "../../../pipelines/record/card.ts";
import type { Flag } from "../../../pipelines/record/vocabulary.ts";
import { NOW } from "./random.ts";
import { PAID as PAID_ROW, PROBE } from "./rows.ts";

export const HOUR = 3_600_000;
export const DAY = 24 * HOUR;
const NOBODY = { pay_to: null, domain: null, disputed: false, withdrawn: new Set<string>() };
export const before = (ms: number) => new Date(NOW.getTime() - ms);

const NEW = { obs_id: "", t: NOW, w: 1 };
const HANDSHAKE: Sample = { ...PROBE, ...NEW };
export const PAID: Sample = { ...PAID_ROW, ...NEW };

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
  gradeRows({ cap: "cap_x", ...NOBODY, rows, ...more }, new RelatedParties([]), now);
export const flagsOf = (line: RunLine): Flag[] => line.cards.find((card) => card.headline)!.card.flags;
