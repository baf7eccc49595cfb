import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { openKeeper } from "../../../infra/store/lock.ts";
import { type Imported, importRegister, registerPath } from "../../../pipelines/register/import.ts";
import { Register } from "../../../pipelines/register/register.ts";
import { search } from "../../../pipelines/register/search.ts";
import { COLUMNS, HEADER, inventedRow, lineOf } from "../../helpers/golden-copy.ts";
import { zipOf } from "../../helpers/zip.ts";

const SAMPLE = resolve(import.meta.dirname, "../../../fixtures/register");
const GOLDEN = join(SAMPLE, "golden-copy.csv");

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "register-import-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const take = (source: string, domains?: string): Promise<Imported> =>
  importRegister({ source, domains, to: registerPath(dir), clock: systemClock });

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
    expect(told).toMatchObject({ rows_read: 48, rows_kept: 48, refused: [], newest_update: null });
    expect(told.domains).toEqual({ rows_read: 5, kept: 5, refused: [] });
    expect(await held()).toHaveLength(48);
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
      expect(await take(await made[form]!())).toMatchObject({ rows_read: 48, rows_kept: 48 });
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

describe("what leaves the old register as it was", () => {
  const others: Record<string, () => Promise<string>> = {
    "is XML": () => put("a.xml", '<?xml version="1.0"?><lei:LEIData/>'),
    "is JSON": () => put("a.json", '{"records": []}'),
    "level 2": () => put("rr.csv", '"Relationship.StartNode.NodeID","Relationship.EndNode.NodeID"\n"a","b"\n'),
    "something else": () => put("t.csv", "a,b\n1,2\n"),
    "has no column Entity.LegalName": () => put("c.csv", HEADER.replace('"Entity.LegalName",', '"Entity.Name",')),
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
    expect(await held()).toHaveLength(48);
    expect((await readdir(dir)).filter((name) => /\.next/.test(name))).toEqual([]);
  });

  test("a file of domains that is none", async () => {
    await take(GOLDEN);
    const bad = await put("d.csv", "company,host\na,b\n");
    await expect(take(GOLDEN, bad)).rejects.toThrow("must name the columns lei and domain");
    expect(await held()).toHaveLength(48);
  });

  test("another import that goes on", async () => {
    await take(GOLDEN);
    const keeper = openKeeper(`${registerPath(dir)}.lock`);
    expect(keeper.tryToKeep()).toBe(true);
    await expect(take(GOLDEN)).rejects.toMatchObject({ code: "busy" });
    keeper.close();
    await expect(take(GOLDEN)).resolves.toMatchObject({ rows_kept: 48 });
  });

  test("what an import that was killed has left is removed by the next", async () => {
    await put("register.duckdb.next", Buffer.alloc(50_000, 7));
    await put("register.duckdb.next.wal", Buffer.alloc(500, 7));
    expect(await take(GOLDEN)).toMatchObject({ rows_kept: 48 });
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
