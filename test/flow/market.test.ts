import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { MarketLetters } from "../../commands/letters.ts";
import { type LedgerLine, readLedger } from "../../fixtures/market/ledger.ts";
import { SELLERS } from "../../fixtures/market/sellers/index.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { volatileRows } from "../../pipelines/2-ingest/volatile.ts";
import type { GradeLeaf } from "../../pipelines/record/leaf.ts";
import { addressKey } from "../../pipelines/record/volatile.ts";
import { folders } from "../../pipelines/roles/parts.ts";
import { recomputeDemo } from "../helpers/demo-evidence.ts";
import { type DemoRecord, type Fact, readDemo } from "../helpers/demo-record.ts";
import { runStart } from "../helpers/run-start.ts";
import { BEST, DESERVED } from "./deserved.ts";

const BASE = "http://touchstone.test";
let dir: string;
let began: number;
let result: MarketLetters;
let record: DemoRecord;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "market-"));
  began = Date.now();
  const run = runStart(["--market", "--once", "--json"], {
    TOUCHSTONE_DATA_DIR: dir,
    TOUCHSTONE_PORT: "0",
    TOUCHSTONE_BASE_URL: BASE,
  });
  const ended = await run.ended;
  expect(ended, ended.stderr).toMatchObject({ code: 0 });
  result = JSON.parse(ended.stdout) as MarketLetters;
  record = await readDemo(dir, BASE);
});

afterAll(() => rm(dir, { recursive: true, force: true }));

const capOf = (seller: string): string => result.market.find((one) => one.seller === seller)!.capability_id!;
const ledgerOf = (seller: string): LedgerLine[] =>
  readLedger(record.world.sellers.find((one) => one.name === seller)!.ledger);
const headlines = (seller: string): GradeLeaf[] =>
  record.leaves.filter(
    (leaf): leaf is GradeLeaf => leaf.kind === "grade" && leaf.headline && leaf.card.capability_id === capOf(seller),
  );

describe("the demo market", () => {
  test("has its sellers, and every letter there is", () => {
    expect(result.market.map((one) => one.seller)).toEqual(expect.arrayContaining(Object.keys(DESERVED)));
    expect(result.market).toHaveLength(SELLERS.length);
    expect(new Set(result.market.map((one) => one.band))).toEqual(new Set(["A", "B", "C", "D", "F", "UNRATED"]));
  });

  test.each(Object.entries(DESERVED))("%s gets what it deserves", (seller, deserved) => {
    const { band, tier, why, flags = [], without = [], defects = [] } = deserved;
    const found = result.market.find((one) => one.seller === seller)!;
    expect(found, JSON.stringify(found)).toMatchObject({ tier: `${tier}_VERIFIED` });
    expect(found.band, JSON.stringify(found)).toMatch(new RegExp(`^(?:${band})$`));
    expect(found.why).toMatch(why);
    expect(found.flags).toEqual(expect.arrayContaining([...flags]));
    expect(without.filter((flag) => found.flags.includes(flag))).toEqual([]);
    expect(found.defects).toEqual(expect.arrayContaining([...defects]));
  });

  test("nobody ever had a better letter than its behaviour allows, on no day", () => {
    for (const [seller, band] of Object.entries(BEST)) {
      const better = headlines(seller).filter(({ card }) => card.band !== "UNRATED" && card.band < band);
      expect([seller, better.map(({ card }) => card.band)]).toEqual([seller, []]);
    }
  });

  test("who serves known wallets only is never shown to be correct for more than known wallets", () => {
    const lower = headlines("regulars-only").at(-1)!.card.components!.correctness.lower!;
    expect(lower).toBeLessThanOrEqual(0.75);
  });

  test("a flood of one host's addresses takes 200 places, those that answered with a 402, and no letter", () => {
    const { origin } = record.world.sellers.find((one) => one.name === "wildcard")!;
    const listed = record.leaves.flatMap((leaf) =>
      leaf.kind === "listing" && leaf.url.startsWith(origin) ? [leaf] : [],
    );
    const taken = record.facts("listing").filter((fact) => fact.body.normalised_url.startsWith(origin));
    expect(new Set(taken.map((fact) => fact.cap)).size).toBe(200);
    // It lists nothing itself, so its addresses enter the market one by one, as their first 402 is seen.
    const asked = new Set(record.facts("handshake").flatMap((fact) => (fact.body.state === "asked" ? [fact.cap] : [])));
    const inMarket = new Set(listed.map((leaf) => leaf.capability_id));
    expect(inMarket.size).toBeGreaterThan(50);
    expect([...inMarket].filter((cap) => !asked.has(cap))).toEqual([]);
  });

  test("nobody but the thief is ever said to have taken money; pending only who pays it back", () => {
    for (const seller of Object.keys(DESERVED)) {
      const said = new Set(headlines(seller).flatMap(({ card }) => card.flags));
      expect([seller, said.has("took_the_money")]).toEqual([seller, seller === "thief"]);
      if (seller !== "refunder") expect([seller, said.has("money_pending")]).toEqual([seller, seller === "thief"]);
    }
  });

  test("of the thief alone paid calls brought nothing, and each seller names its own payTo and a price", async () => {
    const lake = await openLake(folders(dir).lake, { memoryLimit: "1GB", threads: 1, init: INGEST_TABLES });
    const rows = new Map((await volatileRows(lake, new Map())).map((row) => [row.capability_id, row]));
    await lake.close();
    for (const seller of Object.keys(DESERVED)) {
      const row = rows.get(capOf(seller))!;
      expect([seller, row.unserved > 0, row.unserved_since !== null]).toEqual([
        seller,
        ...[seller === "thief", seller === "thief"],
      ]);
    }
    const { payTo } = record.world.sellers.find((one) => one.name === "thief")!;
    const { pay_tos, asked_pay_to, price, unit, networks } = rows.get(capOf("thief"))!;
    expect([pay_tos.map(addressKey), addressKey(asked_pay_to!)]).toEqual([[addressKey(payTo)], addressKey(payTo)]);
    expect([price !== null, unit, networks]).toEqual([true, "USD", [expect.stringMatching(/^eip155:\d+$/)]]);
  });

  test("every refund of the refunder's book is in the record, each once, and nobody else's", () => {
    const back = ledgerOf("refunder").filter((line) => line.kind === "refund");
    const found = record.facts("paid.followup").filter((fact) => fact.body.kind === "refund");
    expect(back.length).toBeGreaterThan(2);
    expect(found.map((fact) => fact.body.refund!.tx).sort()).toEqual(back.map((line) => line.refundTx).sort());
    expect(new Set(found.map((fact) => fact.cap))).toEqual(new Set([capOf("refunder")]));
  });

  test("the slow seller's latency shows in its card", () => {
    const { point, lower, method } = headlines("slow").at(-1)!.card.components!.latency_p95;
    // What a machine under load adds to everybody's time comes on top: nobody else's is a measure for it.
    expect(Number(/p95_ms=(\d+)/.exec(method)?.[1])).toBeGreaterThanOrEqual(450);
    expect(point!).toBeLessThan(1);
    expect(lower!).toBeLessThanOrEqual(point!);
  });

  test("nothing lies in the future, and the simulated past ends now", () => {
    const until = new Date(result.simulated.until).getTime();
    expect(until).toBeGreaterThanOrEqual(began);
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
    for (const { observedAt, eventId } of types.flatMap((type) => record.facts(type) as Fact[])) {
      expect(new Date(observedAt).getTime(), eventId).toBeLessThanOrEqual(until);
    }
  });
});

describe("the record against each seller's own ledger", () => {
  test.each(Object.keys(DESERVED).filter((seller) => seller !== "dead"))("%s", (seller) => {
    const { origin } = record.world.sellers.find((one) => one.name === seller)!;
    const ledger = ledgerOf(seller).filter((line) => line.kind === "paid" && line.nonce);
    const intents = record.facts("paid.intent").filter((fact) => new URL(fact.body.url).origin === origin);
    const mine = new Set(intents.map((fact) => fact.eventId));
    const settled = record.facts("settlement").filter((fact) => mine.has(fact.body.intent));
    const results = new Map(record.facts("paid.result").map((fact) => [fact.body.intent, fact.body]));
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
    const nonces = record.facts("settlement").map((fact) => fact.body.nonce);
    expect(new Set(nonces).size).toBe(nonces.length);
    const days = new Map<string, Set<string>>();
    for (const { body, observedAt, cap } of record.facts("paid.intent").filter((fact) => fact.body.blind)) {
      days.set(body.wallet, (days.get(body.wallet) ?? new Set()).add(`${observedAt.slice(0, 10)} ${cap}`));
    }
    expect([...days.values()].every((set) => set.size === 1)).toBe(true);
    expect(days.size).toBeGreaterThan(20);
  });

  test("every record of the log is in the lake exactly once", () => {
    const ids = new Set(
      record.log.filter((one) => one.topic !== "watchers" && one.topic !== "orders").map((one) => one.eventId),
    );
    // What the service was asked last is written when it closes; the next start takes it in.
    const lastWords = new Set(record.facts("demand").map((fact) => fact.eventId));
    expect([...ids].filter((id) => !record.lakeEvents.has(id) && !lastWords.has(id))).toEqual([]);
    expect([...record.lakeEvents].filter(([id, n]) => n !== 1 || !ids.has(id))).toEqual([]);
  });
});

test("a schedule was committed before every day, and opened after it", () => {
  const schedules = record.leaves.flatMap((leaf) => (leaf.kind === "schedule" ? [leaf] : []));
  expect(schedules.length).toBeGreaterThan(30);
  for (const [i, leaf] of schedules.entries()) {
    if (i === 0) continue;
    expect(leaf.opens?.day).toBe(schedules[i - 1]!.day);
  }
});

test("every card of every endpoint is made again from public files alone, once its last days are closed", async () => {
  const grades = record.leaves.filter((leaf) => leaf.kind === "grade").length;
  // How many belong to the last days, whose evidence is not public yet, depends on the hour.
  expect(record.cards.filter(({ verdict }) => verdict === "ok").length).toBeGreaterThan(100);
  const cards = await recomputeDemo(dir, BASE);
  expect(cards.filter(({ verdict }) => verdict !== "ok")).toEqual([]);
  expect(cards).toHaveLength(grades);
});

test("an answer of the running service verifies offline with a script that uses none of our code", async () => {
  // The same data folder again, live: the past is lived through already.
  const run = runStart(["--market"], { TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_PORT: "0", TOUCHSTONE_BASE_URL: BASE });
  try {
    const url = result.market[0]!.url;
    const at = await run.serving();
    let answer: Response | undefined;
    for (let i = 0; i < 2_000 && !answer?.ok; i++) {
      answer = await fetch(`${at}/readyz`).catch(() => undefined);
      if (!answer?.ok) await new Promise((done) => setTimeout(done, 100));
    }
    const check = await (await fetch(`${at}/v1/check?url=${encodeURIComponent(url)}`)).text();
    expect(JSON.parse(check)).toMatchObject({ band: "A", matched: "exact" });
    await writeFile(join(dir, "answer.json"), check);
    await writeFile(join(dir, "keys.json"), await (await fetch(`${at}/.well-known/svc-keys.json`)).text());
    const script = resolve("docs/verify-a-check.mjs");
    const { stdout } = await promisify(execFile)(process.execPath, [
      script,
      join(dir, "answer.json"),
      join(dir, "keys.json"),
    ]);
    expect(stdout).toMatch(/^good/);
    await writeFile(join(dir, "answer.json"), (await readFile(join(dir, "answer.json"), "utf8")).replace('"A"', '"B"'));
    await expect(
      promisify(execFile)(process.execPath, [script, join(dir, "answer.json"), join(dir, "keys.json")]),
    ).rejects.toThrow();
  } finally {
    run.child.kill("SIGTERM");
    await run.ended;
  }
});
