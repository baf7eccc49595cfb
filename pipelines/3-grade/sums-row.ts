import type { Stratum } from "./latency.ts";
import type { PartName, Sums } from "./sums.ts";

/** A row of `grade_sums` (sql/38_sums.sql) as JSON, which the engine hands out several times faster than objects. */
export interface SumsRow {
  /** Number of the endpoint in its chunk. */
  ep: number;
  cap: string;
  /** Rows of the window that no correction withdrew. */
  read: number;
  counted: number;
  emptied: boolean;
  parts: { part: PartName; w: number; s: number; m: number; bad: number; starts: number }[] | null;
  buyers: { part: PartName; xs: number[] }[] | null;
  latency: ({ kind: number } & Record<keyof Stratum, number | null>)[] | null;
  price_w: number | null;
  price_s: number | null;
  dynamic_price: boolean;
  course: number[] | null;
  theft_blocks: number | null;
  theft_last: number | null;
  pending_first: number | null;
  refunds: number;
  signed: number;
  settled: number;
  served: number;
  examples: number;
  seen_last: number | null;
  paid_last: number | null;
  live_last: number | null;
  honest_now: boolean | null;
  price_now: number | null;
  price_tested: number | null;
  walled: boolean;
  unconfirmed: boolean;
  pay_to_changed: boolean;
  disputed: boolean;
  pay_to: string | null;
  domain: string | null;
  evidence: string[] | null;
}

function stratumOf(row: SumsRow, kind: number): Stratum | null {
  const found = row.latency?.find((stratum) => stratum.kind === kind);
  if (!found) return null;
  const { w, p95, high, low } = found;
  return w === null || p95 === null || high === null || low === null ? null : { w, p95, high, low };
}

/** The sums of one endpoint from its row. */
export function sumsOfRow(row: SumsRow): Sums {
  const { cap, counted, emptied, refunds, signed, settled, served, examples, walled, unconfirmed, disputed } = row;
  return {
    cap,
    counted,
    emptied,
    parts: Object.fromEntries((row.parts ?? []).map(({ part, ...sums }) => [part, sums])),
    buyers: Object.fromEntries((row.buyers ?? []).map(({ part, xs }) => [part, xs])),
    latency: { free: stratumOf(row, 0), paid: stratumOf(row, 1) },
    price: { w: row.price_w ?? 0, s: row.price_s ?? 0 },
    course: row.course ?? [],
    theft: row.theft_last === null ? null : { blocks: row.theft_blocks ?? 0, last: row.theft_last },
    pendingFirst: row.pending_first,
    refunds,
    signed,
    settled,
    served,
    examples,
    seenLast: row.seen_last,
    paidLast: row.paid_last,
    liveLast: row.live_last,
    honestNow: row.honest_now,
    priceNow: row.price_now,
    priceTested: row.price_tested,
    walled,
    unconfirmed,
    payToChanged: row.pay_to_changed,
    dynamicPrice: row.dynamic_price,
    disputed,
    payTo: row.pay_to,
    domain: row.domain,
    evidence: row.evidence ?? [],
  };
}
