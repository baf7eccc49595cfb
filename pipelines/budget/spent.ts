import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { toWhom } from "../1-observe/plan/spend.ts";
import { hostOf } from "../1-observe/urls.ts";
import { formatMoney } from "../record/money.ts";

/** Payments that were signed, as money. */
export interface Spent {
  calls: number;
  /** What we signed, settled or not: this is what the caps count. */
  signed: string;
  settled: string;
  /** Booked losses: intents whose end nobody watched, or that our own fault spoilt. */
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

export interface Spending {
  /** On the day itself. */
  day: Spent;
  /** The day's hosts, registrable domains and payees, most money first: each has a cap of its own. */
  by_host: ({ host: string } & Spent)[];
  by_domain: ({ domain: string } & Spent)[];
  by_payee: ({ payee: string } & Spent)[];
  /** Thirty days, newest first; days without a payment are left out. */
  by_day: ({ day: string } & Spent)[];
}

const byMoney = ([a, x]: [string, Sum], [b, y]: [string, Sum]): number =>
  Number(y.signed > x.signed) - Number(y.signed < x.signed) || (a < b ? -1 : 1);

/** What was spent on the thirty UTC days that end with `day`. */
export async function spendingOn(lake: Pick<Lake, "all">, day: string): Promise<Spending> {
  const rows = await lake.all<Row>(sql("queries/spending:month"), { day });
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
