import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { type Clock, FixedClock, SimulatedClock, systemClock } from "../../../infra/clock.ts";
import { nextRetestState } from "../../../pipelines/1-observe/plan/steps.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { capId } from "../../../pipelines/record/ids.ts";
import type { ListedCap } from "../../../pipelines/record/memory.ts";
import { addDays, blockOf, blockStart, dayStart } from "../../../pipelines/record/time.ts";
import { planDay } from "../../helpers/plan-day.ts";
import { TurnsSeen } from "../../helpers/turns.ts";
import { END, firstProbeOnly, listAndPlan, listing, START, salt } from "./day.ts";
import {
  answer,
  CAPS,
  DAY,
  entry,
  type FakeWorld,
  fakeWorld,
  type Handler,
  honest,
  item,
  paying,
  SELLER,
  terms402,
  timeout,
  wellKnown,
} from "./world.ts";

const times = (world: FakeWorld, type: string) =>
  world.log
    .envelopes()
    .filter((one) => one.type === type)
    .map((one) => ({ at: Date.parse(one.observed_at), cap: one.cap!, body: one.body as BodyOf<"handshake"> }));

describe("a day", () => {
  test("every planned call is made, in its minute, once; a second run makes none", async () => {
    const world = fakeWorld();
    const plan = await listAndPlan(world, honest(world.rail));
    const report = await world.observer.observeSpan(plan, START, END);
    expect(report).toEqual({ probes: 4, paid: 4, unpaid: 0, missed: 0, broken: 0, stopped: false });
    for (const { at, body } of [...times(world, "handshake"), ...times(world, "paid.intent")]) {
      const planned = blockStart(body.slot.block).getTime() + body.slot.minute * 60_000;
      expect(at - planned).toBeGreaterThanOrEqual(0);
      expect(at - planned).toBeLessThan(30_000);
    }
    expect(await world.observer.observeSpan(plan, START, END)).toMatchObject({ probes: 0, paid: 0 });
    expect(await world.restart().observeSpan(plan, START, END)).toMatchObject({ probes: 0, paid: 0 });
    expect(world.egress.paid()).toHaveLength(4);
  });

  test("however many hosts begin it in one moment, few of them do in one turn of the loop", async () => {
    const world = fakeWorld();
    const plan = await listAndPlan(world, honest(world.rail));
    const [line] = plan.lines;
    const hosts = (many: number) => ({
      ...plan,
      lines: Array.from({ length: many }, (_, i) => ({ ...line!, cap: `${line!.cap}${i}`, host: `h${i}`, calls: [] })),
    });
    const turnsOf = async (many: number): Promise<number> => {
      const turns = new TurnsSeen();
      await world.observer.observeSpan(hosts(many), START, END);
      return turns.end().turns;
    };
    await turnsOf(1);
    // A day has four blocks, and 640 hosts ten groups of 64.
    expect((await turnsOf(640)) - (await turnsOf(1))).toBeGreaterThanOrEqual(4 * (10 - 1));
  });

  test("in pieces it is the same day: ends are half open", async () => {
    const whole = fakeWorld();
    const plan = await listAndPlan(whole, honest(whole.rail));
    await whole.observer.observeSpan(plan, START, END);
    const pieces = fakeWorld();
    await listAndPlan(pieces, honest(pieces.rail));
    for (let at = START.getTime(); at < END.getTime(); at += 60_000 * 45) {
      await pieces.observer.observeSpan(plan, new Date(at), new Date(Math.min(END.getTime(), at + 60_000 * 45)));
    }
    const ids = (world: FakeWorld) =>
      world.log
        .envelopes()
        .filter((one) => one.type !== "settlement")
        .map((one) => one.event_id)
        .sort();
    expect(ids(pieces)).toEqual(ids(whole));
  });

  test("the plan says who pays: blind wallets on blind calls, another one each day", async () => {
    const world = fakeWorld();
    const plan = await listAndPlan(world, honest(world.rail));
    const cap = plan.lines[0]!.cap;
    const calls = plan.lines[0]!.calls.map((call) => ({ ...call, blind: call.block % 2 === 0 }));
    await world.observer.observeSpan({ ...plan, lines: [{ ...plan.lines[0]!, calls }] }, START, END);
    expect(world.wallets.blinds).toEqual([`${cap} ${DAY}`, `${cap} ${DAY}`]);
    const intents = world.log.bodies("paid.intent");
    expect(intents.map((one) => one.blind)).toEqual(intents.map((one) => one.slot.block % 2 === 0));
    expect(new Set(intents.map((one) => one.wallet)).size).toBe(2);
  });

  test("one broken endpoint costs the others nothing", async () => {
    const world = fakeWorld();
    await listAndPlan(
      world,
      listing(() => {
        throw new Error("a bug of egress");
      }),
      "https://bad.example",
    );
    const plan = await listAndPlan(world, honest(world.rail));
    const report = await world.observer.observeSpan(plan, START, END);
    expect(report).toMatchObject({ probes: 4, paid: 4, broken: 8 });
  });

  test("hosts run in parallel, the calls of one host one after the other", async () => {
    const world = fakeWorld({ hostsAtOnce: 3 });
    const running = new Map<string, number>();
    let most = 0;
    const slow: Handler = async (asked) => {
      const { host } = new URL(asked.url);
      running.set(host, (running.get(host) ?? 0) + 1);
      expect(running.get(host)).toBe(1);
      most = Math.max(
        most,
        [...running.values()].reduce((a, b) => a + b),
      );
      await new Promise((done) => setTimeout(done, 2));
      running.set(host, running.get(host)! - 1);
      return answer(200, {});
    };
    for (let i = 0; i < 8; i++) world.egress.sellers.set(`https://s${i}.example`, listing(slow));
    for (let i = 0; i < 8; i++) {
      world.egress.sellers.set(`https://s${i}.example`, () =>
        answer(200, wellKnown(item({ resource: "/a" }), item({ resource: "/b" }))),
      );
      await world.observer.intakeSeller(`https://s${i}.example`);
      world.egress.sellers.set(`https://s${i}.example`, slow);
    }
    const plan = firstProbeOnly(
      planDay({ day: DAY, salt, listed: await world.memory.listed(), caps: CAPS, now: START }),
    );
    expect((await world.observer.observeSpan(plan, START, END)).probes).toBe(16);
    expect(most).toBe(3);
    for (let i = 0; i < 8; i++) {
      const mine = world.egress.asked
        .filter((one) => one.url.startsWith(`https://s${i}.example/`) && one.profile === "handshake")
        .slice(1);
      expect(mine).toHaveLength(2);
    }
  });
});

describe("in real time", () => {
  /** The system's clock, set back to a moment of the test's day. */
  const realFrom = (start: Date): Clock => {
    const began = performance.now();
    return { ...systemClock, now: () => new Date(start.getTime() + performance.now() - began) };
  };

  test("planned minutes are waited for, all queues at once, and `stop` ends the wait", async () => {
    const world = fakeWorld({ hostsAtOnce: 2 });
    for (let i = 0; i < 30; i++) await listAndPlan(world, honest(world.rail), `https://s${i}.example`);
    const block = blockOf(START);
    const lines = (await world.memory.listed()).map((one, i) => {
      const minute = i < 20 ? 10 : 70;
      const { host } = new URL(one.url);
      return {
        cap: one.cap,
        host,
        base_per_day: 1,
        covered: false,
        calls: [{ block, minute, kind: "probe" as const, blind: false }],
      };
    });
    const plan = { v: 1 as const, day: DAY, salt_hash: "", covered_root: "", lines };
    // A little before minute 10: none is early, and the ten of minute 70 keep nobody from a place.
    const start = new Date(START.getTime() + 600_000 - 100);
    const clock = realFrom(start);
    const span = world.observer.observeSpan(plan, start, END, () => clock);
    const probes = () => world.log.envelopes().filter(({ type }) => type === "handshake");
    await expect.poll(probes).toHaveLength(20);
    const due = START.getTime() + 600_000;
    expect(probes().filter(({ observed_at }) => Date.parse(observed_at) < due)).toEqual([]);
    await new Promise((done) => setTimeout(done, 50));
    expect(probes()).toHaveLength(20);
    world.observer.stop();
    expect(await span).toMatchObject({ stopped: true, probes: 20, missed: 0 });
  });

  test("a call whose block is over is not made up for", async () => {
    const world = fakeWorld();
    const plan = await listAndPlan(world, honest(world.rail));
    const late = (): Clock => new FixedClock(new Date(START.getTime() + 2 * 21_600_000));
    const report = await world.observer.observeSpan(plan, START, END, late);
    expect(report).toMatchObject({ probes: 2, paid: 2, missed: 4 });
  });
});

describe("a listing that changes", () => {
  const shop =
    (world: FakeWorld, now: { listed: string; asked: string }): Handler =>
    (asked, n) =>
      honest(world.rail, {
        item: { accepts: [entry({ amount: now.listed })] },
        accepts: [entry({ amount: now.asked })],
      })(asked, n);

  test("a seller that raised its listing with its price is honest, though we read the listing at the day's start", async () => {
    const world = fakeWorld();
    const now = { listed: "10000", asked: "10000" };
    const plan = await listAndPlan(world, shop(world, now));
    const noon = new Date(START.getTime() + 43_200_000);
    await world.observer.observeSpan(plan, START, noon);
    Object.assign(now, { listed: "12000", asked: "12000" });
    await world.observer.observeSpan(plan, noon, END);
    expect(world.log.bodies("handshake").map((one) => one.honest)).toEqual([true, true, true, true]);
    const ids = world.log
      .envelopes()
      .flatMap((one) =>
        one.type === "listing" && (one.body as BodyOf<"listing">).seller_controlled ? [one.event_id] : [],
      );
    expect(ids).toHaveLength(2);
    expect(world.log.bodies("paid.intent").map((one) => one.listing_record)).toEqual([ids[0], ids[0], ids[1], ids[1]]);
  });

  test("one that raised its price alone is not, and is read again once a minute of the record at most", async () => {
    const world = fakeWorld();
    const now = { listed: "10000", asked: "10000" };
    const plan = await listAndPlan(world, shop(world, now));
    now.asked = "12000";
    await world.observer.observeSpan(plan, START, END);
    expect(world.log.bodies("handshake")).toMatchObject(
      Array.from({ length: 4 }, () => ({ honest: false, differs: [{ defect: "price_differs" }] })),
    );
    expect(world.log.bodies("paid.result").map((one) => one.honest)).toEqual([false, false, false, false]);
    const reads = world.egress.asked.filter((one) => one.url.endsWith("/.well-known/x402"));
    // At the start, and once in each block: its probe and its paid call share a minute.
    expect(reads).toHaveLength(1 + 4);
  });
});

describe("re-tests", () => {
  /** Days on which one call a day is the base; the seller fails the paid calls whose number is in `fails`. */
  async function live(fails: Set<number>, days: number) {
    const world = fakeWorld();
    let n = 0;
    await listAndPlan(
      world,
      paying(world.rail, (asked, i) => {
        if (fails.has(n++)) return answer(500, { error: "x" });
        return honest(world.rail)(asked, i);
      }),
    );
    let observer = world.observer;
    for (let d = 0; d < days; d++) {
      const day = addDays(DAY, d);
      const listed = (await world.memory.listed()).map((one) => ({ ...one, paidBlocks: 30 }));
      const plan = planDay({
        day,
        salt: createHash("sha256").update(day).digest(),
        listed,
        caps: CAPS,
        now: dayStart(day),
      });
      const end = dayStart(addDays(day, 1));
      await observer.observeSpan(plan, dayStart(day), end);
      // Half of the days begin in a new process, which knows the state from the record alone.
      if (d % 2) observer = world.restart();
    }
    return world;
  }

  test("after a failure every later block until three pass, blind, at a quarter of the weight", async () => {
    const world = await live(new Set([1, 3]), 8);
    const results = new Map(world.log.bodies("paid.result").map((one) => [one.intent, one]));
    const rows = world.log
      .envelopes()
      .flatMap((one) =>
        one.type === "paid.intent"
          ? [{ ...(one.body as BodyOf<"paid.intent">), pass: results.get(one.event_id)!.delivery === 1 }]
          : [],
      );
    let state = { failing: false, passes: 0, lastPaidBlock: null as number | null };
    const first = blockOf(START);
    for (let block = first; block < first + 8 * 4; block++) {
      const row = rows.find((one) => one.slot.block === block);
      // What the method says of this block, from the rows before it alone.
      if (state.failing) expect(row).toBeDefined();
      if (row?.retest) expect(row).toMatchObject({ blind: true, w: 0.25 });
      if (row?.retest) expect(state.failing).toBe(true);
      if (row && !row.retest) expect(row.w).toBe(1);
      if (row) state = nextRetestState(state, block, row.pass);
    }
    const again = rows.filter((one) => one.retest);
    expect(again.length).toBeGreaterThanOrEqual(4);
    for (const day of new Set(rows.map((one) => one.planned_at.slice(0, 10)))) {
      expect(rows.filter((one) => one.planned_at.startsWith(day)).length).toBeLessThanOrEqual(4);
    }
    // Every day has its call of the base schedule, whatever the re-tests do.
    expect(rows.filter((one) => !one.retest)).toHaveLength(8);
  });

  test("a failure that a buyer published is re-tested by the process that paid before, until there is a verdict", async () => {
    const world = fakeWorld();
    await listAndPlan(world, honest(world.rail));
    const ownListed = world.memory.listed.bind(world.memory);
    const liveOn = async (n: number, retest: ListedCap["retest"]): Promise<number> => {
      world.memory.listed = async () => (await ownListed()).map((one) => ({ ...one, paidBlocks: 30, retest }));
      const day = addDays(DAY, n);
      const plan = planDay({ day, salt, listed: await world.memory.listed(), caps: CAPS, now: dayStart(day) });
      const before = world.log.bodies("paid.intent").length;
      await world.observer.observeSpan(plan, dayStart(day), dayStart(addDays(day, 1)));
      return world.log.bodies("paid.intent").length - before;
    };
    const unconfirmed = { failing: true, passes: 0, unconfirmed: true };
    expect(await liveOn(0, { failing: false, passes: 0 })).toBe(1);
    expect(await liveOn(1, unconfirmed)).toBe(4);
    expect(await liveOn(2, unconfirmed)).toBe(4);
    expect(await liveOn(3, { failing: false, passes: 0 })).toBe(1);
  });

  test("no failure, no re-test; a day cut off and begun again makes none for blocks that were", async () => {
    expect((await live(new Set(), 4)).log.bodies("paid.intent")).toHaveLength(4);
    const world = fakeWorld();
    await listAndPlan(
      world,
      paying(world.rail, () => answer(500, { error: "x" })),
    );
    const listed = (await world.memory.listed()).map((one) => ({ ...one, paidBlocks: 30 }));
    // A salt that puts the call of the day into the third block.
    let n = 0;
    let plan = planDay({ day: DAY, salt, listed, caps: CAPS, now: START });
    while (plan.lines[0]!.calls.find((one) => one.kind === "paid")!.block !== blockOf(START) + 2) {
      plan = planDay({ day: DAY, salt: Buffer.alloc(32, n++), listed, caps: CAPS, now: START });
    }
    const third = blockStart(blockOf(START) + 3);
    await world.observer.observeSpan(plan, START, third);
    expect(world.log.bodies("paid.intent")).toHaveLength(1);
    // From the beginning, in a new process: the failure lies in block 2, so block 3 is re-tested, and 0 and 1 are not.
    await world.restart().observeSpan(plan, START, END);
    const blocks = world.log.bodies("paid.intent").map((one) => one.slot.block - blockOf(START));
    expect(blocks).toEqual([2, 3]);
  });
});

describe("asks", () => {
  const ask = (path: string, method: "GET" | "POST" | null = null): BodyOf<"ask"> => {
    const url = `${SELLER}${path}`;
    return { url, normalised_url: url, method, host: "seller.example", cap: capId(method ?? "GET", url) };
  };
  const shop =
    (listed: unknown[], answers: Record<string, Handler>): Handler =>
    (asked, n) => {
      const { pathname } = new URL(asked.url);
      if (pathname === "/.well-known/x402") return listed.length ? answer(200, wellKnown(...listed)) : answer(404, {});
      return answers[`${asked.method} ${pathname}`]?.(asked, n) ?? answer(404, {});
    };

  test.each<[string, BodyOf<"ask">, unknown[], Record<string, Handler>, [string, string][], number]>([
    [
      "a listed url, with the listed verb and example",
      ask("/sum"),
      [item({ method: "POST", example: { body: { a: 1 } } })],
      { "POST /sum": (asked) => (asked.json ? terms402() : answer(400, {})) },
      [["POST /sum", "asked"]],
      1,
    ],
    ["an unlisted url that asks for payment", ask("/x"), [], { "GET /x": () => terms402() }, [["GET /x", "asked"]], 1],
    [
      "only POST is served",
      ask("/x"),
      [],
      { "POST /x": () => terms402() },
      [
        ["GET /x", "status"],
        ["POST /x", "asked"],
      ],
      1,
    ],
    ["the verb was asked", ask("/x", "GET"), [], { "POST /x": () => terms402() }, [["GET /x", "status"]], 0],
    ["nobody there", ask("/x"), [], { "GET /x": () => timeout() }, [["GET /x", "silent"]], 0],
    [
      "two verbs of one url",
      ask("/sum"),
      [item(), item({ method: "POST" })],
      { "GET /sum": () => terms402(), "POST /sum": () => terms402() },
      [
        ["GET /sum", "asked"],
        ["POST /sum", "asked"],
      ],
      2,
    ],
  ])("%s", async (_name, asked, listed, answers, probed, listings) => {
    const world = fakeWorld();
    world.egress.sellers.set(SELLER, shop(listed, answers));
    const report = await world.observer.probeAsk(asked);
    expect(report.probed).toEqual(
      probed.map(([target, state]) => {
        const [method, path] = target.split(" ") as [string, string];
        return { cap: capId(method, `${SELLER}${path}`), state };
      }),
    );
    expect(world.log.bodies("handshake").map((one) => one.planned)).toEqual(probed.map(() => "asked"));
    expect(world.log.bodies("listing")).toHaveLength(listings);
  });

  test("what is listed already is looked at as its listing says, once, and listed no second time", async () => {
    const world = fakeWorld();
    const bodies: string[] = [];
    const answers = {
      "POST /late": (asked: { body?: Uint8Array }) => {
        bodies.push(Buffer.from(asked.body ?? []).toString());
        return terms402();
      },
    };
    world.egress.sellers.set(SELLER, shop([], answers));
    const url = `${SELLER}/late`;
    const cap = capId("POST", url);
    const blank = { description: null, class: "any", offers: [], fixed_price: false, output_mime: null };
    const claims = { ...blank, url, method: "POST" as const, tool: null, example: { body: { q: "own" } } };
    const said = { cap, url, method: "POST", tool: null, claims, own: true };
    const report = await world.observer.probeAsk({ ...ask("/late", "POST"), cap }, said);
    expect([report.probed, bodies]).toEqual([[{ cap, state: "asked" }], ['{"q":"own"}']]);
    expect(world.log.bodies("handshake")).toMatchObject([{ planned: "asked", url, method: "POST" }]);
    expect(world.log.bodies("listing")).toEqual([]);
  });

  test("a concrete url of a listed template is probed where it was found, and known as the template", async () => {
    const world = fakeWorld();
    const paths: string[] = [];
    world.egress.sellers.set(
      SELLER,
      shop([item({ resource: "/t/:id" })], {
        "GET /t/7": (asked) => {
          paths.push(asked.url);
          return terms402();
        },
      }),
    );
    const report = await world.observer.probeAsk(ask("/t/7"));
    expect(report.probed).toEqual([{ cap: capId("GET", `${SELLER}/t/:id`), state: "asked" }]);
    expect((await world.memory.listed()).map((one) => one.url)).toEqual([`${SELLER}/t/:id`]);
    expect(paths).toHaveLength(1);
  });

  test.each<[string, BodyOf<"ask">, Record<string, unknown>, string]>([
    ["a longer path than the template's", ask("/t/7/zzz"), { resource: "/t/:id" }, "GET /t/7/zzz"],
    ["another path that begins like the template", ask("/tfoo"), { resource: "/t/:id" }, "GET /tfoo"],
    ["a template that matches what is listed", ask("/:any"), {}, "GET /:any"],
    ["another method where the listing names none", ask("/sum", "POST"), { method: undefined }, "POST /sum"],
    ["that method at a template", ask("/t/7", "POST"), { resource: "/t/:id", method: undefined }, "POST /t/7"],
  ])("an ask books nothing under a listed endpoint that it does not name: %s", async (_name, asked, listed, target) => {
    const world = fakeWorld();
    world.egress.sellers.set(SELLER, shop([item(listed)], {}));
    const report = await world.observer.probeAsk(asked);
    const [method, path] = target.split(" ") as [string, string];
    expect(report.probed[0]?.cap).toBe(capId(method, `${SELLER}${path}`));
    const listedCaps = (await world.memory.listed()).map((one) => one.cap);
    expect(listedCaps).toHaveLength(1);
    const bookedCaps = world.log.envelopes().flatMap((one) => (one.type === "handshake" ? [one.cap] : []));
    expect(bookedCaps).toEqual([capId(method, `${SELLER}${path}`)]);
  });
});

describe("catalogues", () => {
  test("rows are third parties' claims; the sellers' own files are read once a day each", async () => {
    const world = fakeWorld();
    const row = { ...item({ resource: `${SELLER}/sum`, accepts: [entry({ amount: "1" })] }), extensions: undefined };
    world.egress.sellers.set("https://c.example", (asked) =>
      answer(200, { items: new URL(asked.url).searchParams.get("offset") === "0" ? [row] : [] }),
    );
    world.egress.sellers.set(SELLER, honest(world.rail));
    const report = await world.observer.intakeCatalogue("https://c.example");
    expect(report).toMatchObject({ items: 2, appended: 2, refused: 0 });
    await world.observer.intakeCatalogue("https://c.example");
    expect(world.egress.asked.filter((one) => one.url.startsWith(SELLER))).toHaveLength(1);
    const [listed] = await world.memory.listed();
    expect(listed?.sellerClaims?.offers[0]?.price).toBe("0.010000");
    // The catalogue's lower price is no promise of the seller: its 402 is held against its own listing alone.
    const plan = firstProbeOnly(
      planDay({ day: DAY, salt, listed: await world.memory.listed(), caps: CAPS, now: START }),
    );
    await world.observer.observeSpan(plan, START, END);
    expect(world.log.bodies("handshake")[0]).toMatchObject({ honest: true, price: "0.010000" });
    expect(new SimulatedClock(START).simulated).toBe(true);
  });
});
