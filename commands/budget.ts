import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import type { Keyring } from "../infra/keys/keys.ts";
import { LakeBusy } from "../infra/lake/damage.ts";
import { originOf, trustOf } from "../infra/tree/checkpoint.ts";
import { parseCaps } from "../pipelines/1-observe/plan/spend.ts";
import { createMemory } from "../pipelines/2-ingest/memory.ts";
import { FollowedRecord } from "../pipelines/4-publish/followed.ts";
import {
  type BudgetLine,
  type BudgetReport,
  createBudgetReport,
  deriveDayReport,
  isFresh,
  isReportDayOver,
  readStoredReport,
  staleMinutesOf,
} from "../pipelines/budget/report.ts";
import type { ArchiveFold } from "../pipelines/published/fold.ts";
import { dayOf } from "../pipelines/record/time.ts";
import { type OpenIngest, openIngest, openIngestOf } from "../pipelines/roles/open-ingest.ts";
import { openOwnerParts, openParts, type Parts } from "../pipelines/roles/parts.ts";
import { requireDataFolder, withOpen } from "./files.ts";
import { print } from "./printer.ts";
import { columns } from "./report.ts";
import type { OptionsOf } from "./table.ts";

type BudgetOptions = OptionsOf<"budget">;

/** Largest number of endpoints that are computed and shown without `--all` (and without `--json`). */
const MAX_SHOWN = 40;

/**
 * What a report is computed from. `ring` holds only public keys, so that a machine of a cluster without private keys
 * can compute the report too.
 */
type BudgetParts = Pick<Parts, "config" | "privateStore" | "publicStore"> & { ring: Keyring };

/** Opens the lake (the DuckDB database of records), loads new records into it, and computes the report of a day. */
const computeReport = (
  { config, privateStore, publicStore, ring }: BudgetParts,
  openLake: (archived: () => Promise<ArchiveFold>) => Promise<OpenIngest>,
  day: string,
  maxEndpoints: number,
): Promise<BudgetReport> => {
  const followed = new FollowedRecord(publicStore, () => trustOf(originOf(config.base_url), ring, systemClock.now()));
  const readArchive = async () => (await followed.current()).archive;
  return withOpen(openLake(readArchive), async ({ lake, ingest }) => {
    await ingest.pass();
    const published = await followed.current();
    const caps = parseCaps(config.spend);
    const reportInputs = { lake, memory: createMemory(lake), privateStore, caps, published, now: systemClock.now() };
    return createBudgetReport(reportInputs, day, maxEndpoints);
  });
};

/** A report to print. */
interface FoundReport {
  report: BudgetReport;
  /** Minutes since the report was stored, if a running service would have stored a newer one; null otherwise. */
  staleMinutes: number | null;
}

/**
 * Returns the report that a running service stored; for an earlier day, one that is derived from it.
 * @throws Failure `busy` in four cases: no report is stored; the stored report is of an earlier day than requested; it
 * is of the requested day, but was made before the end of that day, which is over now; or no report can be derived for
 * the requested day
 */
async function readReportOfDay({ privateStore }: BudgetParts, requestedDay: string | undefined): Promise<FoundReport> {
  const now = systemClock.now();
  const stored = await readStoredReport(privateStore);
  if (!stored || (requestedDay !== undefined && requestedDay > stored.report.day)) {
    const whyNoReport = stored ? `its newest report is of ${stored.report.day}` : "it has kept no report yet";
    throw new Failure("busy", `a running service owns the lake, and ${whyNoReport}: ask again in ten minutes`);
  }
  const { report } = stored;
  const staleMinutes = staleMinutesOf(stored, now);
  if (requestedDay === undefined) return { report, staleMinutes };
  if (requestedDay === report.day) {
    if (!isReportDayOver(stored, now)) return { report, staleMinutes };
    const why = `its newest report is of ${report.at}, before the end of ${requestedDay}`;
    throw new Failure("busy", `a running service owns the lake, and ${why}: ask again in ten minutes`);
  }
  const dayReport = await deriveDayReport(requestedDay, report, privateStore);
  if (dayReport) return { report: dayReport, staleMinutes };
  throw new Failure(
    "busy",
    `a running service owns the lake, and its report holds the thirty days up to ${report.day}: stop it to see ${requestedDay}`,
  );
}

/**
 * `touchstone budget`: prints which endpoints are paid today, which are not and why, what was spent, and what it costs
 * until the grade of each endpoint may rise to the next better letter. While a service runs, the command prints the
 * report that the service stores every ten minutes, or derives the report of an earlier day from it and that day's
 * plan. In a cluster it prints the report that the observers store about all their payments, if that is fresh;
 * otherwise, or for another day, it loads the records into a lake in this data folder from the segment files.
 */
export async function budget(config: Config, options: BudgetOptions): Promise<void> {
  requireDataFolder(config);
  const { report, staleMinutes } = await (config.log === null
    ? reportOfSingleMachine(config, options)
    : reportOfCluster(config, options));
  const lines = budgetLines(report, options.all ? Number.POSITIVE_INFINITY : MAX_SHOWN);
  const staleLine = `made ${staleMinutes} minutes ago: no service has stored one since`;
  print(options, report, staleMinutes === null ? lines : [lines[0]!, staleLine, ...lines.slice(1)]);
}

/** Computes the report; if another process has the lake open, reads the stored one instead. */
function computeOrReadReport(
  parts: BudgetParts,
  openLake: Parameters<typeof computeReport>[1],
  { day, all, json }: BudgetOptions,
): Promise<FoundReport> {
  const maxEndpoints = all || json ? Number.POSITIVE_INFINITY : MAX_SHOWN;
  return computeReport(parts, openLake, day ?? dayOf(systemClock.now()), maxEndpoints).then(
    (report) => ({ report, staleMinutes: null }),
    (error: unknown) => {
      if (error instanceof LakeBusy) return readReportOfDay(parts, day);
      throw error;
    },
  );
}

const reportOfSingleMachine = (config: Config, options: BudgetOptions): Promise<FoundReport> =>
  withOpen(openParts(config, systemClock), (parts) =>
    computeOrReadReport({ ...parts, ring: parts.keys.ring }, () => openIngest(parts, systemClock), options),
  );

const reportOfCluster = (config: Config, options: BudgetOptions): Promise<FoundReport> =>
  withOpen(openOwnerParts(config, systemClock), async (parts) => {
    const now = systemClock.now();
    const stored = await readStoredReport(parts.privateStore);
    if (stored && isFresh(stored.report, options.day ?? dayOf(now), now))
      return { report: stored.report, staleMinutes: null };
    return computeOrReadReport(
      { ...parts, config },
      (archived) => openIngestOf({ ...parts, config }, archived),
      options,
    );
  });

/** Texts for people for the reasons (`why`) for which an endpoint gets no paid calls. */
const REASONS: Record<string, string> = {
  excluded: "excluded by the settings",
  opted_out: "its seller refuses paid test calls",
  silent: "silent for two weeks or more",
  nothing_to_pay: "no offer that our wallets can pay",
  per_call: "more expensive than the cap per call",
  per_host_day: "the host's cap of the day is used up",
  per_domain_day: "the domain's cap of the day is used up",
  per_payee_day: "the payee's cap of the day is used up",
  per_day: "the cap of the day is used up",
  total: "the whole budget is spent or promised",
  not_planned: "listed after the plan was made",
};

function nextLetterCells({ next, why, covered }: BudgetLine): string[] {
  if (next) return [next.letter, `${next.calls}`, next.cost, next.day];
  return ["-", "-", "-", covered === true ? "no better letter in sight" : (REASONS[why ?? "not_planned"] ?? "")];
}

/** Formats the report for people, with at most `maxEndpoints` endpoints. */
export function budgetLines(report: BudgetReport, maxEndpoints: number): string[] {
  const { caps, spent, coverage, endpoints, day } = report;
  const { signed, settled, lost, refunded, calls } = spent.day;
  const notCoveredReasons = Object.entries(coverage.not_covered).map(([why, n]) => `${n} ${REASONS[why] ?? why}`);
  const shownEndpoints = endpoints.slice(0, maxEndpoints);
  const rows = shownEndpoints.map((one) => [
    one.covered ? "covered" : "-",
    one.letter,
    one.price === null ? "-" : one.price,
    ...nextLetterCells(one),
    `${one.method} ${one.url}`,
  ]);
  return [
    `Budget of ${day} (as of ${report.at}), USDC`,
    "",
    `covered   ${coverage.covered} of ${coverage.listed} endpoints, ${coverage.reserved} set aside${coverage.planned ? "" : "; there is no plan of this day"}`,
    ...(notCoveredReasons.length > 0 ? [`not       ${notCoveredReasons.join("; ")}`] : []),
    `spent     ${signed} of ${caps.per_day} on the day (${calls} calls; ${settled} settled, ${lost} lost by our own fault, ${refunded} refunded)`,
    `ever      ${spent.ever} of ${caps.total}; at most ${caps.per_call} a call; on a day ${caps.per_host_day} a host, ${caps.per_domain_day} a domain, ${caps.per_payee_day} a payee`,
    `new       ${report.new_share} of a day's caps is kept for endpoints never paid`,
    ...(spent.by_domain ?? []).slice(0, 5).map((one) => `          ${one.signed} to ${one.domain}`),
    ...(spent.by_payee ?? []).slice(0, 3).map((one) => `          ${one.signed} to the payee ${one.payee}`),
    ...(spent.by_domain === null ? ["          who was paid on this day is shown once the service is stopped"] : []),
    "",
    ...(rows.length > 0
      ? columns([["", "letter", "a call", "next", "calls", "cost", "on", "endpoint"], ...rows])
      : ["Nothing is listed yet: touchstone listings add FILE|URL"]),
    ...(endpoints.length > shownEndpoints.length
      ? [`and ${endpoints.length - shownEndpoints.length} more: --all, or --json`]
      : []),
    "",
    "cost: if every call succeeds and follows the base schedule, until the letter may rise; a failure costs more.",
    "The rule by which the money is spent: docs/schedule.md",
  ];
}
