import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import { demandBefore } from "../1-observe/ask-runner.ts";
import { reservedFor } from "../1-observe/plan/plan.ts";
import { type Caps, toWhom } from "../1-observe/plan/spend.ts";
import type { DayLetter } from "../3-grade/hold.ts";
import { DAY_MS, windowStart } from "../3-grade/params.ts";
import type { Sample } from "../3-grade/sample.ts";
import { readPlan } from "../4-publish/day-plan.ts";
import { lettersOf } from "../4-publish/letters.ts";
import { headlineOf } from "../published/caps.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { ListedCap, Memory } from "../record/memory.ts";
import { formatMoney } from "../record/money.ts";
import type { DayPlan, PlanLine } from "../record/plan.ts";
import { addDays, rfc3339 } from "../record/time.ts";
import { hostOf } from "../record/url.ts";
import type { Band } from "../record/vocabulary.ts";
import { type NextLetter, nextLetter } from "./next-letter.ts";

/** The next better letter of an endpoint and its price (next-letter.ts). */
type NextCost = Omit<NextLetter, "next" | "cost_micro"> & { letter: Band; cost: string };

export interface BudgetLine {
  capability_id: string;
  method: string;
  url: string;
  host: string;
  /** Is it covered by today's plan? null when there is no plan yet, or it was listed after the plan was made. */
  covered: boolean | null;
  why: PlanLine["why"];
  /** Price of one call in the plan; null when nothing can be paid. */
  price: string | null;
  paid_blocks: number;
  demand: number;
  letter: Band;
  /**
   * null when there is no better letter to come, nothing can be paid, or only so many endpoints were to be computed.
   */
  next: NextCost | null;
}

export interface BudgetReport {
  v: 2;
  at: string;
  day: string;
  caps: Record<"per_call" | "per_host_day" | "per_domain_day" | "per_payee_day" | "per_day" | "total", string>;
  /** Part of a day's caps that is kept for endpoints never paid. */
  new_share: string;
  spent: Spending & { ever: string };
  coverage: {
    planned: boolean;
    listed: number;
    covered: number;
    /** Money set aside for the covered ones, re-tests included. */
    reserved: string;
    not_covered: Record<string, number>;
  };
  /** Covered endpoints first, those with the cheapest next letter before the others. */
  endpoints: BudgetLine[];
}

export interface BudgetParts {
  lake: Pick<Lake, "all">;
  memory: Pick<Memory, "listed">;
  privateStore: Pick<Store, "get">;
  caps: Caps;
  published: Pick<PublishedFold, "caps">;
  now: Date;
}

const micro = (line: PlanLine | undefined): bigint | null => (line?.price_micro ? BigInt(line.price_micro) : null);

function letterOf(published: BudgetParts["published"], id: string): { band: Band; raw: DayLetter[] } {
  const cap = published.caps.get(id);
  if (!cap) return { band: "UNRATED", raw: [] };
  return { band: headlineOf(cap)?.band ?? "UNRATED", raw: lettersOf(cap, cap.corrections) };
}

async function nextCost(parts: BudgetParts, one: ListedCap, price: bigint): Promise<NextCost | null> {
  const { lake, published, now } = parts;
  // A week more than the window, since the window moves once a week.
  const since = windowStart(now).getTime() - 7 * DAY_MS;
  const rows = await lake.all<Sample>(sql("queries/record:samples"), { cap: one.cap, since });
  const { band, raw } = letterOf(published, one.cap);
  const next = nextLetter(
    {
      endpoint: { cap: one.cap, pay_to: null, domain: null, disputed: false, rows, withdrawn: new Set() },
      ...{ published: band, raw, paidBlocks: one.paidBlocks, priceMicro: price },
      truth: one.claims.class !== "any",
      schema: one.claims.output_schema !== undefined,
    },
    now,
  );
  if (next.next === null) return null;
  const { gate_calls, gate_day, calls, day, cost_micro } = next;
  return { letter: next.next, gate_calls, gate_day, calls, day, cost: formatMoney(cost_micro) };
}

const plannedAs = (line: PlanLine | undefined): Pick<BudgetLine, "covered" | "why" | "price"> => {
  const price = micro(line);
  return { covered: line?.covered ?? null, why: line?.why ?? null, price: price === null ? null : formatMoney(price) };
};

function coverageOf(plan: DayPlan | null, endpoints: readonly BudgetLine[]): BudgetReport["coverage"] {
  const not_covered: Record<string, number> = {};
  for (const { covered, why } of endpoints) {
    if (!covered) not_covered[why ?? "not_planned"] = (not_covered[why ?? "not_planned"] ?? 0) + 1;
  }
  return {
    ...{ planned: plan !== null, listed: endpoints.length, covered: endpoints.filter((one) => one.covered).length },
    reserved: formatMoney((plan?.lines ?? []).reduce((sum, line) => sum + reservedFor(line), 0n)),
    not_covered,
  };
}

/** Order of the lines: covered first; then the cheapest next letter, those without one last; then by url. */
function order(a: BudgetLine, b: BudgetLine): number {
  const cost = ({ next }: BudgetLine): number => (next ? Number(next.cost) : Number.MAX_VALUE);
  return (
    Number(b.covered === true) - Number(a.covered === true) ||
    cost(a) - cost(b) ||
    (a.url < b.url ? -1 : a.url > b.url ? 1 : 0)
  );
}

/**
 * Makes the report: coverage, spending, and the cost of the next letters, as of now.
 * @param day UTC date
 * @param most endpoints whose next letter is computed, covered ones first; each takes 10 ms
 */
export async function budgetReport(parts: BudgetParts, day: string, most: number): Promise<BudgetReport> {
  const { lake, memory, privateStore, caps, now } = parts;
  const plan = await readPlan(privateStore, day);
  const lines = new Map(plan?.lines.map((line) => [line.cap, line]));
  const listed = await memory.listed();
  const demand = await demandBefore(lake, day);
  const [ever] = await lake.all<{ micro: bigint }>(sql("queries/spending:ever"));
  const covered = (one: ListedCap): boolean => lines.get(one.cap)?.covered === true;
  const endpoints: BudgetLine[] = [];
  for (const one of [...listed].sort((a, b) => Number(covered(b)) - Number(covered(a)))) {
    const line = lines.get(one.cap);
    const price = micro(line);
    endpoints.push({
      ...{ capability_id: one.cap, method: one.method, url: one.url, host: new URL(one.url).host },
      ...plannedAs(line),
      ...{
        paid_blocks: one.paidBlocks,
        demand: demand.get(one.cap) ?? 0,
        letter: letterOf(parts.published, one.cap).band,
      },
      next: price === null || endpoints.length >= most ? null : await nextCost(parts, one, price),
    });
  }
  return {
    ...{ v: 2, at: rfc3339(now), day },
    caps: {
      per_call: formatMoney(caps.perCall),
      per_host_day: formatMoney(caps.perHostDay),
      per_domain_day: formatMoney(caps.perDomainDay),
      per_payee_day: formatMoney(caps.perPayeeDay),
      per_day: formatMoney(caps.perDay),
      total: formatMoney(caps.total),
    },
    new_share: formatMoney(caps.newShare),
    spent: { ...(await spendingOn(lake, day)), ever: formatMoney(ever?.micro ?? 0n) },
    coverage: coverageOf(plan, endpoints),
    endpoints: endpoints.sort(order),
  };
}

const KEPT = "budget/report.json";

/** Keeps the newest report for commands that run beside a service, which cannot open its lake. */
export async function keepReport(store: Store, report: BudgetReport): Promise<void> {
  const bytes = Buffer.from(JSON.stringify(report));
  const known = await store.head(KEPT);
  // If another process was quicker, its report is as good.
  await store.swap(KEPT, bytes, known?.etag ?? null);
}

/** The newest kept report, or null when there is none of this version. */
export async function keptReport(store: Pick<Store, "get">): Promise<BudgetReport | null> {
  const known = await store.get(KEPT);
  if (!known) return null;
  const report = JSON.parse(Buffer.from(known.bytes).toString("utf8")) as BudgetReport;
  return report.v === 2 ? report : null;
}

/**
 * A kept report for an earlier day, for commands that cannot read the lake: coverage and prices come from that day's
 * plan, spending from its line of `by_day`. Payees of that day are not kept, so the lists by host, domain and payee are
 * null. Letters, demand and the cost of the next letters are those of the kept report, at its time.
 * @returns null unless the day is one of the thirty that the report sums up
 */
export async function reportOfDay(
  day: string,
  kept: BudgetReport,
  store: Pick<Store, "get">,
): Promise<BudgetReport | null> {
  if (day > kept.day || day <= addDays(kept.day, -SPENDING_DAYS)) return null;
  const plan = await readPlan(store, day);
  const lines = new Map(plan?.lines.map((line) => [line.cap, line]));
  const endpoints = kept.endpoints.map((one): BudgetLine => {
    const line = lines.get(one.capability_id);
    const price = micro(line);
    const next = price && one.next ? { ...one.next, cost: formatMoney(price * BigInt(one.next.calls)) } : null;
    return { ...one, ...plannedAs(line), next };
  });
  const { day: _, ...spent } = kept.spent.by_day.find((one) => one.day === day) ?? { day, ...told(none()) };
  return {
    ...kept,
    day,
    spent: {
      ...kept.spent,
      ...{ day: spent, by_host: null, by_domain: null, by_payee: null },
    },
    coverage: coverageOf(plan, endpoints),
    endpoints: endpoints.sort(order),
  };
}

/** Greatest age of a kept report while a service keeps it: two of its rounds, and the time that one takes. */
const FRESH_MS = 25 * 60_000;

/** Is this report of the given UTC day, and kept up to date by a running service? */
export const isFresh = ({ day, at }: Pick<BudgetReport, "day" | "at">, of: string, now: Date): boolean =>
  day === of && now.getTime() - Date.parse(at) < FRESH_MS;

/** Sums over signed payments, as money. */
interface Spent {
  calls: number;
  /** Signed payments, settled or not; the caps count these. */
  signed: string;
  settled: string;
  /** Losses: intents whose end nobody watched, or that our own fault spoilt. */
  lost: string;
  refunded: string;
}

const KINDS = ["signed", "settled", "lost", "refunded"] as const;
type Sum = { calls: number } & Record<(typeof KINDS)[number], bigint>;

interface Row extends Sum {
  day: string;
  url: string;
  pay_to: string;
}

const none = (): Sum => ({ calls: 0, signed: 0n, settled: 0n, lost: 0n, refunded: 0n });

function add(sums: Map<string, Sum>, name: string, row: Sum): void {
  const sum = sums.get(name) ?? none();
  sums.set(name, sum);
  sum.calls += row.calls;
  for (const kind of KINDS) sum[kind] += row[kind];
}

const told = (sum: Sum): Spent => ({
  calls: sum.calls,
  signed: formatMoney(sum.signed),
  settled: formatMoney(sum.settled),
  lost: formatMoney(sum.lost),
  refunded: formatMoney(sum.refunded),
});

/** Number of days in `by_day`. */
const SPENDING_DAYS = 30;

interface Spending {
  /** The report's day. */
  day: Spent;
  /** The day's hosts, registrable domains and payees, the most money first; each of these has a cap. null: not kept. */
  by_host: ({ host: string } & Spent)[] | null;
  by_domain: ({ domain: string } & Spent)[] | null;
  by_payee: ({ payee: string } & Spent)[] | null;
  /** The last thirty days, newest first; days without a payment are left out. */
  by_day: ({ day: string } & Spent)[];
}

const byMoney = ([a, x]: [string, Sum], [b, y]: [string, Sum]): number =>
  Number(y.signed > x.signed) - Number(y.signed < x.signed) || (a < b ? -1 : 1);

/** Sums up spending on the thirty UTC days that end with `day`. */
async function spendingOn(lake: Pick<Lake, "all">, day: string): Promise<Spending> {
  const rows = await lake.all<Row>(sql("queries/spending:month"), { day, days: SPENDING_DAYS });
  const hosts = new Map<string, Sum>();
  const domains = new Map<string, Sum>();
  const payees = new Map<string, Sum>();
  const days = new Map<string, Sum>();
  for (const row of rows) {
    add(days, row.day, row);
    if (row.day !== day) continue;
    const { host, domain, payee } = toWhom(hostOf(row.url), row.pay_to);
    add(hosts, host, row);
    add(domains, domain, row);
    add(payees, payee, row);
  }
  return {
    day: told(days.get(day) ?? none()),
    by_host: [...hosts].sort(byMoney).map(([host, sum]) => ({ host, ...told(sum) })),
    by_domain: [...domains].sort(byMoney).map(([domain, sum]) => ({ domain, ...told(sum) })),
    by_payee: [...payees].sort(byMoney).map(([payee, sum]) => ({ payee, ...told(sum) })),
    by_day: [...days].sort(([a], [b]) => (a < b ? 1 : -1)).map(([of, sum]) => ({ day: of, ...told(sum) })),
  };
}
