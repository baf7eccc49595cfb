import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { exportCommand } from "../../../commands/export.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../../infra/tree/note.ts";
import { findRecordFolder } from "../../../pipelines/published/open-source.ts";
import type { GradeLeaf } from "../../../pipelines/record/leaf.ts";
import { capOf, handshake, intent, later, listing, result, settlement, urlOf } from "../2-ingest/records.ts";
import { TRUST } from "../4-publish/world.ts";
import { ArchiveWorld } from "../5-archive/world.ts";

/** The three tables of a record that a real publisher wrote, read by DuckDB as an analyst does. */
const DAY = "2026-11-10";
const KEYS = { logKey: formatVkey(TRUST.log, ED25519), witnessKey: formatVkey(TRUST.witness, COSIGNATURE) };
let world: ArchiveWorld;
let dir: string;

const paidAt = `${DAY}T05:00:00.000Z`;
beforeAll(async () => {
  world = await ArchiveWorld.open();
  dir = world.ingest.dir;
  const paid = intent("a", paidAt);
  await world.ingest.append(
    ...[listing("a", `${DAY}T00:00:00.000Z`), listing("b", `${DAY}T00:00:00.000Z`)],
    ...[handshake("a", `${DAY}T01:00:00.000Z`), handshake("b", `${DAY}T02:00:00.000Z`)],
    ...[paid, result("a", paid.eventId, later(paidAt, 2_000)), settlement("a", paid.eventId, later(paidAt, 3_000))],
    handshake("a", `${DAY}T19:00:00.000Z`),
  );
  await world.grade(`${DAY}T23:00:00.000Z`);
  await world.publisher.buildIndex();
  await world.closeDays("2026-11-11T06:30:00.000Z");
  for (const what of ["index", "grades", "samples"] as const) {
    // The folder around the public one is understood as well as the public one itself.
    const from = what === "index" ? world.publicDir : dir;
    await exportCommand(from, join(dir, `${what}.parquet`), { what, json: true, ...KEYS });
  }
});
afterAll(() => world.close());

async function asked<T>(statement: string): Promise<T[]> {
  const duck = await (await DuckDBInstance.create(":memory:")).connect();
  try {
    await duck.run(`SET file_search_path='${dir}'`);
    return (await duck.runAndReadAll(statement)).getRowObjectsJson() as T[];
  } finally {
    duck.closeSync();
  }
}

describe("tables for analysts", () => {
  test("an endpoint has its place, its terms, its days and its letters, typed", async () => {
    const [types] = await asked<Record<string, string>>(
      "SELECT typeof(as_of) a, typeof(first_seen) b, typeof(computed_at) c, typeof(price) d FROM 'index.parquet'",
    );
    expect(types).toEqual({ a: "TIMESTAMP", b: "TIMESTAMP", c: "TIMESTAMP", d: "DOUBLE" });
    const rows = await asked<Record<string, unknown>>("SELECT * EXCLUDE (card) FROM 'index.parquet' ORDER BY url");
    expect(rows[0]).toMatchObject({
      ...{ url: urlOf("a"), host: "a.example", http_method: "GET", paid_calls: "1", price: 0.02 },
      ...{ first_seen: "2026-11-10 01:00:00", last_seen: "2026-11-10 19:00:00", composite: null },
    });
    expect(rows[0]!.networks).toContain("eip155:8453");
    expect([rows[0]!.pay_to, rows[0]!.asset, rows[0]!.raw_band].every((one) => typeof one === "string")).toBe(true);
    expect(String(rows[0]!.method_page)).toContain("/");
    expect(rows[1]).toMatchObject({ url: urlOf("b"), paid_calls: "0" });
    expect(new Set(rows.map(({ as_of }) => as_of)).size).toBe(1);
  });

  test("every card that was published is a row, in log order, with its own letter and the published one", async () => {
    const leaves = (await world.leaves()).filter((leaf): leaf is GradeLeaf => leaf.kind === "grade");
    const rows = await asked<{ leaf: string; band: string; raw_band: string; url: string }>(
      "SELECT leaf, band, raw_band, url FROM 'grades.parquet'",
    );
    expect(rows.map(({ leaf, band, raw_band }) => [Number(leaf), band, raw_band])).toEqual(
      leaves.map(({ index, card, raw_band }) => [index, card.band, raw_band]),
    );
    expect(rows.map(({ url }) => url)).toContain(urlOf("a"));
  });

  test("every sample of the evidence is a row, a paid one as it was settled later", async () => {
    const rows = await asked<Record<string, unknown>>(
      `SELECT kind, state, settled, observed_at FROM 'samples.parquet' WHERE capability_id = '${capOf("a")}' ORDER BY observed_at`,
    );
    expect(rows.map(({ kind, settled }) => [kind, settled])).toEqual([
      ["probe", false],
      ["paid", true],
      ["probe", false],
    ]);
    expect(rows[1]!.observed_at).toBe("2026-11-10 05:00:00");
  });

  test("every query of the page runs over them", async () => {
    const page = await readFile(join(import.meta.dirname, "../../../docs/analysts.md"), "utf8");
    const queries = [...page.matchAll(/^```sql\n(.*?)\n```$/gms)].map(([, query]) => query!);
    expect(queries).toHaveLength(5);
    const answers = [];
    for (const query of queries) answers.push(await asked<Record<string, unknown>>(query));
    expect(answers[0]).toEqual([{ band: "UNRATED", endpoints: "2", paid_calls: "1", composite: null }]);
    expect(answers[1]).toMatchObject([{ host: "a.example", settled: "1", delivered: 1 }]);
    expect(answers[3]!.length).toBeGreaterThan(1);
  });

  test("nothing is made where nothing is", async () => {
    const nowhere = join(dir, "nowhere");
    await expect(exportCommand(nowhere, join(dir, "x.parquet"), { what: "index" })).rejects.toThrow("nor a folder");
    expect(await findRecordFolder(nowhere)).toBeNull();
  });
});
