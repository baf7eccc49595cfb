import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { EXIT, type ExitName } from "../../commands/exit.ts";
import { ROWS } from "../../commands/program.ts";
import type { WorldInfo } from "../../commands/world.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { addDays, dayOf } from "../../pipelines/record/time.ts";
import { foldersOf } from "../../pipelines/roles/data-folder.ts";
import { refuseUnnamedExit } from "../helpers/exit-codes.ts";
import { runs } from "../helpers/programs.ts";
import { runStart } from "../helpers/run-start.ts";

/**
 * A day of the market as its log tells it at `info`: each line JSON, each event once, sums as the record has them. Then
 * what its operator types: each command in a process of its own, in one order, on the folder of that day.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const dir = mkdtempSync(join(tmpdir(), "day-story-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
/** The market's folder of data; `dir` has what the operator's commands read and write beside it. */
const data = join(dir, "data");

interface Line {
  msg: string;
  intent?: string;
  paid_atomic?: string;
  promised_atomic?: string;
  calls?: Record<string, number>;
  leaves?: Record<string, number>;
  endpoints?: number;
  lines?: number;
}

/** Calls of the record by their intent, and what was signed away in each. */
async function signedIn(dataDir: string): Promise<Map<string, bigint>> {
  const lake = await openLake(foldersOf(dataDir).lake, { memoryLimit: "1GB", threads: 1, init: [], readers: 1 });
  try {
    const rows = await lake.all<{ id: string; micro: bigint }>(
      "SELECT event_id AS id, price_micro::BIGINT AS micro FROM paid_intent",
    );
    return new Map(rows.map(({ id, micro }) => [id, BigInt(micro)]));
  } finally {
    await lake.close();
  }
}

test("start tells a day in lines of JSON, with the sums that are in the record", async () => {
  const env = { TOUCHSTONE_DATA_DIR: data, TOUCHSTONE_PORT: "0", TOUCHSTONE_LOG_LEVEL: "info" };
  const { code, stdout, stderr } = await runStart(["--market", "--once", "--days", "2", "--json"], env).ended;
  expect(code, stderr).toBe(0);
  for (const line of stdout.trim().split("\n")) expect(() => JSON.parse(line), line).not.toThrow();
  const lines = stderr
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Line);
  const told = (msg: string): Line[] => lines.filter((line) => line.msg === msg);
  expect(told("the role starts")).toHaveLength(1);
  // Yesterday whole, and as much of today as is over: of a first hour alone there would be little to tell.
  expect(told("the plan of a day was drawn").length).toBeGreaterThanOrEqual(2);
  expect(lines.indexOf(told("the role starts")[0]!)).toBeLessThan(
    lines.indexOf(told("the plan of a day was drawn")[0]!),
  );
  // Hundreds of probes are a line a minute.
  const passes = told("planned calls were made");
  expect(passes.length).toBeGreaterThan(0);
  expect(passes.length).toBeLessThan(30);
  const paidCalls = passes.reduce((sum, { calls }) => sum + (calls?.paid ?? 0), 0);
  const payments = [...told("a call was paid"), ...told("a call was made; no payment was seen yet")];
  const broken = told("a paid call could not be watched to its end");
  expect(payments.length + broken.length).toBe(paidCalls);
  expect(payments.length).toBeGreaterThan(5);
  const signed = await signedIn(data);
  const sums = new Map(payments.map((one) => [one.intent!, BigInt(one.paid_atomic ?? one.promised_atomic!)]));
  expect(sums.size).toBe(payments.length);
  for (const [intent, sum] of sums) expect(sum, intent).toBe(signed.get(intent));
  expect(signed.size).toBe(paidCalls);
  expect(told("endpoints were graded").length).toBeGreaterThan(0);
  const published: Record<string, number> = {};
  for (const { leaves } of told("leaves were published"))
    for (const [kind, n] of Object.entries(leaves!)) published[kind] = (published[kind] ?? 0) + n;
  expect(published).toMatchObject({ keys: 1, schedule: told("the plan of a day was drawn").length });
  expect(published.grade).toBeGreaterThan(100);
}, 600_000);

/** A command as it is typed, words in quotes together. */
function typed(line: string) {
  const words = [...line.matchAll(/'([^']*)'|\S+/g)].map(([word, quoted]) => quoted ?? word);
  const env = { ...process.env, TOUCHSTONE_DATA_DIR: data };
  const argv = [...runs("touchstone.ts"), ...words];
  const { status, stdout, stderr } = spawnSync(process.execPath, argv, { cwd: dir, env, encoding: "utf8" });
  refuseUnnamedExit(words, status);
  return { status, stdout, stderr };
}

/** A day's evidence is closed six hours after the day, by the job that runs seven minutes past each hour. */
const isYesterdayClosed = new Date().toISOString().slice(11, 16) >= "06:07";

/**
 * What is typed: URL and HOST are those of a seller, DAY is that of the market, YESTERDAY the one before, COR the newest
 * correction.
 */
const TYPED: readonly (readonly [line: string, code: ExitName, says: RegExp])[] = [
  ["keys list", "ok", /^ {2}cards +\S+ from .*\n(?:.*\n)* +--log-key localhost:8402\+/m],
  ["keys rotate cards", "ok", /^Restart publisher and serving within a day:/m],
  ["keys rotate hats", "usage", /hats is not one of cards, answers, log, witness/],
  ["listings list", "ok", /^\d{2,} of \d{2,} endpoints$/m],
  ["listings list --host HOST", "ok", /^1 of \d+ endpoints$/m],
  ["listings list --host HOST/sum", "usage", /--host: expected a host/],
  ["listings show URL", "ok", /^ {2}listed {3}by 402 since /m],
  ["listings show http://127.0.0.1:1/", "unknown", /was never listed/],
  ["listings add listings.json", "ok", /: 2 rows, 1 new listings, 0 same as known, rejected: 1 relative$/m],
  ["listings remove https://seller.example/weather --says 'it asked for it'", "ok", /^removed cap_/m],
  ["listings show https://seller.example/weather", "ok", /^ {2}delisted by operator:listings.json since/m],
  ["budget", "ok", /^covered +\d+ of \d+ endpoints/m],
  ["ledger", "ok", /^no orders yet$/m],
  ["plan show DAY", "ok", /^The plan matches its commitment\./m],
  ["plan show 2001-01-01", "unknown", /there is no plan of 2001-01-01/],
  ["correct URL --all-before-now --fault misread_terms --says 'we read the price wrongly'", "ok", /\bcor_\w{26}\b/],
  ["reinstate COR --says 'it was right'", "ok", /\bcor_\w{26}\b/],
  ["reinstate COR --says 'it was right'", "already", /COR/],
  ["dispute listings.json", "unreadable", /listings\.json/],
  ["ingest --once", "ok", /rows/],
  ["redrive", "ok", /^nothing was due$/m],
  ["rebuild", "ok", /^rows \d{3,}$/m],
  ["archive --once", "ok", /^nothing was due$/m],
  ["archive supersede arc_00000000000000000000000000 --reason x", "unknown", /is not in the archive/],
  ["gap accept", "ok", /^nothing was due$/m],
  ["migrate", "ok", /^lake: unchanged$/m],
  ["migrate --table", "ok", /^log of one machine /m],
  ["wallets new --blind 1", "ok", /^blind +0x/m],
  ["wallets list", "usage", /chain\.rpc_url/],
  ["wallets sweep --to 0x0000000000000000000000000000000000000001 --dry-run", "usage", /chain\.rpc_url/],
  ["doctor", "unfit", /^broken +network/m],
  ["register import REGISTER/golden-copy.csv --domains REGISTER/domains.csv", "ok", /: 54 rows read, 54 companies/],
  ["mirror data/public copy --max-age 0", "ok", /^synced: localhost:8402, \d+ leaves/m],
  ["export copy table.parquet --what grades", "ok", /^wrote \d+ cards of localhost:8402/m],
  isYesterdayClosed
    ? [
        "recompute URL --from copy",
        "ok",
        /^[1-9]\d* ok, \d+ pending, 0 differ, 0 not run;.* evidence up to YESTERDAY,/m,
      ]
    : ["recompute URL --from copy", "nothing", /^0 ok, \d+ pending, 0 differ, 0 not run;/m],
  ["audit copy", "ok", /^proven: /m],
  ["resume nothing.json", "unreadable", /nothing\.json/],
];
/** The commands that are not typed here, and the file of a test that runs each in a process of its own. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  ...{ start: "commands/npm-start", init: "flow/operate-page", keygen: "flow/bad-input", listing: "deploy/action" },
  ...{ observe: "deploy/units", grade: "flow/bad-input", own: "deploy/image", publish: "deploy/image" },
  ...{
    serve: "deploy/image",
    buckets: "deploy/deploy",
    witness: "commands/witness",
    monitor: "pipelines/monitor/command",
  },
  ...{ verify: "pipelines/monitor/command", exposure: "commands/exposure", check: "flow/letters", buy: "flow/letters" },
};

describe("what the day's operator types", () => {
  let seller: string;
  let newestCorrection = "COR";
  const filled = (text: string): string =>
    text
      .replace("URL", seller)
      .replace("HOST", new URL(seller).host)
      .replace("YESTERDAY", addDays(dayOf(new Date()), -1))
      .replace("DAY", dayOf(new Date()))
      .replaceAll("REGISTER", join(ROOT, "fixtures/register"))
      .replace("COR", newestCorrection);

  test.each(TYPED)("%s", (line, code, says) => {
    const world = JSON.parse(readFileSync(join(data, "market/world.json"), "utf8")) as WorldInfo;
    seller = world.sellers.find(({ name }) => name === "honest-v2")!.urls[0]!;
    writeFileSync(join(dir, "listings.json"), JSON.stringify([LISTING, { resource: "nonsense" }]));
    const { status, stdout, stderr } = typed(filled(line));
    expect([status, stdout + stderr]).toEqual([
      EXIT[code],
      expect.stringMatching(new RegExp(filled(says.source), "m")),
    ]);
    newestCorrection = /\bcor_\w{26}\b/.exec(stdout)?.[0] ?? newestCorrection;
  });

  test("and every command is typed here or in the test that is named", () => {
    const here = new Set(["mirror serve", ...TYPED.map(([line]) => line)]);
    const isTyped = (words: string) => [...here].some((line) => line === words || line.startsWith(`${words} `));
    const names: string[] = ROWS.map(([words]) => words);
    expect(names.filter((words) => !isTyped(words) && !(words in ELSEWHERE))).toEqual([]);
    for (const [words, file] of Object.entries(ELSEWHERE))
      expect([words, names.includes(words), existsSync(join(ROOT, "test", `${file}.test.ts`))]).toEqual([
        words,
        true,
        true,
      ]);
  });

  test("mirror serve copy", async () => {
    const child = spawn(process.execPath, [...runs("touchstone.ts"), "mirror", "serve", "copy", "--port", "0"], {
      ...{ cwd: dir, env: process.env },
    });
    let said = "";
    child.stdout.on("data", (text) => (said += text));
    const at = () => /^Serving the mirror in copy\/public at (\S+)$/m.exec(said)?.[1];
    await expect.poll(at, { timeout: 60_000 }).toBeDefined();
    expect(await (await fetch(`${at()}/checkpoint`)).text()).toMatch(/^localhost:8402\n/);
    child.kill("SIGTERM");
    expect(await new Promise((done) => child.once("exit", done))).toBe(EXIT.ok);
  });
});

const LISTING = {
  ...{ resource: "https://seller.example/weather", type: "http", x402Version: 2 },
  accepts: [
    {
      ...{ scheme: "exact", network: "eip155:8453", asset: "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913" },
      ...{ amount: "10000", payTo: "0x00000000000000000000000000000000000000a1", maxTimeoutSeconds: 60 },
    },
  ],
};
