import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { exportCommand } from "../../commands/export.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../infra/tree/note.ts";
import { cardOf, listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { linesAt } from "../helpers/published.ts";
import { handshake, intent, later, listing, result, settlement } from "../pipelines/2-ingest/records.ts";
import { TRUST } from "../pipelines/4-publish/world.ts";
import { toolListing, toolProbe } from "../pipelines/5-archive/tools.ts";
import { ArchiveWorld } from "../pipelines/5-archive/world.ts";
import { publishIndex, publishKeys, sourceDir, specOf } from "../pipelines/mirror/testbed.ts";
import { PYTHON } from "./judges.ts";

/**
 * Every Parquet and NDJSON file that is published or exported, read by polars, pandas, pyarrow and DuckDB: all rows, and the
 * same types. A file of no rows is a table of no rows in Parquet, and no bytes in NDJSON.
 */
const run = promisify(execFile);
const READERS = ["polars", "pandas", "pyarrow", "duckdb"] as const;
type Reader = (typeof READERS)[number];
type Said = { rows: number; columns: Record<string, string> } | { error: string };

const DAY = "2026-11-10";
const KEYS = { logKey: formatVkey(TRUST.log, ED25519), witnessKey: formatVkey(TRUST.witness, COSIGNATURE) };
const ENDPOINTS = 1_100;
/** More than the 100 lines from which polars takes the types unless it is told to read all. */
const SILENT = 130;

let dir: string;
let record: PublicRecord;
let none: PublicRecord;
let world: ArchiveWorld;
/** Rows of each file, by our own count. */
const expected = new Map<string, number>();
let said: Record<string, Record<Reader, Said>>;

async function indexOf(of: PublicRecord, endpoints: number): Promise<string> {
  await publishKeys(of);
  const specs = Array.from({ length: endpoints }, (_, n) => specOf(`n${n}`));
  const offers = [{ network: "eip155:8453", asset: "0xaa", price: "0.012500", pay_to: "0x01" }];
  await of.publish(
    ...specs.map((spec, n) => [{ ...listingDraft(spec), ...(n % 2 === 1 ? { offers } : {}) }]),
    ...specs.slice(0, 9).map((spec) => of.grades([cardOf(spec)], "B.")),
  );
  await publishIndex(of);
  return of.committer.fold.index!.table!;
}

/** A day of probes, the first of which have neither status nor price, a paid call and a tool; archived, with its evidence. */
async function archived(): Promise<void> {
  world = await ArchiveWorld.open();
  const minute = (n: number) =>
    `${DAY}T${String(Math.floor(n / 60)).padStart(2, "0")}:${String(n % 60).padStart(2, "0")}`;
  const paid = intent("a", `${DAY}T07:00:00.000Z`);
  await world.ingest.append(
    ...[listing("a", `${DAY}T00:00:00.000Z`), toolListing("t", `${DAY}T00:00:00.000Z`)],
    ...Array.from({ length: SILENT }, (_, n) =>
      handshake("a", `${minute(n)}:00.000Z`, {
        state: "silent",
        live: false,
        status: null,
        latency_ms: null,
        price: null,
      }),
    ),
    ...[paid, result("a", paid.eventId, later(`${DAY}T07:00:00.000Z`, 2_000))],
    settlement("a", paid.eventId, later(`${DAY}T07:00:00.000Z`, 3_000)),
    ...[handshake("a", `${DAY}T13:00:00.000Z`), toolProbe("t", `${DAY}T01:00:00.000Z`)],
    handshake("a", "2026-11-11T13:00:00.000Z"),
  );
  await world.grade(`${DAY}T23:00:00.000Z`);
  await world.publisher.buildIndex();
  await world.closeDays("2026-11-12T06:30:00.000Z");
  for (const what of ["index", "grades", "samples"] as const) {
    await exportCommand(world.publicDir, join(dir, `export-${what}.parquet`), { what, json: true, ...KEYS });
  }
  await world.archive("2027-03-02T00:00:00.000Z");
}

/** Copies every object under that folder, and counts its lines. */
async function takeNdjson(of: Pick<ArchiveWorld, "publicStore" | "publicDir">, folder: string): Promise<void> {
  for (const entry of await readdir(join(of.publicDir, folder), { recursive: true, withFileTypes: true })) {
    if (!entry.name.endsWith(".ndjson.zst")) continue;
    const path = join(entry.parentPath, entry.name);
    const name = `${basename(entry.parentPath)}-${entry.name}`;
    await copyFile(path, join(dir, name));
    expected.set(name, (await linesAt(of.publicStore, path.slice(of.publicDir.length + 1))).length);
  }
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tables-"));
  [record, none] = [await PublicRecord.open(), await PublicRecord.open()];
  await writeFile(join(dir, "index.parquet"), (await record.store.get(await indexOf(record, ENDPOINTS)))!.bytes);
  await writeFile(join(dir, "index-of-none.parquet"), (await none.store.get(await indexOf(none, 0)))!.bytes);
  await archived();
  for (const folder of ["archive", "evidence"]) await takeNdjson(world, folder);
  await takeNdjson({ publicStore: record.store, publicDir: sourceDir(record) }, "index/shard");
  for (const [name, rows] of Object.entries({
    "index.parquet": ENDPOINTS,
    "index-of-none.parquet": 0,
    "export-index.parquet": 2,
    "export-grades.parquet": (await world.leaves()).filter(({ kind }) => kind === "grade").length,
    "export-samples.parquet": SILENT + 4,
  })) {
    expected.set(name, rows);
  }
  const { stdout } = await run(PYTHON, [join(import.meta.dirname, "python/tables.py"), dir], { maxBuffer: 1 << 26 });
  said = JSON.parse(stdout);
});
afterAll(async () => {
  await world?.close();
  await record?.close();
  await none?.close();
  await rm(dir, { recursive: true, force: true });
});

test("there are files of every kind, with rows and without", () => {
  const names = Object.keys(said);
  expect(names).toEqual([...expected.keys()].sort());
  for (const kind of [/^index/, /^export-samples/, /^liveness_probes/, /^mcp_probes/, /^grades/, /^\d{4}-/, /^shard/]) {
    expect(names.filter((name) => kind.test(name) && expected.get(name)! > 0)).not.toEqual([]);
  }
  for (const kind of [/\.parquet$/, /\.ndjson\.zst$/]) {
    expect(names.filter((name) => kind.test(name) && expected.get(name) === 0)).not.toEqual([]);
  }
});

test.each(READERS)("%s reads every row of every file that has one, and Parquet files without", (reader) => {
  for (const [name, rows] of expected) {
    if (rows === 0 && !name.endsWith(".parquet")) continue;
    expect([name, said[name]![reader]]).toEqual([name, { rows, columns: expect.anything() }]);
  }
});

/** A type of ours in the words of each reader; pandas has one type for whatever is no number, truth or time. */
const TYPES: Record<string, Record<Reader, RegExp>> = {
  VARCHAR: { polars: /^String$/, pandas: /^(str|object)$/, pyarrow: /^string$/, duckdb: /^VARCHAR$/ },
  "VARCHAR[]": { polars: /^List\(String\)$/, pandas: /^object$/, pyarrow: /^list<.*string/, duckdb: /^VARCHAR\[\]$/ },
  DOUBLE: { polars: /^Float64$/, pandas: /^float64$/, pyarrow: /^double$/, duckdb: /^DOUBLE$/ },
  BIGINT: { polars: /^Int64$/, pandas: /^(int64|float64)$/, pyarrow: /^int64$/, duckdb: /^BIGINT$/ },
  BOOLEAN: { polars: /^Boolean$/, pandas: /^(bool|object)$/, pyarrow: /^bool$/, duckdb: /^BOOLEAN$/ },
  TIMESTAMP: { polars: /^Datetime/, pandas: /^datetime64/, pyarrow: /^timestamp\[ms/, duckdb: /^TIMESTAMP$/ },
};

test("Parquet columns have one type for all readers, with rows and without", () => {
  for (const [name, by] of Object.entries(said).filter(([name]) => name.endsWith(".parquet"))) {
    const columns = (reader: Reader) => (by[reader] as { columns: Record<string, string> }).columns;
    for (const [column, type] of Object.entries(columns("duckdb"))) {
      for (const reader of READERS)
        expect([name, column, columns(reader)[column]]).toEqual([
          name,
          column,
          expect.stringMatching(TYPES[type]![reader]),
        ]);
    }
  }
  const of = (name: string) => (said[name]!.duckdb as { columns: Record<string, string> }).columns;
  expect(of("index-of-none.parquet")).toEqual(of("index.parquet"));
  expect(of("index.parquet")).toMatchObject({
    ...{ url: "VARCHAR", composite: "DOUBLE", sample_count: "BIGINT", price: "DOUBLE", leaf: "BIGINT" },
    ...{ networks: "VARCHAR[]", flags: "VARCHAR[]", computed_at: "TIMESTAMP", as_of: "TIMESTAMP" },
  });
  expect(of("export-samples.parquet")).toMatchObject({ observed_at: "TIMESTAMP", settled: "BOOLEAN", kind: "VARCHAR" });
});

test("lines of the archive have the documented members for all readers", async () => {
  const page = await readFile(resolve(import.meta.dirname, "../../docs/archive.md"), "utf8");
  const documented = /^\| `liveness_probes` \|[^|]*\|(.*)\|$/m
    .exec(page)![1]!
    .match(/(?<=`)\w+(?=`)/g)!
    .sort();
  const name = Object.keys(said).find((name) => name.startsWith("liveness_probes") && expected.get(name)! > SILENT)!;
  for (const reader of READERS) {
    const { columns } = said[name]![reader] as { columns: Record<string, string> };
    expect(Object.keys(columns).sort()).toEqual(documented);
    expect(columns.status).toMatch(/Int64|float64|int64|BIGINT/);
  }
});

describe("the page's snippets over a mirror's folder", () => {
  const snippet = async (page: string): Promise<string> => {
    const text = await readFile(resolve(import.meta.dirname, `../../docs/${page}.md`), "utf8");
    return /^```python\n(.*?)^```/ms.exec(text)![1]!;
  };
  const ran = async (page: string, publicDir: string): Promise<string> => {
    const folder = await mkdtemp(join(dir, "copy-"));
    await mkdir(join(folder, "copy"));
    await symlink(publicDir, join(folder, "copy/public"));
    return (await run(PYTHON, ["-c", await snippet(page)], { cwd: folder })).stdout;
  };

  test("archive: all probes of the files that have rows", async () => {
    expect(await ran("archive", world.publicDir)).toBe(`${SILENT + 2}\n`);
  });
  test("analysts: the letters of the newest index", async () => {
    expect(await ran("analysts", sourceDir(record))).toMatch(/B.*9[\s\S]*UNRATED.*1091/);
  });
});
