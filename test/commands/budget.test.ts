import { mkdtemp, rm, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { budget } from "../../commands/budget.ts";
import { exitNameOf } from "../../commands/exit.ts";
import { systemClock } from "../../infra/clock.ts";
import { loadConfig } from "../../infra/config.ts";
import { type Lake, openLake } from "../../infra/lake/duckdb.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { type BudgetReport, storeReport } from "../../pipelines/budget/report.ts";
import { addDays, dayOf } from "../../pipelines/record/time.ts";
import { ensureKeys, foldersOf } from "../../pipelines/roles/data-folder.ts";

/** What an operator is told beside a running service, which owns the lake. */
let dir: string;
let owned: Lake;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "budget-"));
  ensureKeys(dir, systemClock.now());
  owned = await openLake(foldersOf(dir).lake, { memoryLimit: "256MB", threads: 1, init: [] });
});
afterEach(async () => {
  await owned.close();
  await rm(dir, { recursive: true, force: true });
});

const settings = () => loadConfig(undefined, { TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_LOG_LEVEL: "silent" });
const TODAY = dayOf(systemClock.now());
const nothing = { calls: 0, signed: "0.000000", settled: "0.000000", lost: "0.000000", refunded: "0.000000" };
const caps = { per_call: "1.0", per_host_day: "1.0", per_domain_day: "1.0", per_payee_day: "1.0", per_day: "1.0" };

const REPORT: BudgetReport = {
  ...{ v: 2, at: `${TODAY}T00:00:00.000Z`, day: TODAY, caps: { ...caps, total: "1.0" }, new_share: "0.2" },
  spent: { day: nothing, by_host: [], by_domain: [], by_payee: [], by_day: [], ever: "0.000000" },
  coverage: { planned: false, listed: 0, covered: 0, reserved: "0.000000", not_covered: {} },
  endpoints: [],
};

/** Keeps a report as a service does; `storedAt` is the time of this machine at which it did. */
async function kept(report = REPORT, storedAt = systemClock.now()): Promise<void> {
  const folder = foldersOf(dir).private;
  const store = await openDirectoryStore(folder);
  await storeReport(store, report);
  await store.close();
  await utimes(join(folder, "budget/report.json"), storedAt, storedAt);
}

async function printed(day?: string, json = false): Promise<string> {
  const writes = vi.spyOn(process.stdout, "write").mockReturnValue(true);
  try {
    await budget(settings(), { json, ...(day ? { day } : {}) });
    return writes.mock.calls.map(([text]) => String(text)).join("");
  } finally {
    writes.mockRestore();
  }
}

const told = async (day?: string): Promise<BudgetReport> => JSON.parse(await printed(day, true)) as BudgetReport;

/** The sentence, and the name of the exit code. */
const refused = (day?: string): Promise<[string, string]> =>
  told(day).then(
    () => ["answered", "ok"],
    (error: Error) => [error.message, exitNameOf(error)],
  );

test("the kept report answers for its day, and for each of the thirty days that it sums up", async () => {
  await kept();
  expect(await told()).toEqual(REPORT);
  expect(await told(TODAY)).toEqual(REPORT);
  const day = addDays(TODAY, -3);
  expect(await told(day)).toMatchObject({ day, at: REPORT.at, spent: { day: nothing, by_host: null } });
});

test("what it does not hold is one sentence with the code of what is busy", async () => {
  expect(await refused()).toEqual([
    "a running service owns the lake, and it has kept no report yet: ask again in ten minutes",
    "busy",
  ]);
  await kept();
  const old = addDays(TODAY, -30);
  expect(await refused(old)).toEqual([
    `a running service owns the lake, and its report holds the thirty days up to ${TODAY}: stop it to see ${old}`,
    "busy",
  ]);
  expect(await refused(addDays(TODAY, 1))).toEqual([
    `a running service owns the lake, and its newest report is of ${TODAY}: ask again in ten minutes`,
    "busy",
  ]);
});

describe("a report that is not of now", () => {
  const YESTERDAY = addDays(TODAY, -1);
  const noon = (day: string) => `${day}T12:00:00.000Z`;

  test("it says how old it is, and is not given as all of a day in which it was made", async () => {
    await kept({ ...REPORT, day: YESTERDAY, at: noon(YESTERDAY) }, new Date(noon(YESTERDAY)));
    const minutesNow = () => Math.floor((systemClock.now().getTime() - Date.parse(noon(YESTERDAY))) / 60_000);
    const minutesBefore = minutesNow();
    const lines = await printed();
    const [, minutes] = /\nmade (\d+) minutes ago: no service has stored one since\n/.exec(lines)!;
    expect(Number(minutes)).toBeGreaterThanOrEqual(minutesBefore);
    expect(Number(minutes)).toBeLessThanOrEqual(minutesNow());
    expect(lines.startsWith(`Budget of ${YESTERDAY} (as of ${noon(YESTERDAY)})`)).toBe(true);
    expect(await refused(YESTERDAY)).toEqual([
      `a running service owns the lake, and its newest report is of ${noon(YESTERDAY)}, before the end of ${YESTERDAY}: ask again in ten minutes`,
      "busy",
    ]);
    expect(await printed(addDays(TODAY, -3))).toContain("no service has stored one since");
  });

  test("one of ten minutes ago is of now, and so is one whose service simulates its time", async () => {
    await kept(REPORT, new Date(systemClock.now().getTime() - 600_000));
    expect(await printed()).not.toContain("minutes ago");
    const day = addDays(TODAY, -9);
    const simulated = { ...REPORT, day, at: noon(day) };
    await kept(simulated);
    expect(await told(day)).toEqual(simulated);
    expect(await printed(day)).not.toContain("minutes ago");
  });
});
