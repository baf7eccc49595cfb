import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readLedger } from "../../../fixtures/market/ledger.ts";
import { startWorld, type World } from "../../../fixtures/market/world.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log, NewRecord } from "../../../infra/log/log.ts";
import type { Observer, SpanReport } from "../../../pipelines/1-observe/observer.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import type { Envelope } from "../../../pipelines/record/envelope.ts";
import type { DayPlan } from "../../../pipelines/record/plan.ts";
import { dayOf } from "../../../pipelines/record/time.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { planDay } from "../../helpers/plan-day.ts";
import { END, START } from "./day.ts";
import { marketObserver } from "./market-observer.ts";
import { CAPS, DAY, FakeLog, LogMemory } from "./world.ts";

/** The real log, and beside it what was confirmed, so that the record can be looked at without a lake. */
class Tee extends FakeLog {
  constructor(private readonly real: Log) {
    super();
  }
  override async append(records: readonly NewRecord[]) {
    const done = await this.real.append(records);
    await super.append(records);
    return done;
  }
}

let dir: string;
let world: World;
let real: Log;
let log: Tee;
let egress: Egress;
let observer: Observer;
let plan: DayPlan;
let report: SpanReport;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "observe-"));
  world = await startWorld({ dir, leaseSeconds: 3_600 });
  const { catalogue, newcomers } = world.info;
  real = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: 1 });
  log = new Tee(real);
  egress = createEgress({ allowLoopback: true, userAgent: "touchstone-test" });
  const memory = new LogMemory(log);
  observer = marketObserver(world.info, { log, egress, clock: new FixedClock(START), memory, seed: 3 });
  await observer.recover();
  await observer.intakeCatalogue(catalogue);
  for (const { url, days } of newcomers) if (days > 1) await observer.intakeCatalogue(url);
  // Ids follow from ports, and what is drawn from ids: one of regulars-only's calls is blind, and its last two are not.
  const listed = await memory.listed();
  const { origin } = world.info.sellers.find((one) => one.name === "regulars-only")!;
  const { cap } = listed.find((one) => one.url.startsWith(`${origin}/`))!;
  const blindOf = () =>
    plan.lines.find((line) => line.cap === cap)!.calls.flatMap((one) => (one.kind === "paid" ? [one.blind] : []));
  for (let n = 0; n === 0 || !/true.*false,false$/.test(blindOf().join()); n++) {
    plan = planDay({ day: DAY, salt: Buffer.alloc(32, n), listed, caps: CAPS, now: START });
  }
  report = await observer.observeSpan(plan, START, END);
});

afterAll(async () => {
  observer?.stop();
  await egress?.close();
  await real?.close();
  await world?.stop();
  await rm(dir, { recursive: true, force: true });
});

const read: { at: number; envelopes: Envelope[] } = { at: -1, envelopes: [] };

/** Everything the record has of one seller's endpoint. */
function of(name: string) {
  const seller = world.info.sellers.find((one) => one.name === name)!;
  // The log only grows; reading it again would cost most of this test's time.
  if (read.at !== log.records.length) Object.assign(read, { at: log.records.length, envelopes: log.envelopes() });
  const mine = read.envelopes.filter((one) => one.cap !== undefined);
  const listing = mine.find(
    (one) => one.type === "listing" && (one.body as BodyOf<"listing">).normalised_url.startsWith(`${seller.origin}/`),
  )!;
  const bodies = <T extends "handshake" | "paid.intent" | "paid.result" | "settlement" | "paid.followup">(type: T) =>
    mine.flatMap((one) => (one.type === type && one.cap === listing.cap ? [one.body as BodyOf<T>] : []));
  return {
    cap: listing.cap!,
    probes: bodies("handshake").filter((one) => one.planned === "free"),
    unpaid: bodies("handshake").filter((one) => one.planned === "paid"),
    intents: bodies("paid.intent"),
    results: bodies("paid.result"),
    settlements: bodies("settlement"),
    followups: bodies("paid.followup"),
    ledger: readLedger(seller.ledger),
    payTo: seller.payTo,
  };
}
const all = (n: number, what: unknown) => Array.from({ length: n }, () => what);

describe("a day at the market: real sellers, a real chain, the real log", () => {
  test("every call of the plan was made", () => {
    expect(plan.lines).toHaveLength(world.info.sellers.length);
    expect(plan.lines.every((line) => line.covered)).toBe(true);
    expect(report).toMatchObject({ missed: 0, broken: 0, stopped: false });
    expect(report.probes).toBe(4 * plan.lines.length);
    expect(report.paid + report.unpaid).toBe(4 * plan.lines.length);
    for (const { observed_at, type } of log.envelopes()) {
      if (type === "handshake" || type === "paid.intent") expect(dayOf(new Date(observed_at))).toBe(DAY);
    }
  });

  test.each([
    ["honest-v2", "known_answer"],
    ["slow", "known_answer"],
  ])("%s: right every time, by a question nobody could know", (name, input) => {
    const { probes, intents, results, settlements, followups } = of(name);
    expect(probes).toMatchObject(all(4, { state: "asked", live: true, honest: true, differs: [] }));
    expect(intents).toMatchObject(all(4, { input, header_name: "PAYMENT-SIGNATURE" }));
    expect(results).toMatchObject(
      all(4, {
        watched: true,
        fault: null,
        live: true,
        honest: true,
        delivered: true,
        delivery: 1,
        outcome: 1,
        schema_ok: true,
      }),
    );
    expect(settlements).toMatchObject(all(4, { final: true, as_quoted: true }));
    expect(followups).toEqual([]);
  });

  test("honest-v1: version 1, delivered on the seller's own example, no truth to hold it against", () => {
    const { intents, results, settlements } = of("honest-v1");
    expect(intents).toMatchObject(all(4, { input: "example", header_name: "X-PAYMENT", quote: { price: "0.003000" } }));
    expect(results).toMatchObject(
      all(4, { honest: true, delivered: true, delivery: 1, outcome: null, schema_ok: true }),
    );
    expect(settlements).toHaveLength(4);
  });

  test("liar: delivers in perfect form, never right", () => {
    expect(of("liar").results).toMatchObject(
      all(4, { fault: null, delivered: true, delivery: 1, outcome: 0, schema_ok: true, honest: true }),
    );
  });

  test("thief: the money went, nothing came, the same proof was shown three times, nothing was paid twice", () => {
    const { intents, results, settlements, followups, ledger } = of("thief");
    expect(results).toMatchObject(
      all(4, { watched: true, fault: null, delivered: false, outcome: 0, control: { ok: true } }),
    );
    expect(settlements.map((one) => one.nonce).sort()).toEqual(intents.map((one) => one.nonce).sort());
    expect(followups).toMatchObject(all(12, { kind: "shown_again", shown_again: { delivered: false, watched: true } }));
    const paid = ledger.filter((line) => line.kind === "paid");
    expect(paid).toHaveLength(16);
    expect(paid.filter((line) => line.tx)).toHaveLength(4);
  });

  test("flaky: what it failed stands, and it never took money for nothing", () => {
    const { results, followups, ledger } = of("flaky");
    expect(results).toHaveLength(4);
    for (const result of results) expect(result).toMatchObject({ watched: true, fault: null, delivered: true });
    const right = ledger.filter((line) => line.kind === "paid" && line.status === 200).length;
    expect(results.filter((one) => one.delivery === 1)).toHaveLength(right);
    expect(followups).toEqual([]);
  });

  test("price-mover: every quote is honest, since its listing names no price", () => {
    const { probes, results } = of("price-mover");
    expect(new Set(probes.map((one) => one.price)).size).toBeGreaterThanOrEqual(1);
    for (const one of [...probes, ...results]) expect(one).toMatchObject({ honest: true, differs: [] });
  });

  test("v2-in-body: read and paid all the same, and the defect is on the record", () => {
    const { probes, results, settlements } = of("v2-in-body");
    for (const one of probes) {
      expect(one).toMatchObject({ state: "asked", live: true, honest: true });
      expect(one.terms!.defects.map(({ defect }) => defect)).toContain("terms_in_body");
    }
    expect(results).toMatchObject(all(4, { delivered: true, outcome: 1, schema_ok: true, honest: true }));
    expect(settlements).toHaveLength(4);
  });

  test("schema-breaker: right, and not as advertised", () => {
    const { results } = of("schema-breaker");
    expect(results).toMatchObject(all(4, { delivered: true, delivery: 1, outcome: 1, honest: true }));
    expect(results.map((one) => one.schema_ok)).toEqual([true, false, false, true]);
  });

  test("pay-to-changer: the askings that name another payee are the dishonest ones, and no other", () => {
    const { probes, intents, results, payTo, settlements } = of("pay-to-changer");
    const dishonest = [...probes, ...results].filter((one) => one.honest === false);
    expect(dishonest).toHaveLength(2);
    for (const one of dishonest) expect(one.differs).toMatchObject([{ defect: "pay_to_differs" }]);
    const elsewhere = (to: string) => to.toLowerCase() !== payTo;
    expect(
      probes.filter((one) => elsewhere(one.pay_to!)).length +
        intents.filter((one) => elsewhere(one.quote.pay_to)).length,
    ).toBe(2);
    expect(settlements).toMatchObject(all(4, { as_quoted: true }));
  });

  test("wall-when-down: a wall is a wall, for the probe and for the paid call of that block", () => {
    const { probes, unpaid, results } = of("wall-when-down");
    const walls = [...probes, ...unpaid].filter((one) => one.wall);
    expect(walls.length).toBe(of("wall-when-down").ledger.filter((line) => line.kind === "wall").length);
    for (const one of walls) expect(one).toMatchObject({ state: "wall", live: false, fault: "blocked", honest: null });
    expect(results.every((one) => one.outcome === 1)).toBe(true);
  });

  test("regulars-only: who pays from the known wallet is served, a blind wallet is not", () => {
    const { intents, results } = of("regulars-only");
    const outcomes = new Map(results.map((one) => [one.intent, one]));
    const seen = log.envelopes().filter((one) => one.type === "paid.intent" && one.cap === of("regulars-only").cap);
    expect(seen).toHaveLength(intents.length);
    for (const { event_id, body } of seen) {
      const { blind } = body as BodyOf<"paid.intent">;
      if (blind) expect(outcomes.get(event_id)).toMatchObject({ status: 500, delivery: 0, outcome: 0, fault: null });
    }
    expect(seen.some(({ body }) => (body as BodyOf<"paid.intent">).blind)).toBe(true);
    expect(results.some((one) => one.outcome === 1)).toBe(true);
  });

  test("price-creeper: its listing is read again when the price has moved, so no quote is dishonest", () => {
    const { probes, intents, results } = of("price-creeper");
    const prices = [...probes.map((one) => one.price), ...intents.map((one) => one.quote.price)];
    expect(new Set(prices)).toEqual(new Set(["0.010000", "0.010800"]));
    for (const one of [...probes, ...results]) expect(one).toMatchObject({ honest: true, differs: [] });
  });

  test("free-for-all: paid with nothing, delivered, no schema and no truth", () => {
    const { intents, results } = of("free-for-all");
    expect(intents).toMatchObject(all(4, { input: "synthetic", schema_sha256: null }));
    expect(results).toMatchObject(all(4, { delivered: true, delivery: 1, outcome: null, schema_ok: null }));
  });

  test("wildcard: takes the money for an error message; nothing of its own to be held to", () => {
    const { results, settlements, intents } = of("wildcard");
    expect(results).toMatchObject(all(4, { fault: null, delivered: true, delivery: 0, schema_ok: null, honest: true }));
    expect(settlements).toHaveLength(4);
    expect(intents).toMatchObject(all(4, { listing_record: null, input: "synthetic" }));
  });

  test("dead: nobody there, nothing signed, no fault of ours", () => {
    const { probes, unpaid, intents } = of("dead");
    expect(probes).toMatchObject(
      all(4, { state: "silent", live: false, fault: null, honest: null, control: { ok: true } }),
    );
    expect(unpaid).toMatchObject(all(4, { state: "silent", live: false }));
    expect(intents).toEqual([]);
  });

  test("the record says what the sellers' own books say: each payment, once, to the last unit", () => {
    for (const { name } of world.info.sellers) {
      const { intents, settlements, ledger, payTo } = of(name);
      const theirs = new Set(ledger.flatMap((line) => (line.nonce ? [line.nonce] : [])));
      expect([...theirs].sort()).toEqual(intents.map((one) => one.nonce).sort());
      expect(settlements.map((one) => one.tx).sort()).toEqual(
        ledger.flatMap((line) => (line.tx ? [line.tx] : [])).sort(),
      );
      const payees = new Set([payTo, ...ledger.flatMap((line) => (line.payTo ? [line.payTo] : []))]);
      for (const one of settlements) expect(payees).toContain(one.to);
      const answers = new Set(ledger.map((line) => line.sha256));
      for (const one of of(name).results) if (one.response_sha256) expect(answers.has(one.response_sha256)).toBe(true);
    }
  });

  test("a start after a kill finds nothing to do: no call is made twice, nothing is awaited", async () => {
    const before = log.records.length;
    expect(await observer.recover()).toEqual({ lost: 0 });
    expect(await observer.observeSpan(plan, START, END)).toMatchObject({ probes: 0, paid: 0, unpaid: 0 });
    expect(log.records.length).toBe(before);
    const awaited = await observer.followUpCalls();
    expect(awaited).toMatchObject({ settled: 0, down: null });
  });

  test("a flood of one domain's addresses fills its own share of the index and nothing else", async () => {
    const flood = world.info.newcomers.find((one) => one.days === 1)!;
    const report = await observer.intakeCatalogue(flood.url);
    expect(report.items).toBeGreaterThanOrEqual(300);
    const lines = (await new LogMemory(log).listed()).map((one) => new URL(one.url).origin);
    const wildcard = world.info.sellers.find((one) => one.name === "wildcard")!;
    expect(lines.filter((origin) => origin === wildcard.origin)).toHaveLength(200);
    expect(lines.filter((origin) => origin !== wildcard.origin)).toHaveLength(world.info.sellers.length - 1);
  });
});
