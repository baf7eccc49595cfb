import type { RunLine } from "../record/card.ts";
import { byBlock, partsOf } from "./blocks.ts";
import { round6 } from "./bounds.ts";
import { worstOf } from "./buyers.ts";
import { lineOf } from "./cards.ts";
import type { Kin } from "./kin.ts";
import { p95 } from "./latency.ts";
import { counts, type Said, said } from "./own.ts";
import { AFTER, DAY_MS, EVIDENCE_ROWS, QUOTES_A_DAY } from "./params.ts";
import { priceStability } from "./price.ts";
import { inputsDigest, type Sample } from "./sample.ts";
import type { PartName, Sums } from "./sums.ts";
import { windowStart } from "./window.ts";

/** One endpoint as the record holds it. */
export interface Endpoint {
  cap: string;
  pay_to: string | null;
  domain: string | null;
  disputed: boolean;
  /** All its rows, any order; those outside the window are left aside. */
  rows: readonly Sample[];
  /** Ids of rows that a correction withdrew. */
  withdrawn: ReadonlySet<string>;
}

/** Newest first; among rows of the same moment the greatest id is the newest. */
const newestFirst = (a: Said, b: Said): number =>
  b.row.t.getTime() - a.row.t.getTime() || Buffer.compare(Buffer.from(b.row.obs_id), Buffer.from(a.row.obs_id));

const newest = (rows: readonly Said[]): number | null =>
  rows.reduce<number | null>((last, { row }) => Math.max(last ?? row.t.getTime(), row.t.getTime()), null);

/** Worst call of each payer in each block, then the worst blocks of each payer. */
function buyersOf(rows: readonly Sample[]): Sums["buyers"] {
  const worst = new Map<PartName, Map<string | null, Map<number, number>>>();
  for (const row of rows) {
    const call = said(row, row.settled === true);
    const values: [PartName, number | boolean | null][] = [
      ["liveness", call.answered],
      ["honesty", call.honest],
      ["delivery", call.delivery],
      ["outcome", call.outcome],
      ["schema_conformance", call.schema_ok],
    ];
    for (const [part, value] of values) {
      if (value === null) continue;
      const payers = worst.get(part) ?? new Map<string | null, Map<number, number>>();
      worst.set(part, payers);
      const blocks = payers.get(row.payer) ?? new Map<number, number>();
      payers.set(row.payer, blocks);
      blocks.set(call.block, Math.min(blocks.get(call.block) ?? 1, Number(value)));
    }
  }
  return Object.fromEntries(
    [...worst].map(([part, payers]) => [part, [...payers.values()].flatMap((blocks) => worstOf([...blocks.values()]))]),
  );
}

/** Settlements of ours that brought nothing and were not refunded: those that count by now, and the first that does not. */
function theftsOf(paid: readonly Said[], now: number): Pick<Sums, "theft" | "pendingFirst"> {
  const taken = paid.filter(({ row, delivered }) => row.settled && !delivered && !row.refunded);
  const final = taken.filter(({ row }) => row.t.getTime() <= now - AFTER.pendingTheft);
  const pending = taken.filter(({ row }) => row.t.getTime() > now - AFTER.pendingTheft);
  const last = newest(final);
  return {
    theft: last === null ? null : { blocks: new Set(final.map(({ block }) => block)).size, last },
    pendingFirst: pending.length === 0 ? null : Math.min(...pending.map(({ row }) => row.t.getTime())),
  };
}

function pricesOf(own: readonly Said[]): Pick<Sums, "price" | "dynamicPrice" | "priceNow" | "priceTested"> {
  const quoted = own.filter((row): row is Said & { price: number } => row.price !== null).sort(newestFirst);
  const days = new Map<number, number[]>();
  for (const { row, price } of quoted) {
    const day = Math.floor(row.t.getTime() / DAY_MS);
    days.set(day, [...(days.get(day) ?? []), price]);
  }
  const { w, s } = priceStability(days);
  const tested = quoted.filter(({ paid, row }) => paid && row.settled).map(({ price }) => price);
  return {
    price: { w, s: round6(s) },
    dynamicPrice: [...days.values()].some((quotes) => new Set(quotes).size > QUOTES_A_DAY),
    priceNow: quoted[0]?.price ?? null,
    priceTested: tested.length === 0 ? null : Math.max(...tested),
  };
}

function latencyOf(own: readonly Said[]): Sums["latency"] {
  const timed = (paid: boolean) =>
    own.filter((row) => row.paid === paid && row.ms !== null).map(({ block, ms }) => [block, ms ?? 0] as const);
  return { free: p95(timed(false)), paid: p95(timed(true)) };
}

/** The sums of one endpoint from its rows: what sql/3x and fold.ts make of the lake, written a second time, plainly and without a database. */
export function sumsOf(endpoint: Endpoint, now: Date): Sums {
  const since = windowStart(now);
  const inWindow = endpoint.rows.filter(({ t }) => t >= since && t < now);
  const standing = inWindow.filter(({ obs_id }) => !endpoint.withdrawn.has(obs_id));
  const counted = standing.filter(counts);
  const own = counted.filter(({ kind }) => kind < 2).map((row) => said(row, row.kind === 1));
  const paid = own.filter((row) => row.paid);
  const told = own.filter(({ honest }) => honest !== null).sort(newestFirst);
  const answers = paid.filter(({ delivered, row }) => delivered && row.response_sha256 !== null).sort(newestFirst);
  return {
    cap: endpoint.cap,
    counted: counted.length,
    emptied: own.length === 0 && standing.length < inWindow.length,
    ...partsOf(byBlock(own)),
    buyers: buyersOf(counted.filter(({ kind }) => kind === 2)),
    latency: latencyOf(own),
    ...pricesOf(own),
    ...theftsOf(paid, now.getTime()),
    refunds: paid.filter(({ row, delivered }) => row.settled && !delivered && row.refunded).length,
    signed: paid.length,
    settled: paid.filter(({ row }) => row.settled).length,
    served: paid.filter(({ delivered }) => delivered).length,
    examples: paid.filter(({ row }) => row.input === "example" || row.input === "known_answer").length,
    seenLast: newest(own),
    paidLast: newest(paid),
    liveLast: newest(own.filter(({ answered }) => answered)),
    honestNow: told[0]?.honest ?? null,
    unconfirmed: standing.some(({ kind, fault }) => kind === 2 && fault === "unconfirmed"),
    payToChanged: new Set(own.map(({ row }) => row.pay_to).filter((payTo) => payTo !== null)).size > 1,
    disputed: endpoint.disputed,
    payTo: endpoint.pay_to,
    domain: endpoint.domain,
    evidence: answers.slice(0, EVIDENCE_ROWS).map(({ row }) => row.response_sha256 ?? ""),
  };
}

/**
 * The grade of one endpoint from its rows alone, without DuckDB: for the auditor and for light clients. Equal to the
 * line of a grade run at the same moment, figure by figure.
 */
export function gradeRows(endpoint: Endpoint, kin: Kin, now: Date): RunLine {
  const since = windowStart(now);
  const standing = endpoint.rows.filter(({ t, obs_id }) => t >= since && t < now && !endpoint.withdrawn.has(obs_id));
  return lineOf(sumsOf(endpoint, now), kin.of(endpoint), inputsDigest(standing), now);
}
