import type { BudgetLine, BudgetReport } from "../pipelines/budget/report.ts";

const REASONS: Record<string, string> = {
  excluded: "excluded by the settings",
  opted_out: "its seller asks for no paid test calls",
  silent: "silent for two weeks or more",
  nothing_to_pay: "nothing that we can pay",
  per_call: "dearer than a call may be",
  per_host_day: "the host's day is full",
  per_domain_day: "the domain's day is full",
  per_payee_day: "the payee's day is full",
  per_day: "the day is full",
  total: "the whole budget is spent or promised",
  not_planned: "listed after the plan was made",
};

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  return rows.map((row) =>
    row
      .map((cell, i) => (i === row.length - 1 ? cell : cell.padEnd(widths[i]!)))
      .join("  ")
      .trimEnd(),
  );
}

function nextOf({ next, why, covered }: BudgetLine): string[] {
  if (next) return [next.letter, `${next.calls}`, next.cost, next.day];
  return ["-", "-", "-", covered === true ? "no better letter in sight" : (REASONS[why ?? "not_planned"] ?? "")];
}

/** The report for people, bounded to `most` endpoints. */
export function budgetText(report: BudgetReport, most: number): string {
  const { caps, spent, coverage, endpoints, day } = report;
  const { signed, settled, lost, refunded, calls } = spent.day;
  const left = Object.entries(coverage.not_covered).map(([why, n]) => `${n} ${REASONS[why] ?? why}`);
  const shown = endpoints.slice(0, most);
  const rows = shown.map((one) => [
    one.covered ? "covered" : "-",
    one.letter,
    one.price === null ? "-" : one.price,
    ...nextOf(one),
    `${one.method} ${one.url}`,
  ]);
  return [
    `Budget of ${day} (as of ${report.at}), USDC`,
    "",
    `covered   ${coverage.covered} of ${coverage.listed} endpoints, ${coverage.reserved} set aside${coverage.planned ? "" : "; there is no plan of this day"}`,
    ...(left.length > 0 ? [`not       ${left.join("; ")}`] : []),
    `spent     ${signed} of ${caps.per_day} on the day (${calls} calls; ${settled} settled, ${lost} lost by our own fault, ${refunded} refunded)`,
    `ever      ${spent.ever} of ${caps.total}; at most ${caps.per_call} a call; on a day ${caps.per_host_day} a host, ${caps.per_domain_day} a domain, ${caps.per_payee_day} a payee`,
    `new       ${report.new_share} of a day's caps is kept for endpoints never paid`,
    ...spent.by_domain.slice(0, 5).map((one) => `          ${one.signed} to ${one.domain}`),
    ...spent.by_payee.slice(0, 3).map((one) => `          ${one.signed} to the payee ${one.payee}`),
    "",
    ...(rows.length > 0
      ? table([["", "letter", "a call", "next", "calls", "cost", "on", "endpoint"], ...rows])
      : ["Nothing is listed yet: touchstone listings add FILE|URL"]),
    ...(endpoints.length > shown.length ? [`and ${endpoints.length - shown.length} more: --all, or --json`] : []),
    "",
    "cost: perfect calls on the base schedule until the hold lets the letter up; a failure on the way costs more.",
    "The rule by which the money is spent: docs/schedule.md",
    "",
  ].join("\n");
}
