import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { openProcessLock } from "../../../infra/store/lock.ts";
import {
  type ImportOptions,
  type ImportResult,
  importRegister,
  registerPath,
} from "../../../pipelines/register/import.ts";
import { Register } from "../../../pipelines/register/register.ts";
import { search } from "../../../pipelines/register/search.ts";
import { COLUMNS, HEADER, inventedRow, lineOf } from "../../helpers/golden-copy.ts";
import { zipOf } from "../../helpers/zip.ts";

const SAMPLE = resolve(import.meta.dirname, "../../../fixtures/register");
const GOLDEN = join(SAMPLE, "golden-copy.csv");
/** Companies of the sample. */
const ALL = 54;

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "register-import-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const take = (source: string, domains?: string, level2: Partial<ImportOptions> = {}): Promise<ImportResult> =>
  importRegister({ source, domains, ...level2, to: registerPath(dir), clock: systemClock });

const put = async (name: string, bytes: string | Uint8Array): Promise<string> => {
  const path = join(dir, name);
  await writeFile(path, bytes);
  return path;
};

/** LEIs that the register in the folder holds. */
async function held(): Promise<string[]> {
  const register = new Register({ path: registerPath(dir), clock: systemClock });
  try {
    return await register.use(async (open) =>
      (await open.all<{ lei: string }>("SELECT lei FROM company ORDER BY lei")).map(({ lei }) => lei),
    );
  } finally {
    register.close();
  }
}

describe("what is kept", () => {
  test("the sample whole, with its domains", async () => {
    const told = await take(GOLDEN, join(SAMPLE, "domains.csv"));
    expect(told).toMatchObject({ rows_read: ALL, rows_kept: ALL, refused: [], newest_update: null });
    expect(told.domains).toEqual({ rows_read: 5, kept: 5, refused: [] });
    expect(await held()).toHaveLength(ALL);
    expect((await readdir(dir)).sort()).toEqual(["register.duckdb", "register.duckdb.lock"]);
  });

  test.each(["plain", "gz", "zst", "zip", "zip64", "zip under another name", "a name that is a pattern"])(
    "%s",
    async (form) => {
      const bytes = await readFile(GOLDEN);
      const made: Record<string, () => Promise<string>> = {
        plain: () => put("a.txt", bytes),
        gz: () => put("a.csv.gz", gzipSync(bytes)),
        zst: () => put("a.bin", execFileSync("zstd", ["-q", "-c"], { input: bytes })),
        zip: () => put("a.zip", zipOf({ "readme.txt": Buffer.from("x"), "lei2.csv": bytes })),
        zip64: () => put("b.zip", zipOf({ "lei2.csv": bytes }, true)),
        "zip under another name": () => put("a.csv", zipOf({ "lei2.csv": bytes })),
        "a name that is a pattern": () => put("[a]*.csv", bytes),
      };
      expect(await take(await made[form]!())).toMatchObject({ rows_read: ALL, rows_kept: ALL });
    },
  );

  test("every row that is not kept is counted with its reason, and the first few are shown", async () => {
    const row = inventedRow(1);
    const text = [
      HEADER,
      lineOf({ ...row, "Registration.LastUpdateDate": "2026-01-01T00:00:00Z", "Entity.LegalName": "Older" }),
      lineOf({ ...row, "Registration.LastUpdateDate": "2026-02-01T02:00:00+02:00", "Entity.LegalName": "Newer" }),
      lineOf({ ...inventedRow(2), LEI: "HWUPKR0MPOU8FGXBT395" }),
      ...Array.from({ length: 7 }, (_, i) => lineOf({ ...inventedRow(3 + i), LEI: `short${i}` })),
      lineOf({ ...inventedRow(20), "Entity.LegalName": " " }),
      '"only","three","values"\n',
      lineOf({ ...inventedRow(21), "Entity.LegalName": 'Quoted "and", with\nan end of line' }),
    ].join("");
    const told = await take(await put("rows.csv", text));
    const by = Object.fromEntries(told.refused.map((one) => [one.reason, one]));
    expect(Object.fromEntries(told.refused.map(({ reason, rows }) => [reason, rows]))).toEqual({
      ...{ again: 1, check_digits: 1, no_lei: 7, no_name: 1, no_row: 1 },
    });
    expect(told).toMatchObject({ rows_read: 13, rows_kept: 2, newest_update: "2026-02-01T00:00:00Z" });
    expect(by.no_lei!.examples).toHaveLength(5);
    expect(by.again!.examples[0]).toContain("Older");
    expect(by.no_row!.examples[0]).toMatch(/^line \d+: missing columns/);
    expect(await held()).toEqual([row.LEI, inventedRow(21).LEI].sort());
  });

  test("domains without a company, or that are none, are counted", async () => {
    const pairs =
      "lei,domain\nHWUPKR0MPOU8FGXBT394,apple.com\nHWUPKR0MPOU8FGXBT394,www.apple.com\nX,foo.com\n529900D6BF99LW9R2E68,no host\n";
    const told = await take(GOLDEN, await put("d.csv", pairs));
    expect(told.domains).toMatchObject({ rows_read: 4, kept: 1 });
    expect(told.domains!.refused.map(({ reason, rows }) => [reason, rows])).toEqual([
      ["again", 1],
      ["no_company", 1],
      ["no_domain", 1],
    ]);
  });
});

const PARENT = "8I5DZWZKVSZI1NUHU748";
const CHILD = "7H6GLXDRUGQFU57RNE97";
/** A file of level 2 as GLEIF publishes it: every value quoted, columns that a row does not name empty. */
const table = (columns: readonly string[], rows: readonly Readonly<Record<string, string>>[]): string =>
  [columns, ...rows.map((row) => columns.map((column) => row[column] ?? ""))]
    .map((values) => `${values.map((value) => `"${value}"`).join(",")}\n`)
    .join("");
const columnsOf = async (name: string): Promise<string[]> =>
  (await readFile(join(SAMPLE, name), "utf8")).split("\n")[0]!.slice(1, -1).split('","');
const relation = (child: string, parent: string, more: Readonly<Record<string, string>> = {}) => ({
  ...{ "Relationship.StartNode.NodeID": child, "Relationship.StartNode.NodeIDType": "LEI" },
  ...{ "Relationship.EndNode.NodeID": parent, "Relationship.EndNode.NodeIDType": "LEI" },
  ...{ "Relationship.RelationshipType": "IS_DIRECTLY_CONSOLIDATED_BY", "Relationship.RelationshipStatus": "ACTIVE" },
  ...{ "Registration.RegistrationStatus": "PUBLISHED", ...more },
});

async function companyOf(lei: string) {
  const register = new Register({ path: registerPath(dir), clock: systemClock });
  try {
    return await register.use(async (open) => (await search(open, { lei }, 1)).matches[0]!.company);
  } finally {
    register.close();
  }
}

describe("parents, of GLEIF's two files of level 2", () => {
  test("the sample's: names of parents that are in the register, and reasons of those that are not reported", async () => {
    const level2 = { relationships: join(SAMPLE, "relationships.csv"), exceptions: join(SAMPLE, "exceptions.csv") };
    const told = await take(GOLDEN, undefined, level2);
    expect(told).toMatchObject({
      relationships: { rows_read: 10, kept: 10, refused: [] },
      exceptions: { rows_read: 12, kept: 12, refused: [] },
    });
    expect(await companyOf(CHILD)).toMatchObject({
      ...{ direct_lei: PARENT, direct_name: "JPMORGAN CHASE & CO.", direct_since: null, direct_reasons: null },
      ...{ ultimate_lei: PARENT, ultimate_name: "JPMORGAN CHASE & CO.", ultimate_reasons: null },
    });
    expect(await companyOf("HWUPKR0MPOU8FGXBT394")).toMatchObject({
      ...{ direct_lei: null, direct_reasons: ["NATURAL_PERSONS"], ultimate_reasons: ["NATURAL_PERSONS"] },
    });
    expect(await companyOf("ANGGYXNX0JLX3X63JN86")).toMatchObject({
      ...{ status: "INACTIVE", expired_why: "CORPORATE_ACTION", successors: ["BFM8T61CT2L1QCEMIK50"] },
      ...{ direct_lei: null, direct_reasons: null },
    });
    expect((await companyOf("MP6I5ZYZBEU3UXPYFY54")).legal_lines).toEqual(["8 Canada Square"]);
  });

  test("every relationship that is not kept is counted with its reason; of several the newest is kept", async () => {
    const columns = await columnsOf("relationships.csv");
    const dated = (day: string) => ({ "Registration.LastUpdateDate": `2026-${day}T00:00:00Z` });
    const rows = [
      relation(CHILD, "529900D6BF99LW9R2E68", dated("02-01")),
      relation(CHILD, PARENT, {
        ...dated("03-01"),
        ...{ "Relationship.Period.1.periodType": "ACCOUNTING_PERIOD", "Relationship.Period.1.startDate": "2025-01-01" },
        ...{
          "Relationship.Period.2.periodType": "RELATIONSHIP_PERIOD",
          "Relationship.Period.2.startDate": "1990-07-05",
        },
      }),
      relation(CHILD, PARENT, { "Relationship.RelationshipType": "IS_FUND-MANAGED_BY" }),
      relation(PARENT, CHILD, { "Relationship.RelationshipStatus": "INACTIVE" }),
      relation(PARENT, CHILD, { "Registration.RegistrationStatus": "ANNULLED" }),
      relation(PARENT, "Jane Doe", { "Relationship.EndNode.NodeIDType": "NATURAL_PERSON" }),
      relation(PARENT, "HWUPKR0MPOU8FGXBT395"),
      relation(PARENT, PARENT),
      relation(inventedRow(7).LEI!, PARENT),
      // Two that name each other: each is what it reported.
      relation("MP6I5ZYZBEU3UXPYFY54", "G5GSEF7VJP5I7OUK5573"),
      relation("G5GSEF7VJP5I7OUK5573", "MP6I5ZYZBEU3UXPYFY54"),
      // A parent that has a LEI and is not in the golden copy.
      relation("BFM8T61CT2L1QCEMIK50", inventedRow(8).LEI!),
    ];
    const text = `${table(columns, rows)}"only","two"\n`;
    const told = (await take(GOLDEN, undefined, { relationships: await put("rr.csv", text) })).relationships!;
    expect(Object.fromEntries(told.refused.map(({ reason, rows: count }) => [reason, count]))).toEqual({
      ...{ again: 1, check_digits: 1, ended: 2, itself: 1, no_company: 1, no_lei: 1, no_row: 1, other_kind: 1 },
    });
    expect([told.rows_read, told.kept]).toEqual([13, 4]);
    const examples = Object.fromEntries(told.refused.map((one) => [one.reason, one.examples[0]]));
    expect(examples.no_lei).toBe(`${PARENT} IS_DIRECTLY_CONSOLIDATED_BY Jane Doe`);
    expect(examples.no_row).toMatch(/^line 14: missing columns/);
    expect(await companyOf(CHILD)).toMatchObject({
      direct_lei: PARENT,
      direct_since: "1990-07-05",
      ultimate_lei: null,
    });
    expect((await companyOf("MP6I5ZYZBEU3UXPYFY54")).direct_name).toBe("BARCLAYS BANK PLC");
    expect((await companyOf("G5GSEF7VJP5I7OUK5573")).direct_name).toBe("HSBC BANK PLC");
    expect(await companyOf("BFM8T61CT2L1QCEMIK50")).toMatchObject({
      direct_lei: inventedRow(8).LEI,
      direct_name: null,
    });
  });

  test("and every exception", async () => {
    const columns = await columnsOf("exceptions.csv");
    const [direct, ultimate] = ["DIRECT", "ULTIMATE"].map((kind) => `${kind}_ACCOUNTING_CONSOLIDATION_PARENT`);
    const rows: Record<string, string>[] = [
      { LEI: CHILD, "Exception.Category": direct!, "Exception.Reason.1": "NO_LEI" },
      { LEI: CHILD, "Exception.Category": direct!, "Exception.Reason.1": "NON_PUBLIC", "Exception.Reason.2": "NO_LEI" },
      { LEI: PARENT, "Exception.Category": ultimate! },
      { LEI: PARENT, "Exception.Category": "SOMETHING", "Exception.Reason.1": "NO_LEI" },
      { LEI: "short", "Exception.Category": ultimate!, "Exception.Reason.1": "NO_LEI" },
    ];
    const exceptions = await put("repex.csv.gz", gzipSync(table(columns, rows)));
    const told = (await take(GOLDEN, undefined, { exceptions })).exceptions!;
    expect(Object.fromEntries(told.refused.map(({ reason, rows: count }) => [reason, count]))).toEqual({
      ...{ again: 1, no_company: 1, no_reason: 1, other_kind: 1 },
    });
    expect((await companyOf(CHILD)).direct_reasons).toEqual(["NON_PUBLIC", "NO_LEI"]);
  });

  test.each<[Partial<Record<"relationships" | "exceptions", string>>, RegExp]>([
    [
      { relationships: "exceptions.csv" },
      /is not GLEIF's file of relationship records .* but its file of reporting exceptions/,
    ],
    [
      { exceptions: "relationships.csv" },
      /is not GLEIF's file of reporting exceptions .* but its file of relationship/,
    ],
    [{ exceptions: "golden-copy.csv" }, /but its golden copy of level 1/],
    [{ relationships: "domains.csv" }, /but something else: it has no column Relationship.StartNode.NodeID/],
    [{ relationships: "none.csv" }, /there is no such file/],
  ])("%j leaves the old register as it was", async (files, says) => {
    await take(GOLDEN);
    const level2 = Object.fromEntries(Object.entries(files).map(([what, name]) => [what, join(SAMPLE, name)]));
    const failed = await take(GOLDEN, undefined, level2).catch((error: Error) => error);
    expect(failed).toMatchObject({ code: "unreadable", message: expect.stringMatching(says) });
    expect(await held()).toHaveLength(ALL);
  });
});

describe("what leaves the old register as it was", () => {
  const others: Record<string, () => Promise<string>> = {
    "is XML": () => put("a.xml", '<?xml version="1.0"?><lei:LEIData/>'),
    "is JSON": () => put("a.json", '{"records": []}'),
    "level 2": () => put("rr.csv", '"Relationship.StartNode.NodeID","Relationship.EndNode.NodeID"\n"a","b"\n'),
    "something else": () => put("t.csv", "a,b\n1,2\n"),
    "has no column Entity.LegalName": () => put("c.csv", HEADER.replace('"Entity.LegalName",', '"Entity.Name",')),
    ...Object.fromEntries(
      [
        ...["LegalAddress", "HeadquartersAddress"].map((one) => `Entity.${one}.AdditionalAddressLine.1`),
        ...["SuccessorLEI", "SuccessorEntityName"].map((one) => `Entity.SuccessorEntity.1.${one}`),
        ...["Entity.EntityExpirationDate", "Entity.EntityExpirationReason"],
      ].map((column) => [`has no column ${column}`, () => put("o.csv", HEADER.replace(`"${column}",`, '"Other",'))]),
    ),
    "there is no such file": async () => join(dir, "none.csv"),
    "no row of": () => put("e.csv", HEADER + lineOf({ LEI: "x" })),
    "holds 0 CSV files": () => put("z.zip", zipOf({ "a.txt": Buffer.from("x") })),
    "is damaged": async () => {
      const bytes = zipOf({ "a.csv": await readFile(GOLDEN) });
      bytes[200]! ^= 0xff;
      return put("d.zip", bytes);
    },
    checksum: async () => {
      const bytes = zipOf({ "a.csv": await readFile(GOLDEN) });
      bytes[bytes.indexOf("PK\x01\x02") + 16]! ^= 0xff;
      return put("k.zip", bytes);
    },
    "cut off": async () => put("c.zip", zipOf({ "a.csv": await readFile(GOLDEN) }).subarray(0, 3_000)),
  };

  test.each(Object.keys(others))("a file that %s", async (says) => {
    await take(GOLDEN);
    const failed = await take(await others[says]!()).catch((error: Error) => error);
    expect(failed).toMatchObject({ code: "unreadable" });
    expect((failed as Error).message).toContain(says);
    expect((failed as Error).message).not.toContain("\n");
    expect(await held()).toHaveLength(ALL);
    expect((await readdir(dir)).filter((name) => /\.next/.test(name))).toEqual([]);
  });

  test("a file of domains that is none", async () => {
    await take(GOLDEN);
    const bad = await put("d.csv", "company,host\na,b\n");
    await expect(take(GOLDEN, bad)).rejects.toThrow("must name the columns lei and domain");
    expect(await held()).toHaveLength(ALL);
  });

  test("another import that goes on", async () => {
    await take(GOLDEN);
    const keeper = openProcessLock(`${registerPath(dir)}.lock`);
    expect(keeper.tryAcquire()).toBe(true);
    await expect(take(GOLDEN)).rejects.toMatchObject({ code: "busy" });
    keeper.close();
    await expect(take(GOLDEN)).resolves.toMatchObject({ rows_kept: ALL });
  });

  test("what an import that was killed has left is removed by the next", async () => {
    await put("register.duckdb.next", Buffer.alloc(50_000, 7));
    await put("register.duckdb.next.wal", Buffer.alloc(500, 7));
    expect(await take(GOLDEN)).toMatchObject({ rows_kept: ALL });
    expect((await readdir(dir)).sort()).toEqual(["register.duckdb", "register.duckdb.lock"]);
  });
});

test("a question that runs while a new register takes the place of the old one is answered by the old one", async () => {
  await take(GOLDEN);
  const register = new Register({ path: registerPath(dir), clock: systemClock, lookEvery_ms: 0 });
  const sap = { lei: "529900D6BF99LW9R2E68" };
  try {
    await register.use(async (old) => {
      expect((await search(old, sap, 5)).matches).toHaveLength(1);
      await take(await put("one.csv", HEADER + lineOf(inventedRow(1))));
      await register.use(async (next) => {
        expect(next.made.companies).toBe(1);
        expect((await search(next, sap, 5)).matches).toHaveLength(0);
      });
      expect((await search(old, sap, 5)).matches).toHaveLength(1);
    });
    await writeFile(registerPath(dir), "no database");
    expect(await register.use(async ({ made }) => made.companies)).toBe(1);
  } finally {
    register.close();
  }
});

test("the invented file has the columns that are read, each once", () => {
  expect(new Set(COLUMNS).size).toBe(COLUMNS.length);
});
