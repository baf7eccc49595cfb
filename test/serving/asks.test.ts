import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { sealEnvelope } from "../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../pipelines/record/ids.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { Asks, askLineOf } from "../../serving/answers/asks.ts";
import { Demand } from "../../serving/answers/demand.ts";
import { followAsks } from "../../serving/tables/ask-line.ts";
import { listingDraft, NOW, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { AppendOnly, checkPath, servingOver, TwoHands } from "../helpers/serving.ts";

const HOUR = 3_600_000;
const T0 = Date.parse(NOW);
const logger = createLogger("silent");
const ask = (normalised: string) => ({ url: normalised, normalised, method: undefined });
const cap = (url: string) => capId("GET", url);

function asksOver(more: Partial<ConstructorParameters<typeof Asks>[0]> = {}) {
  const log = new AppendOnly();
  const clock = new TwoHands();
  return { log, clock, asks: new Asks({ log, clock, logger, producer: "test", ...more }) };
}

describe("how long an ask waits", () => {
  test("is its place among those of its domain, five an hour, whoever asked for the others", async () => {
    const line = askLineOf();
    const { asks, log } = asksOver({ line });
    for (let i = 0; i < 12; i++) line.ask(cap(`https://a${i}.big.example/`), `https://a${i}.big.example/`, T0 - i);
    expect(await asks.put(ask("https://b.big.example/x"), "c")).toBe(3);
    expect(await asks.put(ask("https://small.org/x"), "c")).toBe(1);
    // In line already: nothing is appended, and it moves up as those before it are looked at.
    for (let i = 0; i < 10; i++) line.looked(cap(`https://a${i}.big.example/`), T0 - 2 * HOUR);
    expect(await asks.put(ask("https://b.big.example/x"), "c")).toBe(1);
    expect(log.records).toHaveLength(2);
  });

  test("looks of the last hour count, since they use up what the domain gets", async () => {
    const line = askLineOf();
    for (let i = 0; i < 5; i++) {
      line.ask(cap(`https://big.example/${i}`), `https://big.example/${i}`, T0 - 9_000);
      line.looked(cap(`https://big.example/${i}`), T0 - 1_000);
    }
    const { asks, clock } = asksOver({ line });
    expect(await asks.put(ask("https://big.example/new"), "c")).toBe(2);
    clock.pass(HOUR);
    expect(await asks.put(ask("https://big.example/new"), "c")).toBe(1);
  });

  test("what was looked at is not appended again for a day, and what stood for thirty days is forgotten", async () => {
    const { asks, clock, log } = asksOver({ line: askLineOf() });
    const line = askLineOf();
    const again = asksOver({ line, clock, log }).asks;
    line.looked(cap("https://gone.example/"), T0);
    await again.put(ask("https://gone.example/"), "c");
    expect(log.records).toHaveLength(0);
    clock.pass(24 * HOUR + 1);
    await again.put(ask("https://gone.example/"), "c");
    expect([log.records.length, line.size]).toEqual([1, 1]);
    clock.pass(30 * 24 * HOUR + 1);
    await again.put(ask("https://other.example/"), "c");
    expect(line.size).toBe(1);
    await asks.put(ask("https://gone.example/"), "c");
    expect(log.records).toHaveLength(3);
  });

  test("a full line is a 429 that says when to come back, and the bound holds", async () => {
    const { asks, log } = asksOver({ limits: { inLine: 3 } });
    for (let i = 0; i < 3; i++) await asks.put(ask(`https://n${i}.example/`), "c");
    await expect(asks.put(ask("https://n4.example/"), "d")).rejects.toMatchObject({
      code: "too_many_asks",
      extra: { headers: { "retry-after": "600" } },
    });
    expect(await asks.put(ask("https://n1.example/"), "d")).toBe(1);
    expect(log.records).toHaveLength(3);
  });

  test("the log's own records fill it: another replica's asks, looks, and a start from nothing", async () => {
    const dir = await mkdtemp(join(tmpdir(), "asks-"));
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 4 });
    try {
      const clock = new TwoHands();
      const other = new Asks({ log, clock, logger, producer: "other", limits: { perClientHour: 100 } });
      for (let i = 0; i < 11; i++) await other.put(ask(`https://s${i}.big.example/`), "c");
      const line = askLineOf();
      const follow = followAsks(log, line, logger, 60_000);
      await follow.catchUp();
      expect(line.size).toBe(11);
      const url = "https://s0.big.example/";
      const looked = sealEnvelope(
        {
          ...{ v: 1, type: "ask.looked" as const, key: "s0.big.example", observed_at: NOW, producer: "test" },
          event_id: recordId("ask.looked", "s0.big.example", "1"),
          body: { cap: cap(url), host: "s0.big.example", knocked: [] },
        },
        4,
      );
      await log.append([looked, looked]);
      await follow.catchUp();
      expect(line.size).toBe(10);
      // Ten ahead and one look within the hour.
      const { asks } = asksOver({ line });
      expect(await asks.put(ask("https://new.big.example/"), "c")).toBe(3);
      await follow.stop();
    } finally {
      await log.close();
      await rm(dir, { recursive: true, force: true });
    }
  });
});

describe("over HTTP", () => {
  const FREE = { url: "https://free.example/nothing" };
  const LISTED = { url: "https://listed.example/quiet" };
  let record: PublicRecord;
  beforeAll(async () => {
    record = await PublicRecord.open();
    await record.publish([listingDraft(LISTED)]);
    const nothing = { ...{ asked_for_payment: 0, paid_calls: 0, price: null, pay_to: null }, last_seen: T0 - HOUR };
    await record.live([rowOf(FREE, nothing), rowOf(LISTED, { ...nothing, last_seen: T0 - 48 * HOUR })]);
  });
  afterAll(() => record.close());

  test("what asked for no payment is put in line again after a day, and only then; a full hour refuses no known url", async () => {
    const serving = await servingOver(record, { limits: { asks: { perClientHour: 1 } } });
    const check = async (url: string) => {
      const response = await serving.get(checkPath({ url }));
      return { status: response.status, ...((await response.json()) as { matched: string; queued?: boolean }) };
    };
    expect(await check(FREE.url)).toMatchObject({ status: 200, matched: "exact" });
    expect(serving.log.records).toHaveLength(0);
    serving.clock.pass(24 * HOUR);
    expect(await check(FREE.url)).toMatchObject({ status: 200, matched: "exact", queued: true });
    // A listed one is knocked at in every block anyway.
    expect(await check(LISTED.url)).not.toHaveProperty("queued");
    expect(serving.log.records).toHaveLength(1);
    expect((await check("https://one.too.many.example/")).status).toBe(429);
    const again = await servingOver(record, {
      limits: { asks: { perClientHour: 1, inLine: 0 } },
      clock: serving.clock,
    });
    const kept = await again.get(checkPath({ url: FREE.url }));
    expect([kept.status, ((await kept.json()) as { queued?: boolean }).queued]).toEqual([200, undefined]);
  });

  test("known endpoints are counted for each client once, cached answers too; unknown ones are not", async () => {
    const log = new AppendOnly();
    const clock = new TwoHands();
    const demand = new Demand({ log, clock, logger });
    const serving = await servingOver(record, { clock, demand });
    for (const url of [FREE.url, FREE.url, capId("GET", LISTED.url), "https://nobody.example/x"]) {
      await serving.get(checkPath({ url }));
    }
    await demand.flush();
    const [tally] = log.records.map(({ value }) => JSON.parse(Buffer.from(value).toString()).body);
    expect(tally.asked.map((one: { clients: number }) => one.clients)).toEqual([1, 1]);
    expect(new Set(tally.asked.map((one: { cap: string }) => one.cap))).toEqual(
      new Set([cap(FREE.url), cap(LISTED.url)]),
    );
    expect(JSON.stringify(tally)).not.toContain("local");
  });
});

describe("demand", () => {
  const tallies = (log: AppendOnly) => log.records.map(({ value }) => JSON.parse(Buffer.from(value).toString()).body);
  const caps = Array.from({ length: 6 }, (_, i) => cap(`https://e${i}.example/`));

  test("a client counts once a day for an endpoint, and for a bounded number of them", async () => {
    const log = new AppendOnly();
    const clock = new TwoHands();
    const demand = new Demand({ log, clock, logger, bounds: { perClient: 3, perRecord: 2 } });
    for (let i = 0; i < 100; i++) demand.count(caps[0]!, "loud");
    for (const one of caps) demand.count(one, "walker");
    demand.count(caps[1]!, "third");
    await demand.flush();
    const sorted = [caps[0]!, caps[1]!].sort();
    expect(tallies(log)).toMatchObject([
      { day: NOW.slice(0, 10), asked: sorted.map((one) => ({ cap: one, clients: 2 })) },
      { asked: [{ cap: caps[2], clients: 1 }] },
    ]);
    // Nothing new, nothing written; the next day everybody counts again.
    demand.count(caps[0]!, "loud");
    await demand.flush();
    expect(log.records).toHaveLength(2);
    clock.pass(24 * HOUR);
    demand.count(caps[0]!, "loud");
    await demand.flush();
    expect(tallies(log)[2]).toMatchObject({ asked: [{ cap: caps[0], clients: 1 }] });
    expect(new Set(log.records.map(({ eventId }) => eventId)).size).toBe(3);
  });

  test("the day's turn writes the old day's counts under the old day; a log that is down gets them later", async () => {
    const log = new AppendOnly();
    const clock = new TwoHands();
    const demand = new Demand({ log, clock, logger });
    demand.count(caps[0]!, "a");
    log.down = true;
    await demand.flush();
    log.down = false;
    demand.count(caps[0]!, "b");
    clock.pass(24 * HOUR);
    demand.count(caps[1]!, "a");
    await demand.stop();
    expect(tallies(log)).toMatchObject([
      { day: NOW.slice(0, 10), asked: [{ cap: caps[0], clients: 2 }] },
      { asked: [{ cap: caps[1], clients: 1 }] },
    ]);
    expect(tallies(log)[1].day > tallies(log)[0].day).toBe(true);
  });

  test("it is bounded: past its tables nothing more is counted", async () => {
    const log = new AppendOnly();
    const demand = new Demand({ log, clock: new TwoHands(), logger, bounds: { clients: 2, pairs: 3 } });
    for (const client of ["a", "b", "c"]) for (const one of caps) demand.count(one, client);
    await demand.flush();
    const total = tallies(log)[0].asked.reduce((sum: number, one: { clients: number }) => sum + one.clients, 0);
    expect(total).toBe(3);
  });
});
