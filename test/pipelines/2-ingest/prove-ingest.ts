import { expect } from "vitest";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import type { Log } from "../../../infra/log/log.ts";
import type { Store } from "../../../infra/store/store.ts";
import { logProblems } from "../../helpers/prove-log.ts";

/** The way from log to lake holds, by the oracle. */
export async function proveIngest({ log, store, lake }: { log: Log; store: Store; lake: Lake }): Promise<void> {
  expect((await logProblems({ log, privateStore: store, lakes: [{ lake }] })).problems).toEqual([]);
}

/** Everything that grading and the planner read, in one comparable piece. */
export async function tablesOf(lake: Lake): Promise<Record<string, unknown[]>> {
  const tables: Record<string, unknown[]> = {};
  // A number of a row says only where it stands in its lake.
  tables.samples = await lake.all("SELECT * EXCLUDE (row) FROM every_sample ORDER BY obs_id");
  for (const [name, order] of [
    ["withdrawn", "obs_id"],
    ["site", "cap"],
    ["seen", "cap"],
    ["quoted", "cap, asked_micro"],
    ["payee", "cap, pay_to"],
    ["endpoint", "cap"],
    ["listing", "event_id"],
  ] as const) {
    tables[name] = await lake.all(`SELECT * FROM ${name} ORDER BY ${order}`);
  }
  return tables;
}
