import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import { readDemandBefore } from "../1-observe/ask-runner.ts";
import { reservedMicro } from "../1-observe/plan/plan.ts";
import { type Caps, recipientOf } from "../1-observe/plan/spend.ts";
import type { DayLetter } from "../3-grade/hold.ts";
import { DAY_MS, windowStart } from "../3-grade/params.ts";
import type { Sample } from "../3-grade/sample.ts";
import { readPlan } from "../4-publish/day-plan.ts";
import { lettersOf } from "../4-publish/letters.ts";
import { headlineOf } from "../published/caps.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { ListedCap, Memory } from "../record/memory.ts";
import { formatMoney, formatSum } from "../record/money.ts";
import type { DayPlan, PlanLine } from "../record/plan.ts";
import { addDays, dayOf, rfc3339 } from "../record/time.ts";
import { hostOf } from "../record/url.ts";
import type { Band } from "../record/vocabulary.ts";
import { computeNextLetter, type NextLetter } from "./next-letter.ts";

/** The next better letter (grade) of an endpoint and the cost to reach it, in dollars (next-letter.ts). */
type NextCost = Omit<NextLetter, "next" | "cost_micro"> & { letter: Band; cost: string };

/** What the report has about one listed endpoint. */
export interface BudgetLine {
  capability_id: string;
  method: string;
  url: string;
  host: string;
  /**
   * May the endpoint be paid by the plan of the report's day? null when there is no plan yet, or the endpoint was
   * listed after the plan was made.
   */
  covered: boolean | null;
  /** Why the plan does not cover the endpoint; null when it covers it, or `covered` is null. */
  why: PlanLine["why"];
  /**
   * Price of one call by the plan, in dollars; null when the plan has no price, since the endpoint offers nothing
   * that we can pay.
   */
  price: string | null;
  /** Number of blocks (six hours UTC each) in which at least one paid call of the endpoint counts for its grade. */
  paid_blocks: number;
  /** Number of clients that checked the endpoint in the seven UTC days before the report's day. */
  demand: number;
  /** Published letter (grade) of the endpoint; UNRATED before the first. */
  letter: Band;
  /**
   * The next better letter and what it costs; null when no better letter can be reached, nothing can be paid, or next
   * letters are computed only for endpoints that come before this one.
   */
  next: NextCost | null;
}

/** The budget report of a day: which endpoints are paid, what was spent, and what the next letters cost. */
export interface BudgetReport {
  /** Version of this form. */
  v: 2;
  /** When the report was made, RFC 3339, in record time (the service's own time, which the demo simulates). */
  at: string;
  /** UTC date that the report is about. */
  day: string;
  /** The caps on our spending, in dollars. */
  caps: Record<"per_call" | "per_host_day" | "per_domain_day" | "per_payee_day" | "per_day" | "total", string>;
  /** Share of a day's spending caps that is reserved for endpoints that were never paid. */
  new_share: string;
  /** What was spent. `ever`: sum of all payments that were ever signed, in dollars. */
  spent: Spending & { ever: string };
  coverage: {
    /** Is there a plan of the day? */
    planned: boolean;
    /** Number of listed endpoints. */
    listed: number;
    /** Number of endpoints that the plan may pay. */
    covered: number;
    /** Money reserved for the covered endpoints, re-tests included. */
    reserved: string;
    /** Number of endpoints that are not covered, by reason (`why` of the plan, or `not_planned`). */
    not_covered: Record<string, number>;
  };
  /** All listed endpoints: those that the plan may pay (covered) first, then by the cost of their next letter. */
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

const priceMicroOf = (line: PlanLine | undefined): bigint | null =>
  line?.price_micro ? BigInt(line.price_micro) : null;

function findLetter(published: BudgetParts["published"], id: string): { band: Band; raw: DayLetter[] } {
  const cap = published.caps.get(id);
  if (!cap) return { band: "UNRATED", raw: [] };
  return { band: headlineOf(cap)?.band ?? "UNRATED", raw: lettersOf(cap, cap.corrections) };
}

async function computeNextCost(parts: BudgetParts, listedCap: ListedCap, price: bigint): Promise<NextCost | null> {
  const { lake, published, now } = parts;
  // Reads one week more than the grading window of `now`, since the start of the window moves once a week.
  const since = windowStart(now).getTime() - 7 * DAY_MS;
  const rows = await lake.all<Sample>(sql("queries/record:samples"), { cap: listedCap.cap, since });
  const { band, raw } = findLetter(published, listedCap.cap);
  const nextLetter = computeNextLetter(
    {
      endpoint: { cap: listedCap.cap, pay_to: null, domain: null, disputed: false, rows, withdrawn: new Set() },
      ...{ published: band, raw, paidBlocks: listedCap.paidBlocks, priceMicro: price },
      hasKnownAnswer: listedCap.claims.class !== "any",
      hasSchema: listedCap.claims.output_schema !== undefined,
    },
    now,
  );
  if (nextLetter.next === null) return null;
  const { gate_calls, gate_day, calls, day, cost_micro } = nextLetter;
  return { letter: nextLetter.next, gate_calls, gate_day, calls, day, cost: formatSum(cost_micro) };
}

const planMembers = (line: PlanLine | undefined): Pick<BudgetLine, "covered" | "why" | "price"> => {
  const price = priceMicroOf(line);
  return { covered: line?.covered ?? null, why: line?.why ?? null, price: price === null ? null : formatMoney(price) };
};

function summarizeCoverage(plan: DayPlan | null, endpoints: readonly BudgetLine[]): BudgetReport["coverage"] {
  const not_covered: Record<string, number> = {};
  for (const { covered, why } of endpoints) {
    if (!covered) not_covered[why ?? "not_planned"] = (not_covered[why ?? "not_planned"] ?? 0) + 1;
  }
  return {
    ...{ planned: plan !== null, listed: endpoints.length, covered: endpoints.filter((one) => one.covered).length },
    reserved: formatMoney((plan?.lines ?? []).reduce((sum, line) => sum + reservedMicro(line), 0n)),
    not_covered,
  };
}

/**
 * Compares lines for the report's order: covered endpoints first; then by the cost of the next letter, those without
 * one last; then by url.
 */
function compareLines(a: BudgetLine, b: BudgetLine): number {
  const cost = ({ next }: BudgetLine): number => (next ? Number(next.cost) : Number.MAX_VALUE);
  return (
    Number(b.covered === true) - Number(a.covered === true) ||
    cost(a) - cost(b) ||
    (a.url < b.url ? -1 : a.url > b.url ? 1 : 0)
  );
}

/**
 * Makes the budget report: coverage, spending, and the cost of the next letters, as of now.
 * @param day UTC date
 * @param maxNextLetters number of endpoints for which the next letter is computed, covered ones first; each takes
 * about 10 ms
 */
export async function createBudgetReport(
  parts: BudgetParts,
  day: string,
  maxNextLetters: number,
): Promise<BudgetReport> {
  const { lake, memory, privateStore, caps, now } = parts;
  const plan = await readPlan(privateStore, day);
  const lines = new Map(plan?.lines.map((line) => [line.cap, line]));
  const listedCaps = await memory.listed();
  const demand = await readDemandBefore(lake, day);
  const [totalSpent] = await lake.all<{ micro: bigint }>(sql("queries/spending:ever"));
  const isCovered = (one: ListedCap): boolean => lines.get(one.cap)?.covered === true;
  const endpoints: BudgetLine[] = [];
  for (const listedCap of [...listedCaps].sort((a, b) => Number(isCovered(b)) - Number(isCovered(a)))) {
    const line = lines.get(listedCap.cap);
    const price = priceMicroOf(line);
    endpoints.push({
      ...{
        capability_id: listedCap.cap,
        method: listedCap.method,
        url: listedCap.url,
        host: new URL(listedCap.url).host,
      },
      ...planMembers(line),
      ...{
        paid_blocks: listedCap.paidBlocks,
        demand: demand.get(listedCap.cap) ?? 0,
        letter: findLetter(parts.published, listedCap.cap).band,
      },
      next:
        price === null || endpoints.length >= maxNextLetters ? null : await computeNextCost(parts, listedCap, price),
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
    spent: { ...(await sumSpending(lake, day)), ever: formatMoney(totalSpent?.micro ?? 0n) },
    coverage: summarizeCoverage(plan, endpoints),
    endpoints: endpoints.sort(compareLines),
  };
}

const REPORT_KEY = "budget/report.json";

/** Stores the newest report for commands that run beside a service, since they cannot open the service's lake. */
export async function storeReport(store: Store, report: BudgetReport): Promise<void> {
  const bytes = Buffer.from(JSON.stringify(report));
  const storedObject = await store.head(REPORT_KEY);
  // If another process stored a report first, the swap fails, and that report is kept.
  await store.swap(REPORT_KEY, bytes, storedObject?.etag ?? null);
}

/** A report of a running service. */
interface StoredReport {
  report: BudgetReport;
  /** Real time at which the report was stored. (Its own `at` is record time, which a service may simulate.) */
  storedAt: Date;
}

/** Reads the stored report; null when there is none of this version. */
export async function readStoredReport(store: Pick<Store, "get">): Promise<StoredReport | null> {
  const storedObject = await store.get(REPORT_KEY);
  if (!storedObject) return null;
  const report = JSON.parse(Buffer.from(storedObject.bytes).toString("utf8")) as BudgetReport;
  return report.v === 2 ? { report, storedAt: storedObject.modifiedAt } : null;
}

/**
 * Returns the minutes since a report was stored, if they are more than a running service leaves between two reports;
 * null otherwise.
 */
export function staleMinutesOf({ storedAt }: StoredReport, now: Date): number | null {
  const ageMs = now.getTime() - storedAt.getTime();
  return ageMs > MAX_REPORT_AGE_MS ? Math.floor(ageMs / 60_000) : null;
}

/**
 * Is the UTC day of a stored report over in record time, which a service may simulate? Record time is computed as the
 * report's `at` plus the real time since the report was stored.
 */
export function isReportDayOver({ report, storedAt }: StoredReport, now: Date): boolean {
  const recordNow = new Date(Date.parse(report.at) + (now.getTime() - storedAt.getTime()));
  return dayOf(recordNow) > report.day;
}

/**
 * Derives the report of an earlier day from the stored report, for commands that cannot read the lake (the database
 * of the log's rows). Coverage and prices are those of that day's plan, and spending is that day's in `by_day`.
 * Payments by host, domain and payee are stored only for the report's own day, so these lists are null. Letters,
 * demand and next letters are those of the stored report, with costs at that day's prices.
 * @returns null if the day is not one of the thirty UTC days that end with the stored report's day
 */
export async function deriveDayReport(
  day: string,
  storedReport: BudgetReport,
  store: Pick<Store, "get">,
): Promise<BudgetReport | null> {
  if (day > storedReport.day || day <= addDays(storedReport.day, -SPENDING_DAYS)) return null;
  const plan = await readPlan(store, day);
  const lines = new Map(plan?.lines.map((line) => [line.cap, line]));
  const endpoints = storedReport.endpoints.map((endpoint): BudgetLine => {
    const line = lines.get(endpoint.capability_id);
    const price = priceMicroOf(line);
    const next =
      price && endpoint.next ? { ...endpoint.next, cost: formatSum(price * BigInt(endpoint.next.calls)) } : null;
    return { ...endpoint, ...planMembers(line), next };
  });
  const { day: _, ...spent } = storedReport.spent.by_day.find((one) => one.day === day) ?? {
    day,
    ...formatSpent(createZeroSum()),
  };
  return {
    ...storedReport,
    day,
    spent: {
      ...storedReport.spent,
      ...{ day: spent, by_host: null, by_domain: null, by_payee: null },
    },
    coverage: summarizeCoverage(plan, endpoints),
    endpoints: endpoints.sort(compareLines),
  };
}

/**
 * Greatest age of a stored report while a service is running, which stores one every 10 minutes: two of these
 * intervals, and the time to make a report.
 */
const MAX_REPORT_AGE_MS = 25 * 60_000;

/**
 * Is this the report of the given UTC day, and is it recent enough to have been stored by a service that is running?
 */
export const isFresh = ({ day, at }: Pick<BudgetReport, "day" | "at">, today: string, now: Date): boolean =>
  day === today && now.getTime() - Date.parse(at) < MAX_REPORT_AGE_MS;

/** Sums over signed payments, in dollars. */
interface Spent {
  /** Number of signed payments. */
  calls: number;
  /** Signed payments, settled or not; the caps count these. */
  signed: string;
  settled: string;
  /** Payments of calls whose end no process watched, or that failed through our own fault. */
  lost: string;
  refunded: string;
}

const KINDS = ["signed", "settled", "lost", "refunded"] as const;
type Sum = { calls: number } & Record<(typeof KINDS)[number], bigint>;

interface SpendingRow extends Sum {
  day: string;
  url: string;
  pay_to: string;
}

const createZeroSum = (): Sum => ({ calls: 0, signed: 0n, settled: 0n, lost: 0n, refunded: 0n });

function addTo(sums: Map<string, Sum>, name: string, row: Sum): void {
  const sum = sums.get(name) ?? createZeroSum();
  sums.set(name, sum);
  sum.calls += row.calls;
  for (const kind of KINDS) sum[kind] += row[kind];
}

const formatSpent = (sum: Sum): Spent => ({
  calls: sum.calls,
  signed: formatMoney(sum.signed),
  settled: formatMoney(sum.settled),
  lost: formatMoney(sum.lost),
  refunded: formatMoney(sum.refunded),
});

/** Number of days in `by_day`. */
const SPENDING_DAYS = 30;

interface Spending {
  /** Spending of the report's day. */
  day: Spent;
  /** Spending of the day by host, which has a spending cap, the largest sum first; null: not stored. */
  by_host: ({ host: string } & Spent)[] | null;
  /** Spending of the day by registrable domain, which has a spending cap, the largest sum first; null: not stored. */
  by_domain: ({ domain: string } & Spent)[] | null;
  /** Spending of the day by payee address, which has a spending cap, the largest sum first; null: not stored. */
  by_payee: ({ payee: string } & Spent)[] | null;
  /** Spending of the last thirty days, newest first; days without a payment are left out. */
  by_day: ({ day: string } & Spent)[];
}

const compareByMoney = ([a, x]: [string, Sum], [b, y]: [string, Sum]): number =>
  Number(y.signed > x.signed) - Number(y.signed < x.signed) || (a < b ? -1 : 1);

/** Sums up spending on the thirty UTC days that end with `day`. */
async function sumSpending(lake: Pick<Lake, "all">, day: string): Promise<Spending> {
  const rows = await lake.all<SpendingRow>(sql("queries/spending:month"), { day, days: SPENDING_DAYS });
  const hosts = new Map<string, Sum>();
  const domains = new Map<string, Sum>();
  const payees = new Map<string, Sum>();
  const days = new Map<string, Sum>();
  for (const row of rows) {
    addTo(days, row.day, row);
    if (row.day !== day) continue;
    const { host, domain, payee } = recipientOf(hostOf(row.url), row.pay_to);
    addTo(hosts, host, row);
    addTo(domains, domain, row);
    addTo(payees, payee, row);
  }
  return {
    day: formatSpent(days.get(day) ?? createZeroSum()),
    by_host: [...hosts].sort(compareByMoney).map(([host, sum]) => ({ host, ...formatSpent(sum) })),
    by_domain: [...domains].sort(compareByMoney).map(([domain, sum]) => ({ domain, ...formatSpent(sum) })),
    by_payee: [...payees].sort(compareByMoney).map(([payee, sum]) => ({ payee, ...formatSpent(sum) })),
    by_day: [...days]
      .sort(([a], [b]) => (a < b ? 1 : -1))
      .map(([spendingDay, sum]) => ({ day: spendingDay, ...formatSpent(sum) })),
  };
}
