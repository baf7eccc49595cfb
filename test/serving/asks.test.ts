import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { sealEnvelope } from "../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../pipelines/record/ids.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { type AskReply, Asks, createAskQueue } from "../../serving/answers/asks.ts";
import { Demand } from "../../serving/answers/demand.ts";
import { NO_LOG } from "../../serving/replica/background-log.ts";
import { followAsks } from "../../serving/tables/ask-queue.ts";
import { capOf, listingDraft, NOW, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { AppendOnly, checkPath, ManualClock, servingOver } from "../helpers/serving.ts";

const HOUR = 3_600_000;
const T0 = Date.parse(NOW);
const logger = createLogger("silent");
const ask = (normalised: string) => ({ url: normalised, normalised, method: undefined });
const cap = (url: string) => capId("GET", url);
const PROOF = { statement: "s", pay_to: "p", signature: "z" };

function asksOver(more: Partial<ConstructorParameters<typeof Asks>[0]> = {}) {
  const log = new AppendOnly();
  const clock = new ManualClock();
  return { log, clock, asks: new Asks({ log, clock, logger, producer: "test", baseUrl: BASE, ...more }) };
}
const BASE = "https://touchstone.test";

/** Hours that an answer speaks of; 0 for one that is not in line. */
const hoursOf = ({ queued, next }: AskReply): number =>
  queued ? Number(/in about (?:an|(\d+)) hours?/.exec(next)![1] ?? 1) : 0;
const waitOf = async (asks: Asks, url: string, client = "c"): Promise<number> =>
  hoursOf(await asks.put(ask(url), client));
const bodies = (log: AppendOnly) => log.records.map(({ value }) => JSON.parse(Buffer.from(value).toString()).body);

describe("how long an ask waits", () => {
  test("is its place among those of its domain, five an hour, whoever asked for the others", async () => {
    const line = createAskQueue();
    const { asks, log } = asksOver({ queue: line });
    for (let i = 0; i < 12; i++) line.addAsk(cap(`https://a${i}.big.example/`), `https://a${i}.big.example/`, T0 - i);
    expect(await waitOf(asks, "https://b.big.example/x")).toBe(3);
    expect(await waitOf(asks, "https://small.org/x")).toBe(1);
    // In line already: nothing is appended, and it moves up as those before it are looked at.
    for (let i = 0; i < 10; i++) line.recordProbe(cap(`https://a${i}.big.example/`), T0 - 2 * HOUR);
    expect(await waitOf(asks, "https://b.big.example/x")).toBe(1);
    expect(log.records).toHaveLength(2);
  });

  test("looks of the last hour count, since they use up what the domain gets", async () => {
    const line = createAskQueue();
    for (let i = 0; i < 5; i++) {
      line.addAsk(cap(`https://big.example/${i}`), `https://big.example/${i}`, T0 - 9_000);
      line.recordProbe(cap(`https://big.example/${i}`), T0 - 1_000);
    }
    const { asks, clock } = asksOver({ queue: line });
    expect(await waitOf(asks, "https://big.example/new")).toBe(2);
    clock.pass(HOUR);
    expect(await waitOf(asks, "https://big.example/new")).toBe(1);
  });

  test("what was looked at a moment ago is not put in line; later that day its turn is a day after the look", async () => {
    const line = createAskQueue();
    const { asks, clock, log } = asksOver({ queue: line });
    const url = "https://gone.example/";
    line.recordProbe(cap(url), T0);
    const fresh = await asks.put(ask(url), "c");
    expect([fresh.queued, fresh.next, log.records.length]).toEqual([
      ...[true, "Its free handshake was just made. Ask again in a few minutes.", 0],
    ]);
    clock.pass(HOUR);
    expect(await waitOf(asks, url)).toBe(24);
    expect(bodies(log)).toMatchObject([{ cap: cap(url), not_before: new Date(T0 + 24 * HOUR + 1).toISOString() }]);
    // It stands in line now.
    clock.pass(HOUR);
    expect(await waitOf(asks, url)).toBe(23);
    expect(log.records).toHaveLength(1);
    // Its own look closes it, an older one does not.
    line.recordProbe(cap(url), T0 - 1);
    expect(line.size).toBe(1);
    line.recordProbe(cap(url), T0 + 24 * HOUR + 2);
    expect(line.size).toBe(0);
  });

  test("what stood for thirty days is forgotten, and what the plan probed meanwhile leaves too", async () => {
    const line = createAskQueue();
    const seen = new Map<string, number>();
    const { asks, clock } = asksOver({ queue: line, lastProbeTime: (one) => seen.get(one) ?? null });
    await asks.put(ask("https://old.example/"), "c");
    clock.pass(30 * 24 * HOUR + 1);
    await asks.put(ask("https://other.example/"), "c");
    expect(line.size).toBe(1);
    seen.set(cap("https://other.example/"), T0 + 30 * 24 * HOUR + 1);
    clock.pass(60_000);
    await asks.put(ask("https://third.example/"), "c");
    expect([line.size, line.earliestProbe(cap("https://third.example/")) !== null]).toEqual([1, true]);
  });

  test("asks for one url at the same moment are one record and one of the client's share", async () => {
    const { asks, log } = asksOver({ queue: createAskQueue({ asks_per_hour: 2 }), limits: { asks_per_hour: 2 } });
    const url = "https://twice.example/";
    const waits = await Promise.all(Array.from({ length: 50 }, () => waitOf(asks, url, "much")));
    expect([new Set(waits), log.records.length]).toEqual([new Set([1]), 1]);
    expect(await waitOf(asks, "https://one.example/", "much")).toBe(1);
    // Its share is used up now, so its next ask waits; another client's ask for the same does not wait for it.
    const both = ["much", "other"].map((client) => waitOf(asks, "https://late.example/", client));
    expect([await Promise.all(both), log.records.length]).toEqual([[1, 1], 4]);
    log.down = true;
    const none = await Promise.all([1, 2].map(() => asks.put(ask("https://down.example/"), "third")));
    expect(none.map(({ queued }) => queued)).toEqual([false, false]);
    log.down = false;
    expect(await waitOf(asks, "https://down.example/", "third")).toBe(1);
  });

  test("past a client's share its asks have their turns later, twenty an hour; nobody else waits for it", async () => {
    const { asks, log } = asksOver({ queue: createAskQueue({ asks_per_hour: 2 }), limits: { asks_per_hour: 2 } });
    const waits = [];
    for (let i = 0; i < 6; i++) waits.push(await waitOf(asks, `https://n${i}.example/`, "much"));
    expect(waits).toEqual([1, 1, 1, 2, 2, 3]);
    const half = (n: number) => new Date(T0 + (n * HOUR) / 2).toISOString();
    expect(bodies(log).map((one) => one.not_before)).toEqual([
      undefined,
      undefined,
      half(1),
      half(2),
      half(3),
      half(4),
    ]);
    expect(await waitOf(asks, "https://mine.example/", "other")).toBe(1);
    expect(bodies(log)[6]).not.toHaveProperty("not_before");
    // Somebody else asks for what was held back: it is brought forward, as a record of its own, once.
    expect(await waitOf(asks, "https://n5.example/", "other")).toBe(1);
    expect(await waitOf(asks, "https://n5.example/", "third")).toBe(1);
    expect(log.records).toHaveLength(8);
    expect(new Set(log.records.map(({ eventId }) => eventId)).size).toBe(8);
  });

  test("all clients together have a share too, and it never refuses either", async () => {
    const { asks } = asksOver({ limits: { asks_per_hour_total: 1 } });
    expect(await waitOf(asks, "https://one.example/", "a")).toBe(1);
    expect(await waitOf(asks, "https://two.example/", "b")).toBe(2);
    expect(await waitOf(asks, "https://three.example/", "c")).toBe(3);
  });

  test("of a domain, those held back stand behind those that are not, whenever they came", async () => {
    const line = createAskQueue();
    for (let i = 0; i < 20; i++)
      line.addAsk(cap(`https://big.example/${i}`), `https://big.example/${i}`, T0, T0 + HOUR);
    const { asks } = asksOver({ queue: line });
    expect(await waitOf(asks, "https://big.example/own")).toBe(1);
    expect(line.waitOf(cap("https://big.example/19"), T0)).toEqual({ hours: 5, by: "domain" });
  });

  test("a full line takes nothing more of whoever has most and says when to ask again; what stands keeps its place", async () => {
    const { asks, log } = asksOver({ limits: { asks_in_line: 3 } });
    for (let i = 0; i < 3; i++) await asks.put(ask(`https://n${i}.example/`), "c");
    expect(await asks.put(ask("https://n4.example/"), "c")).toEqual({
      queued: false,
      next: "The line of urls for a free handshake is full, so it is not in it. Ask again in about an hour.",
    });
    expect(await waitOf(asks, "https://n1.example/", "d")).toBe(1);
    expect(log.records).toHaveLength(3);
  });

  test("four clients that fill the line shut nobody out: whoever has fewer pushes out the newest of theirs", async () => {
    const limits = { asks_in_line: 40 };
    const line = createAskQueue(limits);
    const { asks, log } = asksOver({ limits, queue: line });
    const flood = async (client: string): Promise<number> => {
      let took = 0;
      while (took < 100 && (await asks.put(ask(`https://${client}-${took}.com/`), client)).queued) took++;
      return took;
    };
    // Each may push out of those before it until all have the same, and no further.
    const took = [];
    for (const client of ["a", "b", "c", "d"]) took.push(await flood(client));
    expect([line.size, took]).toEqual([40, [40, 20, 13, 10]]);
    expect(await asks.put(ask("https://victim.com/"), "victim")).toMatchObject({ queued: true });
    expect(line.earliestProbe(cap("https://victim.com/"))).not.toBeNull();
    expect(line.size).toBe(40);
    const known = { cap: cap("https://seller.com/"), tool: null };
    expect(await asks.retest({ ...ask("https://seller.com/"), knownEndpoint: known }, PROOF, "a")).toMatchObject({
      queued: true,
    });
    expect(log.records).toHaveLength(40 + 20 + 13 + 10 + 2);
  });

  test("a re-test that is asked for several times at one moment is one record, and counts once", async () => {
    const { asks, log } = asksOver({ limits: { asks_per_hour: 1, asks_in_line: 20 } });
    const retest = (url: string, client = "c") =>
      asks.retest({ ...ask(url), knownEndpoint: { cap: cap(url), tool: null } }, PROOF, client);
    const url = "https://seller.com/";
    const replies = await Promise.all([retest(url), retest(url), retest(url, "d")]);
    expect([replies.map((reply) => hoursOf(reply!)), log.records.length]).toEqual([[1, 1, 1], 1]);
    // Its share of this hour is used, and not that of the hour after as well; and nothing of the other's.
    expect(hoursOf((await retest("https://second.com/"))!)).toBe(2);
    // The line of re-tests is full of the first client's: only another one pushes one out.
    const full = "https://third.com/";
    const tries = await Promise.all([retest(full), retest(full), retest(full, "d"), retest(full, "e")]);
    expect(tries.map((reply) => reply!.queued)).toEqual([false, false, true, true]);
    expect([log.records.length, hoursOf((await retest(full, "d"))!)]).toEqual([3, 1]);
  });

  test("names under one hosting platform have a few times a domain's share together", async () => {
    const { asks } = asksOver({ limits: { asks_per_domain_hour: 1 } });
    const waits = [];
    for (let i = 0; i < 9; i++) waits.push(await waitOf(asks, `https://n${i}.vercel.app/`, `c${i}`));
    expect(waits).toEqual([1, 1, 1, 1, 2, 2, 2, 2, 3]);
    expect(await waitOf(asks, "https://elsewhere.com/", "c")).toBe(1);
  });

  test("nobody is promised a look after the ask has had its time", async () => {
    const { asks, log } = asksOver({
      limits: { asks_per_hour: 1000, asks_per_domain_hour: 1, asks_per_hour_total: 1_000_000 },
    });
    for (let i = 0; i < 672; i++) await asks.put(ask(`https://big.example/${i}`), "c");
    const refused = await asks.put(ask("https://big.example/more"), "c");
    expect([refused.queued, refused.next]).toEqual([false, expect.stringContaining("of this domain")]);
    const much = asksOver({ limits: { asks_per_hour: 1 } });
    for (let i = 0; i < 673; i++) await much.asks.put(ask(`https://n${i}.example/`), "c");
    const late = await much.asks.put(ask("https://more.example/"), "c");
    expect([late.queued, late.next]).toEqual([false, expect.stringContaining("Ask again tomorrow")]);
    expect([log.records.length, much.log.records.length]).toEqual([672, 672]);
  });

  test("the log's own records fill it: another replica's asks, looks, and a start from nothing", async () => {
    const dir = await mkdtemp(join(tmpdir(), "asks-"));
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 4 });
    try {
      const clock = new ManualClock();
      const other = new Asks({ log, clock, logger, producer: "other", baseUrl: BASE, limits: { asks_per_hour: 100 } });
      for (let i = 0; i < 11; i++) await other.put(ask(`https://s${i}.big.example/`), "c");
      const line = createAskQueue();
      const follow = followAsks(log, line, logger, 60_000);
      await follow.catchUp();
      expect(line.size).toBe(11);
      const url = "https://s0.big.example/";
      const looked = sealEnvelope(
        {
          ...{ v: 1, type: "ask.looked" as const, key: "s0.big.example", observed_at: NOW, producer: "test" },
          event_id: recordId("ask.looked", "s0.big.example", "1"),
          body: { cap: cap(url), host: "s0.big.example", probed: [] },
        },
        4,
      );
      await log.append([looked, looked]);
      await follow.catchUp();
      expect(line.size).toBe(10);
      // Ten ahead and one look within the hour.
      const { asks } = asksOver({ queue: line });
      expect(await waitOf(asks, "https://new.big.example/")).toBe(3);
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
  const NEW = { url: "https://new.example/listed", method: "POST" as const };
  const TOOL = { url: "https://tools.example/mcp", method: "POST" as const, tool: "search" };
  const ODD = { url: "https://odd.example:8443/x" };
  let record: PublicRecord;
  beforeAll(async () => {
    record = await PublicRecord.open();
    await record.publish([LISTED, NEW, TOOL, ODD].map(listingDraft));
    const nothing = { ...{ asked_for_payment: 0, paid_calls: 0, price: null, pay_to: null }, last_seen: T0 - HOUR };
    await record.live([rowOf(FREE, nothing), rowOf(LISTED, { ...nothing, last_seen: T0 - 48 * HOUR })]);
  });
  afterAll(() => record.close());

  test("what asked for no payment is put in line again after a day, and only then; a full hour refuses no known url", async () => {
    const serving = await servingOver(record, { limits: { asks_per_hour: 1 } });
    const check = async (url: string) => {
      const response = await serving.get(checkPath({ url }));
      return { status: response.status, ...((await response.json()) as { matched: string; queued?: boolean }) };
    };
    expect(await check(FREE.url)).toMatchObject({ status: 200, matched: "exact" });
    expect(serving.log.records).toHaveLength(0);
    serving.clock.pass(24 * HOUR);
    expect(await check(FREE.url)).toMatchObject({ status: 200, matched: "exact", queued: true });
    // A listed one is probed in every block anyway.
    expect(await check(LISTED.url)).not.toHaveProperty("queued");
    expect(serving.log.records).toHaveLength(1);
    const full = await servingOver(record, { limits: { asks_in_line: 0 }, clock: serving.clock });
    const kept = await full.get(checkPath({ url: FREE.url }));
    expect([kept.status, ((await kept.json()) as { queued?: boolean }).queued]).toEqual([200, false]);
  });

  test("a hundred unknown urls of one client are a hundred answers, each in line, and each says when", async () => {
    const serving = await servingOver(record);
    for (let i = 0; i < 100; i++) {
      const response = await serving.get(checkPath({ url: `https://n${i}.example/x` }));
      expect(response.status).toBe(200);
      const hours = i < 39 ? "an hour" : `${Math.floor((i - 19) / 20) + 1} hours`;
      expect(await response.json()).toMatchObject({ queued: true, next: expect.stringContaining(`in about ${hours}`) });
    }
    expect(serving.log.records).toHaveLength(100);
  });

  test("a replica without a log answers, and says where to ask", async () => {
    const serving = await servingOver(record, { log: NO_LOG });
    const response = await serving.get(checkPath({ url: "https://user:pw@new.example/a?b=c#d" }));
    expect([response.status, response.headers.get("cache-control")]).toEqual([200, "public, max-age=60"]);
    expect(await response.json()).toMatchObject({
      ...{ band: "UNRATED", matched: "none", queued: false },
      next: "The record holds other paths of this host: POST https://new.example/listed. This replica only answers and puts nothing in line. Ask the service itself: https://touchstone.test/v1/check?url=https%3A%2F%2Fnew.example%2Fa%3Fb%3Dc",
    });
  });

  test("what is listed and was never probed is exact, in line under its own id and verb, and says when", async () => {
    const serving = await servingOver(record);
    const answer = await (await serving.get(checkPath({ url: NEW.url }))).json();
    expect(answer).toMatchObject({
      ...{ matched: "exact", band: "UNRATED", capabilityId: capId("POST", NEW.url), queued: true },
      next: "No free handshake of it is in the record yet. In line for a free handshake. Ask again in about an hour.",
    });
    expect(bodies(serving.log)).toEqual([
      {
        ...{ url: NEW.url, normalised_url: NEW.url, host: "new.example" },
        ...{ method: "POST", cap: capId("POST", NEW.url) },
      },
    ]);
    const tool = await (await serving.get(checkPath({ url: capOf(TOOL) }))).json();
    expect(tool).toMatchObject({ matched: "exact", queued: true });
    expect(bodies(serving.log)[1]).toMatchObject({ cap: capOf(TOOL), tool: "search", normalised_url: TOOL.url });
    const unfetched = await (await serving.get(checkPath({ url: ODD.url }))).json();
    expect(unfetched).toMatchObject({ matched: "exact", queued: false, next: expect.stringContaining("never probe") });
    expect(serving.log.records).toHaveLength(2);
  });

  test("known endpoints are counted for each client once, cached answers too; unknown ones are not", async () => {
    const log = new AppendOnly();
    const clock = new ManualClock();
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
    const clock = new ManualClock();
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
    const clock = new ManualClock();
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
    const demand = new Demand({ log, clock: new ManualClock(), logger, bounds: { maxClients: 2, maxPairs: 3 } });
    for (const client of ["a", "b", "c"]) for (const one of caps) demand.count(one, client);
    await demand.flush();
    const total = tallies(log)[0].asked.reduce((sum: number, one: { clients: number }) => sum + one.clients, 0);
    expect(total).toBe(3);
  });
});
