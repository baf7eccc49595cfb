import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { MarketLetters } from "../../commands/letters.ts";
import { type LedgerLine, readLedger } from "../../fixtures/market/ledger.ts";
import { matchBulkRecord } from "../../pipelines/2-ingest/validate.ts";
import { recomputeDemo } from "../helpers/demo-evidence.ts";
import { type DemoRecord, type Fact, readDemo } from "../helpers/demo-record.ts";
import { runStart, type StartRun } from "../helpers/run-start.ts";
import { unhurried } from "../helpers/unhurried.ts";
import { DESERVED } from "./deserved.ts";

/** The demo as it was lived through for some days, and what is asked of it. */
export interface Lived {
  readonly baseUrl: string;
  dir: string;
  began: number;
  result: MarketLetters;
  record: DemoRecord;
  capOf(seller: string): string;
  ledgerOf(seller: string): LedgerLine[];
}

/**
 * `touchstone start --market --once` before the tests of a file, for `days` simulated days.
 * @returns filled once the tests begin
 */
export function liveThrough(days: number, baseUrl = "http://touchstone.test"): Lived {
  const lived = {
    baseUrl,
    capOf: (seller) => lived.result.market.find((one) => one.seller === seller)!.capability_id!,
    ledgerOf: (seller) => readLedger(lived.record.world.sellers.find((one) => one.name === seller)!.ledger),
  } as Lived;
  beforeAll(async () => {
    lived.dir = await mkdtemp(join(tmpdir(), "market-"));
    lived.began = Date.now();
    const run = runStart(["--market", "--once", "--json", "--days", String(days)], {
      TOUCHSTONE_DATA_DIR: lived.dir,
      TOUCHSTONE_PORT: "0",
      TOUCHSTONE_BASE_URL: baseUrl,
    });
    const ended = await run.ended;
    expect(ended, ended.stderr).toMatchObject({ code: 0 });
    lived.result = JSON.parse(ended.stdout) as MarketLetters;
    lived.record = await readDemo(lived.dir, baseUrl);
  });
  afterAll(() => rm(lived.dir, { recursive: true, force: true }));
  return lived;
}

/**
 * What holds of the record of any market, however many days of it there are: nobody was paid twice, nothing is missing,
 * and every card follows from public files. @param least closed days in it
 */
export function holdRecord(lived: Lived, least: number): void {
  test("real probes are matched by their text, so that few of them are parsed", () => {
    const probes = lived.record.log
      .map(({ value }) => Buffer.from(value).toString())
      .filter((text) => /"type":"(?:handshake|mcp\.probe)","v":1\}$/.test(text));
    const found = probes.filter((text) => matchBulkRecord(text) !== null);
    expect(found.length).toBeGreaterThan(100);
    expect(found.length / probes.length).toBeGreaterThan(0.9);
  });

  test("nothing lies in the future, and the simulated past ends now", () => {
    const until = new Date(lived.result.simulated.until).getTime();
    expect(until).toBeGreaterThanOrEqual(lived.began);
    expect(until).toBeLessThanOrEqual(Date.now());
    const types = [
      "listing",
      "handshake",
      "mcp.probe",
      "paid.intent",
      "paid.result",
      "settlement",
      "paid.followup",
    ] as const;
    for (const { observedAt, eventId } of types.flatMap((type) => lived.record.facts(type) as Fact[])) {
      expect(new Date(observedAt).getTime(), eventId).toBeLessThanOrEqual(until);
    }
  });

  describe("the record against each seller's own ledger", () => {
    test.each(Object.keys(DESERVED).filter((seller) => seller !== "dead"))("%s", (seller) => {
      const { origin } = lived.record.world.sellers.find((one) => one.name === seller)!;
      const ledger = lived.ledgerOf(seller).filter((line) => line.kind === "paid" && line.nonce);
      const intents = lived.record.facts("paid.intent").filter((fact) => new URL(fact.body.url).origin === origin);
      const mine = new Set(intents.map((fact) => fact.eventId));
      const settled = lived.record.facts("settlement").filter((fact) => mine.has(fact.body.intent));
      const results = new Map(lived.record.facts("paid.result").map((fact) => [fact.body.intent, fact.body]));
      // Every payment that reached the seller has its intent, and every intent's payment reached it.
      expect(new Set(ledger.map((line) => line.nonce!.toLowerCase()))).toEqual(
        new Set(intents.map((fact) => fact.body.nonce.toLowerCase())),
      );
      // What the chain says was paid is what the seller says it was paid, each once.
      const txs = ledger.flatMap((line) => (line.tx ? [line.tx] : []));
      expect(settled.map((fact) => fact.body.tx).sort()).toEqual([...new Set(txs)].sort());
      expect(new Set(settled.map((fact) => fact.body.intent)).size).toBe(settled.length);
      // What the record says came back is what the seller sent.
      for (const intent of intents) {
        const got = results.get(intent.eventId)!;
        expect(got.watched).toBe(true);
        if (got.response_sha256 === null) continue;
        const sent = ledger.filter((line) => line.nonce!.toLowerCase() === intent.body.nonce.toLowerCase());
        expect(sent.map((line) => line.sha256)).toContain(got.response_sha256);
      }
    });

    test("no wallet paid twice for one intent, and a blind wallet paid on one day only", () => {
      const nonces = lived.record.facts("settlement").map((fact) => fact.body.nonce);
      expect(new Set(nonces).size).toBe(nonces.length);
      const days = new Map<string, Set<string>>();
      for (const { body, observedAt, cap } of lived.record.facts("paid.intent").filter((fact) => fact.body.blind)) {
        days.set(body.wallet, (days.get(body.wallet) ?? new Set()).add(`${observedAt.slice(0, 10)} ${cap}`));
      }
      expect([...days.values()].every((set) => set.size === 1)).toBe(true);
      expect(days.size).toBeGreaterThan(least / 2);
    });

    test("every record of the log is in the lake or in the archive, exactly once", async () => {
      const ids = new Set(
        lived.record.log.filter((one) => one.topic !== "watchers" && one.topic !== "orders").map((one) => one.eventId),
      );
      // What the service was asked last is written when it closes; the next start takes it in.
      const lastWords = new Set(lived.record.facts("demand").map((fact) => fact.eventId));
      const filed = lived.record.archived;
      expect(new Set(filed).size).toBe(filed.length);
      const left = [...ids].filter((id) => !lived.record.lakeEvents.has(id) && !lastWords.has(id));
      expect(left.sort()).toEqual(filed.sort());
      expect([...lived.record.lakeEvents].filter(([id, n]) => n !== 1 || !ids.has(id))).toEqual([]);
    });
  });

  test("a schedule was committed before every day, and opened after it", () => {
    const schedules = lived.record.leaves.flatMap((leaf) => (leaf.kind === "schedule" ? [leaf] : []));
    expect(schedules.length).toBeGreaterThanOrEqual(least);
    for (const [i, leaf] of schedules.entries()) {
      if (i === 0) continue;
      expect(leaf.opens?.day).toBe(schedules[i - 1]!.day);
    }
  });

  test("every card of every endpoint is made again from public files alone, once its last days are closed", async () => {
    const grades = lived.record.leaves.filter((leaf) => leaf.kind === "grade").length;
    // How many belong to the last days, whose evidence is not public yet, depends on the hour.
    expect(lived.record.cards.filter(({ verdict }) => verdict === "ok").length).toBeGreaterThan(2 * least);
    const cards = await recomputeDemo(lived.dir, lived.baseUrl);
    expect(cards.filter(({ verdict }) => verdict !== "ok")).toEqual([]);
    expect(cards).toHaveLength(grades);
  });
}

/** The lived demo, started again: it runs in real time from now on. */
export interface Served {
  url: string;
}

/**
 * `touchstone start --market` on the folder of the lived demo, before the tests of a `describe`, until they have ended.
 * @returns filled once these tests begin
 */
export function serveLived(lived: Lived, env: Record<string, string> = {}): Served {
  const served = {} as Served;
  let run: StartRun | undefined;
  beforeAll(async () => {
    run = runStart(["--market"], {
      TOUCHSTONE_DATA_DIR: lived.dir,
      TOUCHSTONE_PORT: "0",
      TOUCHSTONE_BASE_URL: lived.baseUrl,
      ...env,
    });
    served.url = await run.serving();
    const isReady = () => fetch(`${served.url}/readyz`).then(({ ok }) => ok);
    while (!(await isReady().catch(() => false))) await sleep(100);
  });
  afterAll(async () => {
    run?.child.kill("SIGTERM");
    await run?.ended;
  });
  return served;
}

/** What holds of an answer of any market: it verifies offline with a script that uses none of our code. */
export function holdAnswer(lived: Lived, served: Served): void {
  test("an answer of the running service verifies offline with a script that uses none of our code", async () => {
    const { url, band } = lived.result.market[0]!;
    const [answer, keys] = [join(lived.dir, "check.json"), join(lived.dir, "keys.json")];
    const check = await (await unhurried(`${served.url}/v1/check?url=${encodeURIComponent(url)}`)).text();
    expect(JSON.parse(check)).toMatchObject({ band, matched: "exact" });
    await writeFile(answer, check);
    await writeFile(keys, await (await unhurried(`${served.url}/.well-known/svc-keys.json`)).text());
    const verify = () => promisify(execFile)(process.execPath, [resolve("docs/verify-a-check.mjs"), answer, keys]);
    expect((await verify()).stdout).toMatch(/^good/);
    await writeFile(answer, check.replace(/"band":"[A-Z]+"/, '"band":"C"'));
    await expect(verify()).rejects.toThrow();
  });
}
