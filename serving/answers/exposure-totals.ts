import { formatSum, parseSum } from "../../pipelines/record/money.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import {
  type ExposureFacts,
  type ExposureLine,
  type ExposurePayee,
  STANDINGS,
  type Standing,
} from "../schemas/exposure.ts";

/** Returns which part of {@link ExposureSum}'s spend a line's spend is added to. An F counts as failing. */
function partOf({ standing, band }: ExposureLine): "failing" | "unmeasured" | "lettered" {
  if (standing === "took_the_money" || standing === "listing_mismatch") return "failing";
  if (standing === "lettered") return band === "F" ? "failing" : "lettered";
  return "unmeasured";
}

/**
 * Reports whether the line's price is in dollars. A price in the record has its unit; the request's own price, used
 * when the record has none, is in dollars.
 */
const isInDollars = ({ unit, price, price_given }: ExposureLine): boolean =>
  price === null ? price_given !== undefined : unit === "USD";

/** Rounds a number of calls to six decimals, since the sum of decimal fractions is inexact. */
const roundCalls = (calls: number): number => Number(calls.toFixed(6));

/** Adds up lines of a report; one line is one dependency. */
class ExposureSum {
  readonly #spend = { failing: 0n, unmeasured: 0n, lettered: 0n };
  readonly #calls = { all: 0, unmeasured: 0 };
  readonly #standings = Object.fromEntries(STANDINGS.map((name) => [name, 0])) as Record<Standing, number>;
  readonly #origins = new Set<string>();
  /** Number of lines with each of these two flags, and the spend of the lines with either. */
  readonly #related = { payee_took_the_money: 0, domain_took_the_money: 0, spend: 0n };
  lineCount = 0;

  add(line: ExposureLine): void {
    this.lineCount++;
    this.#standings[line.standing]++;
    if (line.url !== undefined) this.#origins.add(new URL(line.url).origin);
    const spend = isInDollars(line) && line.monthly_spend !== null ? parseSum(line.monthly_spend) : 0n;
    this.#spend[partOf(line)] += spend;
    this.#calls.all += line.calls_per_month ?? 0;
    if (partOf(line) === "unmeasured") this.#calls.unmeasured += line.calls_per_month ?? 0;
    const [payeeTookMoney, domainTookMoney] = [
      line.flags.includes("payee_took_the_money"),
      line.flags.includes("domain_took_the_money"),
    ];
    if (payeeTookMoney) this.#related.payee_took_the_money++;
    if (domainTookMoney) this.#related.domain_took_the_money++;
    if (payeeTookMoney || domainTookMoney) this.#related.spend += spend;
  }

  get total(): bigint {
    return this.#spend.failing + this.#spend.unmeasured + this.#spend.lettered;
  }

  get originCount(): number {
    return this.#origins.size;
  }

  get facts() {
    return {
      monthly_spend: formatSum(this.total),
      monthly_spend_where_the_record_shows_a_failure: formatSum(this.#spend.failing),
      monthly_spend_not_yet_measured: formatSum(this.#spend.unmeasured),
      monthly_spend_lettered: formatSum(this.#spend.lettered),
      calls_per_month: roundCalls(this.#calls.all),
      calls_per_month_not_yet_measured: roundCalls(this.#calls.unmeasured),
      standings: { ...this.#standings },
      ...this.#relatedFacts,
    };
  }

  get #relatedFacts(): Pick<ExposurePayee, "related"> {
    const { spend, ...counts } = this.#related;
    if (counts.payee_took_the_money + counts.domain_took_the_money === 0) return {};
    return { related: { ...counts, monthly_spend: formatSum(spend) } };
  }
}

/** Returns the sums for each payee's address, the highest spend first, and for all lines together. */
export function totalsOf(lines: readonly ExposureLine[]): Pick<ExposureFacts, "payees" | "totals"> {
  const all = new ExposureSum();
  const byAddress = new Map<string | null, { address: string | null; sum: ExposureSum }>();
  const otherAssets = new Map<string, number>();
  for (const line of lines) {
    const key = line.pay_to === null ? null : addressKey(line.pay_to);
    const group = byAddress.get(key) ?? { address: line.pay_to, sum: new ExposureSum() };
    byAddress.set(key, group);
    group.sum.add(line);
    all.add(line);
    if (line.asset !== null && line.unit !== "USD") otherAssets.set(line.asset, (otherAssets.get(line.asset) ?? 0) + 1);
  }
  const payees = [...byAddress.values()].sort(compareBySpend);
  return {
    payees: payees.map(
      ({ address, sum }): ExposurePayee => ({
        ...{ address, dependencies: sum.lineCount, origins: sum.originCount },
        ...sum.facts,
      }),
    ),
    totals: {
      dependencies: lines.length,
      payees: payees.filter(({ address }) => address !== null).length,
      unit: "USD",
      ...all.facts,
      without_spend: lines.filter((line) => line.monthly_spend === null).length,
      pay_to_not_seen_before: lines.filter((line) => line.pay_to_seen_before === false).length,
      other_assets: [...otherAssets].sort().map(([asset, dependencies]) => ({ asset, dependencies })),
    },
  };
}

/**
 * Orders payees by spend, then number of dependencies, both descending, then address; an unknown address comes last
 * among equals.
 */
function compareBySpend(
  a: { address: string | null; sum: ExposureSum },
  b: { address: string | null; sum: ExposureSum },
): number {
  if (a.sum.total !== b.sum.total) return a.sum.total > b.sum.total ? -1 : 1;
  if (a.sum.lineCount !== b.sum.lineCount) return b.sum.lineCount - a.sum.lineCount;
  return (a.address ?? "~") < (b.address ?? "~") ? -1 : 1;
}
