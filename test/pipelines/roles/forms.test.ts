import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import Database from "better-sqlite3";
import { afterEach, beforeEach, expect, test } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import { LOG_FORMAT, logFileIn, migrateLogFile } from "../../../infra/log/log-file.ts";
import { LAKE_FORM } from "../../../pipelines/2-ingest/load.ts";
import { PRIVATE_FORMATS } from "../../../pipelines/roles/forms.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "forms-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** SQL that makes and fills the lake, without comments and blanks. */
function lakeSql(): string {
  const sql = resolve(import.meta.dirname, "../../../sql");
  const files = ["tables", "staging", "samples"].flatMap((folder) =>
    readdirSync(join(sql, folder)).map((name) => join(sql, folder, name)),
  );
  const texts = files.sort().map((file) => readFileSync(file, "utf8").replace(/--.*$/gm, "").replace(/\s+/g, " "));
  return sha256hex(texts.join("\n")).slice(0, 16);
}

test("what makes or fills the lake does not change without its number: raise LAKE_FORM, then write both here", () => {
  expect([LAKE_FORM, lakeSql()]).toEqual([7, "1e02d47719bd880a"]);
});

test("every private form has a number and a way forward", () => {
  for (const { what, number, older, newer } of PRIVATE_FORMATS)
    expect([what, Boolean(number.now), older.length > 5, newer.length > 5]).toEqual([what, true, true, true]);
});

/** A log as format 1 had it. */
function oldLog(whole = true): void {
  const db = new Database(logFileIn(dir));
  db.exec(`CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE lane (lane INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL, first INTEGER NOT NULL,
      next INTEGER NOT NULL, UNIQUE (topic, partition)) STRICT;
    INSERT INTO meta VALUES ('id', 'aa'), ('partitions', '1'); INSERT INTO lane VALUES (0, 'orders', 0, 0, 1);
    PRAGMA user_version = 1;`);
  if (whole)
    db.exec(`CREATE TABLE record (place INTEGER PRIMARY KEY, event_id TEXT NOT NULL, key TEXT NOT NULL,
      value BLOB NOT NULL, appended_ms INTEGER NOT NULL) STRICT; INSERT INTO record VALUES (0, 'rec_1', 'k', x'7b7d', 5);`);
  db.close();
}
const options = { topics: ["orders"], partitions: 1 };

test("a log of format 1 is refused with the command, and whole once that has run", async () => {
  oldLog();
  await expect(openEmbeddedLog(dir, options)).rejects.toThrow(/older version.*touchstone migrate/);
  expect([migrateLogFile(logFileIn(dir)), migrateLogFile(logFileIn(dir))]).toEqual([1, LOG_FORMAT]);
  const log = await openEmbeddedLog(dir, options);
  const [record] = await log.read("orders", 0, 0);
  expect([log.id, record!.eventId, Buffer.from(record!.value).toString()]).toEqual(["aa", "rec_1", "{}"]);
  await log.close();
});

test("a migration that fails half-way leaves the old log, and one of a newer version is not touched", () => {
  oldLog(false);
  expect(() => migrateLogFile(logFileIn(dir))).toThrow(/record/);
  const db = new Database(logFileIn(dir));
  expect([db.pragma("user_version", { simple: true }), db.prepare("SELECT count(*) FROM lane").pluck().get()]).toEqual([
    1, 1,
  ]);
  db.pragma(`user_version = ${LOG_FORMAT + 1}`);
  db.close();
  const before = readFileSync(logFileIn(dir));
  expect(() => migrateLogFile(logFileIn(dir))).toThrow(/newer version/);
  expect(readFileSync(logFileIn(dir))).toEqual(before);
});
