import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { DuckDBDataChunk } from "@duckdb/node-api";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { isDamage, isDamagedOnOpen } from "../../../infra/lake/damage.ts";
import { type Lake, openLake } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { TurnsSeen } from "../../helpers/turns.ts";

let dir: string;
const opened: Lake[] = [];
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "lake-"));
});
afterEach(async () => {
  for (const lake of opened.splice(0)) await lake.close();
  await rm(dir, { recursive: true, force: true });
});

const INIT = ["CREATE TABLE IF NOT EXISTS n (i BIGINT)"];
async function open(name = "lake.duckdb", readers = 2): Promise<Lake> {
  const lake = await openLake(join(dir, name), { memoryLimit: "256MB", threads: 2, init: INIT, readers });
  opened.push(lake);
  return lake;
}
/** A promise, and what resolves it. */
function signal(): [Promise<void>, () => void] {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return [promise, resolve];
}
const count = async (lake: Lake) => Number((await lake.all<{ n: bigint }>("SELECT count(*) AS n FROM n"))[0]!.n);

describe("statements", () => {
  test("however many rows come back, no more than a batch of the engine's become objects in one turn of the loop", async () => {
    const lake = await open();
    const turns = new TurnsSeen();
    const visit = DuckDBDataChunk.prototype.visitRowValues;
    const spy = vi.spyOn(DuckDBDataChunk.prototype, "visitRowValues").mockImplementation(function (
      this: DuckDBDataChunk,
      ...args: Parameters<DuckDBDataChunk["visitRowValues"]>
    ) {
      turns.see();
      visit.apply(this, args);
    });
    try {
      const rows = await lake.all<{ i: number }>("SELECT range::DOUBLE AS i FROM range(20000)");
      expect(rows.map(({ i }) => i)).toEqual(Array.from({ length: 20_000 }, (_, i) => i));
    } finally {
      spy.mockRestore();
    }
    const seen = turns.end();
    expect(seen.all).toBe(20_000);
    expect(seen.most).toBeLessThanOrEqual(2_048);
  });

  test("many writers at once take turns, and nothing is lost", async () => {
    const lake = await open();
    await Promise.all(
      Array.from({ length: 40 }, (_, i) =>
        i % 2
          ? lake.run("INSERT INTO n VALUES ($i)", { i })
          : lake.transaction((tx) => tx.run("INSERT INTO n VALUES ($i)", { i })),
      ),
    );
    expect(await count(lake)).toBe(40);
  });

  test("a transaction that throws leaves nothing, and the writer free", async () => {
    const lake = await open();
    const broken = lake.transaction(async (tx) => {
      await tx.run("INSERT INTO n VALUES (1)");
      expect(await tx.all("FROM n")).toEqual([{ i: 1n }]);
      expect(await count(lake)).toBe(0);
      throw new Error("no");
    });
    await expect(broken).rejects.toThrow("no");
    await expect(lake.transaction((tx) => tx.run("INSERT INTO nowhere VALUES (1)"))).rejects.toThrow(
      /nowhere.*in: INSERT/s,
    );
    await lake.run("INSERT INTO n VALUES (2)");
    expect(await lake.all("FROM n")).toEqual([{ i: 2n }]);
  });

  test("a stage runs beside an open transaction, on the connection of its own one, and no third runs meanwhile", async () => {
    const lake = await open();
    const order: string[] = [];
    const [held, release] = signal();
    const staged = (name: string, before?: Promise<void>) =>
      lake.transaction(
        async (tx) => {
          order.push(`${name} writes`);
          await before;
          await tx.run("INSERT INTO n SELECT i FROM mine");
        },
        async (connection) => {
          order.push(`${name} stages`);
          await connection.run(`CREATE OR REPLACE TEMP TABLE mine AS SELECT ${name.length} AS i`);
        },
      );
    const first = staged("a", held);
    await expect.poll(() => order).toEqual(["a stages", "a writes"]);
    const others = [staged("bb"), staged("ccc")];
    await expect.poll(() => order).toEqual(["a stages", "a writes", "bb stages"]);
    const closed = lake.replace(null).then(() => order.push("replaced"));
    expect(await count(lake)).toBe(0);
    release();
    await Promise.all([first, ...others, closed]);
    expect([order.slice(3, 5).sort(), ...order.slice(5)]).toEqual([
      ["bb writes", "ccc stages"],
      "ccc writes",
      "replaced",
    ]);
    expect(await count(lake)).toBe(0);
  });

  test("a stage that throws begins no transaction, and its place is free again", async () => {
    const lake = await open();
    for (let n = 0; n < 3; n++) {
      const broken = lake.transaction(
        (tx) => tx.run("INSERT INTO n VALUES (1)"),
        (connection) => connection.run("FROM nowhere"),
      );
      await expect(broken).rejects.toThrow(/nowhere/);
    }
    expect(await count(lake)).toBe(0);
    await lake.transaction(
      (tx) => tx.run("INSERT INTO n FROM mine"),
      (connection) => connection.run("CREATE TEMP TABLE mine AS SELECT 1 AS i"),
    );
    expect(await count(lake)).toBe(1);
  });

  test("a stream holds its reader until it ends or is left; values come as plain ones", async () => {
    const lake = await open("lake.duckdb", 1);
    let rows = 0;
    for await (const batch of lake.stream<{ i: bigint }>("SELECT i FROM range($n) r(i)", { n: 10_000 }))
      rows += batch.length;
    expect(rows).toBe(10_000);
    for await (const batch of lake.stream("FROM range(100000)")) {
      expect(batch.length).toBeLessThan(100_000);
      break;
    }
    const query =
      "SELECT TIMESTAMP '2026-11-10 01:02:03.004' AS t, $big::BIGINT AS big, $none::VARCHAR AS none, ['a'] AS list";
    expect(await lake.all(query, { big: 2 ** 53, none: null })).toEqual([
      { t: new Date("2026-11-10T01:02:03.004Z"), big: 2n ** 53n, none: null, list: ["a"] },
    ]);
  });

  test("work on one thread does not wait for a query that is read meanwhile: it has the threads that there are", async () => {
    const lake = await open();
    const threads = async () => (await lake.all<{ n: bigint }>("SELECT current_setting('threads') AS n"))[0]!.n;
    const before = await threads();
    expect(before).toBeGreaterThan(1n);
    expect(await lake.onOneThread(() => lake.onOneThread(threads))).toBe(1n);
    expect(await threads()).toBe(before);
    const query = lake.stream("FROM range(100000)");
    await query.next();
    expect(await lake.onOneThread(threads)).toBe(before);
    await query.return(undefined);
    expect(await lake.onOneThread(threads)).toBe(1n);
    await expect(lake.onOneThread(() => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect(await threads()).toBe(before);
  });

  test("after close everything says so", async () => {
    const lake = await open();
    await lake.close();
    await expect(lake.all("SELECT 1")).rejects.toThrow("closed");
    await expect(lake.run("SELECT 1")).rejects.toThrow("closed");
    await expect(lake.transaction(async () => {})).rejects.toThrow("closed");
  });

  test("SQL files by name", () => {
    expect(sql("staging/paid")).toMatch(/^-- Stores new records/);
    expect(sql("staging/loaded:has")).toMatch(/^-- The loaded files of one partition[\s\S]* ON TRUE;$/);
    expect(() => sql("staging/nothing")).toThrow(/staging\/nothing/);
    expect(() => sql("staging/loaded:nothing")).toThrow("no query staging/loaded:nothing");
    expect(() => sql("staging/loaded")).toThrow("staging/loaded.sql has known, gone, positions, has, other_days, day");
    const folder = resolve(import.meta.dirname, "../../../sql");
    const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".sql"));
    expect(files.length).toBeGreaterThan(40);
    for (const file of files) {
      const names = [...readFileSync(resolve(folder, file), "utf8").matchAll(/^-- name: (.+)$/gm)].map(
        (name) => name[1]!,
      );
      for (const name of names.length === 0 ? [""] : names.map((one) => `:${one}`)) {
        const text = sql(file.replace(/\.sql$/, name));
        const head = /^-- [A-Z].+\n(--.*\n)*-- grain: .+\n(--.*\n)*-- reads: .+\n(--.*\n)*-- writes: .+\n/;
        expect(text, `${file}${name}`).toMatch(head);
      }
    }
  });
});

describe("the file", () => {
  test("belongs to one handle and one process at a time, and is not set aside for it", async () => {
    const lake = await open();
    await lake.run("INSERT INTO n VALUES (1)");
    await expect(open()).rejects.toMatchObject({ name: "LakeBusy" });
    const script = `import { openLake } from "./infra/lake/duckdb.ts";
      await openLake(${JSON.stringify(lake.path)}, { memoryLimit: "256MB", threads: 1, init: [] }).catch((e) => console.log(e.name));`;
    const other = spawnSync(process.execPath, ["--import", "tsx", "--input-type=module", "-e", script], {
      cwd: resolve(import.meta.dirname, "../../.."),
      encoding: "utf8",
    });
    expect(other.stdout.trim()).toBe("LakeBusy");
    expect(existsSync(`${lake.path}.damaged`)).toBe(false);
    expect(await count(lake)).toBe(1);
  });

  test.each([
    ["no database at all", async (path: string) => writeFile(path, "x".repeat(9_000))],
    ["empty", async (path: string) => writeFile(path, "")],
    ["torn", async (path: string) => truncate(path, 5_000)],
    [
      "with flipped bits",
      async (path: string) => {
        const bytes = readFileSync(path);
        bytes.fill(7, 4_096, 20_480);
        await writeFile(path, bytes);
      },
    ],
  ])("%s: set aside with the reason, an empty one in its place", async (_what, damage) => {
    const lake = await open();
    await lake.run("INSERT INTO n SELECT i FROM range(1000) r(i)");
    await lake.close();
    await damage(lake.path);
    const next = await open();
    expect(next.aside?.file).toBe(`${lake.path}.damaged`);
    expect(existsSync(`${lake.path}.damaged`)).toBe(true);
    expect(readFileSync(`${lake.path}.damaged.txt`, "utf8").trim()).toBe(next.aside?.reason);
    expect(await count(next)).toBe(0);
    await next.run("INSERT INTO n VALUES (1)");
    await next.close();
    const again = await open();
    expect([again.aside, await count(again)]).toEqual([null, 1]);
  });

  test("replaced: with a reason the old one is kept, without it is gone; handles go on", async () => {
    const lake = await open();
    await lake.run("INSERT INTO n VALUES (1)");
    await writeFile(join(lake.workDir, "left-over"), "x");
    await Promise.all([lake.replace("looked wrong"), lake.all("FROM n")]);
    expect(await count(lake)).toBe(0);
    expect(lake.aside).toEqual({ file: `${lake.path}.damaged`, reason: "looked wrong" });
    expect(existsSync(join(lake.workDir, "left-over"))).toBe(false);
    await lake.run("INSERT INTO n VALUES (1)");
    await lake.replace(null);
    expect(await count(lake)).toBe(0);
  });

  test("a statement of the start that is wrong does not cost a sound file", async () => {
    const lake = await open();
    await lake.run("INSERT INTO n VALUES (1)");
    await lake.close();
    const settings = { memoryLimit: "256MB", threads: 1, init: ["CREATE TABLE broken ("] };
    await expect(openLake(lake.path, settings)).rejects.toThrow(/syntax/i);
    expect(await count(await open())).toBe(1);
  });
});

describe("whose fault it is", () => {
  test.each([
    ['IO Error: Could not set lock on file "x": Conflicting lock is held', false, false],
    ['IO Error: Cannot open file "x": Permission denied', false, false],
    ["IO Error: Could not write file: No space left on device", false, false],
    ["Out of Memory Error: failed to allocate", false, false],
    ['IO Error: The file "x" exists, but it is not a valid DuckDB database file!', true, false],
    ["IO Error: Corrupt database file: computed checksum 1 does not match", true, true],
    ["INTERNAL Error: Failure while replaying WAL file", true, true],
    ["FATAL Error: Failed: database has been invalidated because of a previous fatal error", true, true],
  ])("%s", (message, onOpen, inUse) => {
    expect(isDamagedOnOpen(new Error(message))).toBe(onOpen);
    expect(isDamage(new Error("lake", { cause: new Error(message) }))).toBe(inUse);
  });
});
