import { createHash, createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import { handshakeId, intentId } from "../../../../pipelines/1-observe/call.ts";
import { computeCoveredRoot, drawCalls, drawPlanYielding } from "../../../../pipelines/1-observe/plan/plan.ts";
import {
  type Caps,
  Ledger,
  type Payment,
  ReservedSums,
  recipientOf,
} from "../../../../pipelines/1-observe/plan/spend.ts";
import {
  callsInBlock,
  isPassing,
  nextRetestState,
  orderSteps,
  type RetestState,
  retestWeight,
} from "../../../../pipelines/1-observe/plan/steps.ts";
import { capId } from "../../../../pipelines/record/ids.ts";
import type { ListedCap, SpentSum } from "../../../../pipelines/record/memory.ts";
import { DayPlan } from "../../../../pipelines/record/plan.ts";
import { blockOf, blockStart, dayStart } from "../../../../pipelines/record/time.ts";
import { fc } from "../../../helpers/histories.ts";
import { planDay } from "../../../helpers/plan-day.ts";
import { TurnsSeen } from "../../../helpers/turns.ts";
import { claimOf } from "../readings.ts";
import { CAPS, DAY, entry, FakeRail, item } from "../world.ts";

const rail = new FakeRail();
const salt = Buffer.alloc(32, 9);
const first = blockOf(dayStart(DAY));
const now = dayStart(DAY);

function listed(origin: string, change: Partial<ListedCap> = {}, itemChange: Record<string, unknown> = {}): ListedCap {
  const taken = claimOf(item(itemChange), { name: "own", ownOrigin: origin }, rail);
  if (!("claim" in taken)) throw new Error(taken.rejected.says);
  const { claims } = taken.claim.body;
  const url = `${origin}/sum`;
  return {
    cap: capId("GET", url),
    url,
    method: "GET",
    tool: null,
    claims,
    sellerListing: null,
    standing: [],
    sellerClaims: claims,
    firstSeen: "2026-10-01T00:00:00.000Z",
    paidBlocks: 0,
    retest: { failing: false, passes: 0 },
    lastPrice: "0.010000",
    lastPayTo: null,
    lastTried: null,
    ...change,
  };
}
/** Wide caps, and nothing kept for those never paid. */
const NO_SHARE: Caps = { ...CAPS, perDomainDay: 2_000_000n, newShare: 0n };
const plan = (caps: readonly ListedCap[], change: Partial<Parameters<typeof planDay>[0]> = {}) =>
  planDay({ day: DAY, salt, listed: caps, caps: CAPS, now, ...change });

describe("the plan of a day", () => {
  test("drawn in turns is the same, and few endpoints are looked at in one turn of the loop", async () => {
    const some = Array.from({ length: 300 }, (_, i) => listed(`https://s${i}.example`));
    const input = { day: DAY, salt, caps: CAPS, now };
    const turns = new TurnsSeen();
    const drawn = await drawPlanYielding({ ...input, listed: turns.watched(some) });
    const seen = turns.end();
    expect(drawn).toEqual(planDay({ ...input, listed: some }));
    expect(seen.all).toBe(300);
    expect(seen.most).toBeLessThanOrEqual(64);
    // Once more for the lines that come of them.
    expect(seen.turns).toBeGreaterThanOrEqual(Math.floor(600 / 64));
  });

  test("places, minutes and wallets are the bytes of the HMAC, as the method says", () => {
    const one = listed("https://a.example");
    const bytes = createHmac("sha256", salt).update(one.cap).digest();
    const minute = bytes.readUInt16BE(8) % 360;
    const fast = plan([one]).lines[0]!;
    expect(fast.base_per_day).toBe(4);
    expect(fast.calls).toEqual(
      [0, 1, 2, 3].flatMap((b) => [
        { block: first + b, minute, kind: "probe", blind: false },
        { block: first + b, minute, kind: "paid", blind: bytes[2 + b]! < 64 },
      ]),
    );
    const slow = plan([{ ...one, paidBlocks: 30 }]).lines[0]!;
    expect(slow.base_per_day).toBe(1);
    expect(slow.calls.filter((call) => call.kind === "paid")).toEqual([
      { block: first + (bytes[0]! % 4), minute, kind: "paid", blind: bytes[1]! < 64 },
    ]);
    expect(slow.calls.filter((call) => call.kind === "probe")).toHaveLength(4);
    expect(plan([{ ...one, paidBlocks: 29 }]).lines[0]!.base_per_day).toBe(4);
  });

  test("a quarter of the calls is blind, and blocks and minutes are used evenly", () => {
    const counts = { blind: 0, paid: 0, blocks: [0, 0, 0, 0], minutes: new Set<number>() };
    for (let i = 0; i < 4_000; i++) {
      const calls = drawCalls(createHash("sha256").update(`${i}`).digest(), 0, 1, true);
      const paid = calls.find((call) => call.kind === "paid")!;
      counts.paid++;
      counts.blind += Number(paid.blind);
      counts.blocks[paid.block]!++;
      counts.minutes.add(paid.minute);
    }
    expect(counts.blind / counts.paid).toBeGreaterThan(0.22);
    expect(counts.blind / counts.paid).toBeLessThan(0.28);
    for (const n of counts.blocks) expect(n).toBeGreaterThan(900);
    expect(counts.minutes.size).toBe(360);
  });

  test("it is a pure function, whatever the order of what is listed, and the record's shape", () => {
    const caps = Array.from({ length: 20 }, (_, i) => listed(`https://s${i}.example`, { paidBlocks: i % 3 }));
    const made = plan(caps);
    expect(plan([...caps].reverse())).toEqual(made);
    expect(() => DayPlan.parse(made)).not.toThrow();
    expect(made.salt_hash).toBe(createHash("sha256").update(salt).digest("hex"));
    expect(plan(caps, { salt: Buffer.alloc(32, 8) }).lines).not.toEqual(made.lines);
  });

  test("the covered root is the RFC 6962 root over sorted ids", () => {
    const leaf = (text: string) =>
      createHash("sha256")
        .update(Buffer.concat([Buffer.of(0), Buffer.from(text)]))
        .digest();
    const node = (a: Buffer, b: Buffer) =>
      createHash("sha256")
        .update(Buffer.concat([Buffer.of(1), a, b]))
        .digest();
    expect(computeCoveredRoot(["c", "a", "b"])).toBe(node(node(leaf("a"), leaf("b")), leaf("c")).toString("hex"));
    expect(computeCoveredRoot([])).toBe(createHash("sha256").digest("hex"));
    const made = plan([listed("https://a.example"), listed("https://b.example", { lastPrice: "9.000000" })]);
    expect(made.covered_root).toBe(computeCoveredRoot([capId("GET", "https://a.example/sum")]));
  });

  test.each<[string, Partial<ListedCap>, Record<string, unknown>, boolean]>([
    ["quoted before", {}, {}, true],
    ["listed with a price we can pay, never asked", { firstSeen: null, lastPrice: null }, {}, true],
    ["never asked, nothing listed", { firstSeen: null, lastPrice: null }, { accepts: undefined }, true],
    ["asked, never quoted, nothing listed", { lastPrice: null }, { accepts: undefined }, false],
    ["a network we cannot pay", { lastPrice: null }, { accepts: [entry({ network: "eip155:1" })] }, false],
    ["dearer than the cap of a call", { lastPrice: "0.100001" }, {}, false],
    ["exactly the cap of a call", { lastPrice: "0.100000" }, {}, true],
  ])("covered or not: %s", (_name, change, itemChange, covered) => {
    const line = plan([listed("https://a.example", change, itemChange)]).lines[0]!;
    expect(line.covered).toBe(covered);
    // It is probed in every block either way.
    expect(line.calls.filter((call) => call.kind === "probe")).toHaveLength(4);
    expect(line.calls.some((call) => call.kind === "paid")).toBe(covered);
  });

  test("blocks that had begun are left alone; a tool is planned like any other, our own endpoints are not", () => {
    const one = listed("https://a.example");
    const at = new Date(blockStart(first + 1).getTime() + 600_001);
    const blocks = new Set(plan([one], { now: at }).lines[0]!.calls.map((call) => call.block));
    expect([...blocks]).toEqual([first + 2, first + 3]);
    const minute = plan([one]).lines[0]!.calls[0]!.minute;
    const moments = (late: number) =>
      plan([one], { now: new Date(now.getTime() + late) }).lines[0]!.calls[0]!.block - first;
    // On the stroke of a block, and a moment after it, its calls still lie ahead; a minute that has passed does not.
    expect(minute).toBeGreaterThan(0);
    expect([moments(0), moments(1), moments(Math.min(600_000, minute * 60_000))]).toEqual([0, 0, minute > 10 ? 0 : 1]);
    expect(plan([{ ...one, tool: "add" }]).lines).toEqual(plan([one]).lines);
    expect(plan([one], { ownOrigins: ["https://a.example"] }).lines).toEqual([]);
  });

  test("whole days are set aside, those with a letter first; no plan can pass a cap", () => {
    const caps: Caps = { ...NO_SHARE, perCall: 50_000n, perHostDay: 100_000n, perDay: 200_000n, total: 1_000_000n };
    fc.assert(
      fc.property(
        fc.array(
          fc.record({
            host: fc.integer({ min: 0, max: 5 }),
            path: fc.integer({ min: 0, max: 9 }),
            price: fc.integer({ min: 0, max: 60_000 }),
            paid: fc.integer({ min: 0, max: 40 }),
          }),
          { maxLength: 30 },
        ),
        fc.bigInt({ min: 0n, max: 1_000_000n }),
        (many, spentBefore) => {
          const all = many.map(({ host, path, price, paid }) => {
            const url = `https://h${host}.example/${path}`;
            const lastPrice = `0.${String(price).padStart(6, "0")}`;
            return listed(`https://h${host}.example`, { cap: capId("GET", url), url, lastPrice, paidBlocks: paid });
          });
          const made = plan(all, { caps, spentBefore });
          const priceOf = new Map(all.map((one) => [one.cap, BigInt(one.lastPrice!.slice(2))]));
          const byHost = new Map<string, bigint>();
          let total = 0n;
          for (const line of made.lines.filter((one) => one.covered)) {
            const sum = priceOf.get(line.cap)! * 4n;
            byHost.set(line.host, (byHost.get(line.host) ?? 0n) + sum);
            total += sum;
          }
          for (const sum of byHost.values()) expect(sum).toBeLessThanOrEqual(caps.perHostDay);
          expect(total).toBeLessThanOrEqual(caps.perDay);
          expect(spentBefore + total).toBeLessThanOrEqual(caps.total > spentBefore ? caps.total : spentBefore);
        },
      ),
      { numRuns: 60 },
    );
    const rich = [
      listed("https://a.example"),
      listed("https://b.example", { paidBlocks: 3 }),
      listed("https://c.example"),
    ];
    const tight = plan(rich, { caps: { ...caps, perDay: 40_000n } });
    expect(tight.lines.filter((line) => line.covered).map((line) => line.host)).toEqual(["b.example"]);
  });
});

describe("who is covered first", () => {
  const FOUR: Caps = { ...NO_SHARE, perDay: 40_000n, total: 1_000_000n };
  const names = (made: ReturnType<typeof plan>) => made.lines.filter((line) => line.covered).map((line) => line.host);
  const at = (name: string, price: string, paidBlocks = 0) =>
    listed(`https://${name}.example`, { lastPrice: price, paidBlocks });
  const capOf = (name: string) => capId("GET", `https://${name}.example/sum`);

  test.each<[string, ListedCap[], Partial<Parameters<typeof planDay>[0]>, string]>([
    ["the cheapest", [at("dear", "0.009000"), at("cheap", "0.006000")], {}, "cheap"],
    [
      "before the cheapest, what more clients ask for",
      [at("asked", "0.009000"), at("cheap", "0.006000")],
      { demand: new Map([[capOf("asked"), 3]]) },
      "asked",
    ],
    [
      "twice as many are one step: one client more is none",
      [at("four", "0.009000"), at("three", "0.006000")],
      {
        demand: new Map([
          [capOf("four"), 4],
          [capOf("three"), 3],
        ]),
      },
      "three",
    ],
    [
      "before demand, the operator's word on a host",
      [at("asked", "0.006000"), at("named", "0.009000")],
      { demand: new Map([[capOf("asked"), 999]]), priority: { "named.example": 1 } },
      "named",
    ],
    [
      "its word on a capability goes before its word on the host",
      [at("host", "0.009000"), at("both", "0.006000")],
      { priority: { "host.example": 5, "both.example": 9, [capOf("both")]: -1 } },
      "host",
    ],
    [
      "before all of them, what was paid before: a letter that stands needs its samples",
      [at("old", "0.009000", 1), at("new", "0.002000")],
      { demand: new Map([[capOf("new"), 999]]), priority: { "new.example": 100 } },
      "old",
    ],
  ])("%s", (_name, caps, change, first) => {
    expect(names(plan(caps, { caps: FOUR, ...change }))).toEqual([`${first}.example`]);
  });

  test("at equal price the day's random order decides, and on another day another one", () => {
    const caps = Array.from({ length: 6 }, (_, i) => at(`s${i}`, "0.010000"));
    const winners = new Set(
      Array.from({ length: 20 }, (_, i) => names(plan(caps, { caps: FOUR, salt: Buffer.alloc(32, i) }))[0]),
    );
    expect(winners.size).toBeGreaterThan(3);
  });

  test("a name that every object has is no priority", () => {
    const odd = listed("https://constructor");
    expect(plan([odd]).lines[0]!.covered).toBe(true);
  });

  test.each<[string, Partial<ListedCap>, Partial<Caps>, string | null]>([
    ["covered", {}, {}, null],
    [
      "nothing to pay",
      { lastPrice: null, claims: { ...listed("https://a.example").claims, offers: [] } },
      {},
      "nothing_to_pay",
    ],
    ["a call", { lastPrice: "0.100001" }, {}, "per_call"],
    ["a host's day", {}, { perHostDay: 39_999n }, "per_host_day"],
    ["a domain's day", {}, { perDomainDay: 39_999n }, "per_domain_day"],
    ["a payee's day, as its last 402 named it", { lastPayTo: "0xAB" }, { perPayeeDay: 39_999n }, "per_payee_day"],
    ["a payee's day, as it is listed", { lastPrice: null }, { perPayeeDay: 39_999n }, "per_payee_day"],
    ["a payee that nobody knows yet has no cap to pass", {}, { perPayeeDay: 39_999n }, null],
    ["a day", {}, { perDay: 39_999n }, "per_day"],
    ["all time", {}, { total: 39_999n }, "total"],
    [
      "to the last unit: four calls, re-tests included",
      {},
      { perDay: 40_000n, perHostDay: 40_000n, perDomainDay: 40_000n, perPayeeDay: 40_000n, total: 40_000n },
      null,
    ],
  ])("the line says why not: %s", (_name, change, caps, why) => {
    const line = plan([listed("https://a.example", change)], { caps: { ...CAPS, ...caps } }).lines[0]!;
    expect([line.why, line.covered]).toEqual([why, why === null]);
  });

  test("coverage is a pure function of the salt and what was known: whatever the order, and in every process", () => {
    const one = fc.record({
      host: fc.integer({ min: 0, max: 4 }),
      path: fc.integer({ min: 0, max: 6 }),
      price: fc.integer({ min: 0, max: 60_000 }),
      paid: fc.integer({ min: 0, max: 40 }),
      demand: fc.integer({ min: 0, max: 40 }),
    });
    fc.assert(
      fc.property(fc.array(one, { maxLength: 20 }), fc.uint8Array({ minLength: 32, maxLength: 32 }), (many, drawn) => {
        const urls = many.map(({ host, path }) => `https://h${host}.example/${path}`);
        const all = many.map(({ price, paid }, i) => {
          const url = urls[i]!;
          const lastPrice = `0.${String(price).padStart(6, "0")}`;
          return listed(new URL(url).origin, { cap: capId("GET", url), url, lastPrice, paidBlocks: paid });
        });
        // Of one capability there is one row.
        const rows = [...new Map(all.map((row) => [row.cap, row])).values()];
        const demand = many.map(({ demand: n }, i): [string, number] => [capId("GET", urls[i]!), n]);
        const make = (list: ListedCap[], of: [string, number][]) =>
          plan(list, { salt: drawn, caps: FOUR, demand: new Map(of) });
        const unique = [...new Map(demand)];
        expect(make([...rows].reverse(), [...unique].reverse())).toEqual(make(rows, unique));
      }),
      { numRuns: 60 },
    );
    // Golden: another process, machine or year makes the same plan of the same day.
    const fixed = Array.from({ length: 9 }, (_, i) => at(`s${i}`, `0.00${i}000`, i % 3));
    const made = plan(fixed, { caps: FOUR, demand: new Map([[capOf("s8"), 7]]), priority: { "s7.example": 2 } });
    expect([names(made).sort(), made.covered_root]).toMatchInlineSnapshot(`
      [
        [
          "s0.example",
          "s1.example",
          "s2.example",
          "s7.example",
        ],
        "ff84babf21c7b2a1e73b31e24ef5ecee21776e3ec45cf09f25088a07bd848e30",
      ]
    `);
  });
});

describe("re-tests", () => {
  const good: RetestState = { failing: false, passes: 0, lastPaidBlock: null };
  test("after a failure every later block until three pass in a row", () => {
    let state = nextRetestState(good, 10, false);
    expect(retestWeight(state, 10, 1)).toBeNull();
    expect(retestWeight(state, 11, 1)).toEqual({ w: 0.25 });
    state = nextRetestState(nextRetestState(state, 11, true), 12, true);
    expect(retestWeight(state, 13, 1)).toEqual({ w: 0.25 });
    state = nextRetestState(state, 13, false);
    state = nextRetestState(nextRetestState(nextRetestState(state, 14, true), 15, true), 16, true);
    expect(state).toEqual({ failing: false, passes: 0, lastPaidBlock: 16 });
    expect(retestWeight(state, 17, 1)).toBeNull();
  });

  test("nothing to add where every block is called anyway, or nothing failed", () => {
    expect(retestWeight({ failing: true, passes: 0, lastPaidBlock: 1 }, 2, 4)).toBeNull();
    expect(retestWeight(good, 2, 1)).toBeNull();
    expect(retestWeight({ failing: true, passes: 0, lastPaidBlock: 2 }, 3, 2)).toEqual({ w: 0.5 });
  });

  test("at most four paid calls a day, never two in a block, whatever fails", () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 32, maxLength: 32 }),
        fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
        fc.boolean(),
        (bytes, results, failing) => {
          const line = {
            cap: "cap_x",
            host: "h",
            calls: drawCalls(bytes, first, 1, true),
            base_per_day: 1,
            covered: true,
          };
          let state: RetestState = { failing, passes: 0, lastPaidBlock: null };
          let weight = 0;
          for (let b = 0; b < 4; b++) {
            const paid = callsInBlock(line, first + b, state).filter((call) => call.kind === "paid");
            expect(paid.length).toBeLessThanOrEqual(1);
            for (const call of paid) {
              expect(call.retest).toBe(call.w < 1);
              if (call.retest) expect(call.blind).toBe(true);
              weight += call.w;
              state = nextRetestState(state, call.block, results[b]!);
            }
          }
          expect(weight).toBeLessThanOrEqual(1.75);
        },
      ),
    );
  });

  test("a pass is half a point or more by every check", () => {
    expect(isPassing({ delivered: true, delivery: 1, outcome: 0 })).toBe(false);
    expect(isPassing({ delivered: true, delivery: 1, outcome: null })).toBe(true);
    expect(isPassing({ delivered: true, delivery: 0.4, outcome: 0.5 })).toBe(false);
    expect(isPassing({ delivered: true, delivery: 0.5, outcome: 0.5 })).toBe(true);
    expect(isPassing({ delivered: false, delivery: 1, outcome: 1 })).toBe(false);
    expect(isPassing({ delivered: true, delivery: null, outcome: null })).toBe(false);
  });
});

describe("steps of a host", () => {
  test("in time order, the probe of a minute first, what is done left out, ends half open", () => {
    const line = (cap: string, minute: number) => ({
      cap,
      host: "h",
      covered: true,
      base_per_day: 4,
      calls: [
        { block: first, minute, kind: "probe" as const, blind: false },
        { block: first, minute, kind: "paid" as const, blind: false },
      ],
    });
    const lines = [line("cap_b", 100), line("cap_a", 200), line("cap_c", 7)];
    const span = { from: now, to: new Date(now.getTime() + 200 * 60_000) };
    const good = () => ({ failing: false, passes: 0, lastPaidBlock: null });
    const show = (done: string[]) =>
      orderSteps(lines, first, span, good, new Set(done)).map(
        ({ line: { cap }, call }) => `${call.minute} ${cap} ${call.kind}`,
      );
    expect(show([])).toEqual(["7 cap_c probe", "7 cap_c paid", "100 cap_b probe", "100 cap_b paid"]);
    const at = { block: first, minute: 7 };
    expect(show([intentId("cap_c", at)])).toEqual(["7 cap_c probe", "100 cap_b probe", "100 cap_b paid"]);
    expect(show([handshakeId("cap_c", at, "paid"), handshakeId("cap_c", at, "free")])).toEqual([
      "100 cap_b probe",
      "100 cap_b paid",
    ]);
  });
});

describe("money", () => {
  const caps: Caps = {
    ...CAPS,
    perCall: 10n,
    perHostDay: 25n,
    perDomainDay: 30n,
    perPayeeDay: 35n,
    perDay: 40n,
    total: 60n,
  };
  const pay = (cap: string, micro: bigint, host = "a", payTo = "p"): Payment => ({
    ...{ cap, ...recipientOf(host, payTo), micro, block: 0 },
  });
  const spentAt = (host: string, payTo: string, micro: bigint, cap = "before"): SpentSum => ({
    cap,
    host,
    payTo,
    micro,
  });
  /** So much on the day in all; so much of it at the host that the tests pay. */
  const memory = (total: bigint, host = 0n) => ({
    spentOn: async () => [spentAt("a", "q", host), spentAt("z", "z", total - host)],
  });
  const opened = async (before = 0n, total = 0n, host = 0n) => {
    const ledger = new Ledger(caps, before);
    await ledger.openDay(DAY, memory(total, host));
    return ledger;
  };

  test.each<[string, [bigint, bigint, bigint], bigint, RegExp | null]>([
    ["fits", [0n, 0n, 0n], 10n, null],
    ["over the cap of a call", [0n, 0n, 0n], 11n, /of a call/],
    ["over what a host may get", [0n, 20n, 20n], 6n, /of a host/],
    ["to the last unit of a host", [0n, 20n, 20n], 5n, null],
    ["over the day, as the record tells it", [0n, 35n, 0n], 6n, /of a day/],
    ["over all time", [55n, 0n, 0n], 6n, /of all time/],
  ])("%s", async (_name, [before, total, host], amount, says) => {
    const taken = (await opened(before, total, host)).spend(DAY, pay("x", amount));
    expect(taken.ok).toBe(says === null);
    if (!taken.ok) expect(taken.says).toMatch(says!);
  });

  test("a day that was not looked up is not paid on; what is not signed is given back", async () => {
    const ledger = await opened();
    const take = () => ledger.spend(DAY, pay("x", 10n)).ok;
    expect(ledger.spend("2026-11-03", pay("x", 1n)).ok).toBe(false);
    expect([take(), take(), take()]).toEqual([true, true, false]);
    ledger.cancel(DAY, pay("x", 10n));
    expect(take()).toBe(true);
    expect(ledger.total).toBe(20n);
    await ledger.openDay(DAY, memory(0n));
    expect(take()).toBe(false);
  });

  describe("what the plan set aside is kept", () => {
    const day = async (reserved: [string, string, bigint][], spentByCap: [string, bigint][] = []) => {
      const ledger = new Ledger(caps, 0n);
      const spentOn = async () => spentByCap.map(([cap, micro]) => spentAt("a", "p", micro, cap));
      await ledger.openDay(
        DAY,
        { spentOn },
        reserved.map(([cap, host, micro]) => ({ cap, ...recipientOf(host, "p"), micro })),
      );
      return ledger;
    };
    const take = (ledger: Ledger, cap: string, amount: bigint, host = "a") =>
      ledger.spend(DAY, pay(cap, amount, host)).ok;
    const giveBack = (ledger: Ledger, cap: string, amount: bigint, host = "a") =>
      ledger.cancel(DAY, pay(cap, amount, host));

    test("a seller whose price rose gets no more than was set aside, and drops no call of another's", async () => {
      const ledger = await day([
        ["x", "a", 12n],
        ["y", "a", 12n],
      ]);
      expect([take(ledger, "x", 10n), take(ledger, "x", 10n)]).toEqual([true, false]);
      expect([1, 2, 3, 4].map(() => take(ledger, "y", 3n))).toEqual([true, true, true, true]);
      expect(take(ledger, "x", 3n)).toBe(true);
      expect(take(ledger, "x", 1n)).toBe(false);
    });

    test("what nobody was promised is there for whoever asks first", async () => {
      const ledger = await day([["x", "a", 12n]]);
      expect([take(ledger, "x", 10n), take(ledger, "x", 10n), take(ledger, "z", 5n), take(ledger, "z", 1n)]).toEqual([
        ...[true, true, true, false],
      ]);
      expect(take(ledger, "z", 10n, "b")).toBe(true);
      giveBack(ledger, "z", 10n, "b");
      giveBack(ledger, "z", 5n);
      expect(take(ledger, "x", 5n)).toBe(true);
    });

    test("given back, the share is as it was; a restart knows what the day has spent", async () => {
      const ledger = await day([["x", "a", 12n]], [["x", 9n]]);
      giveBack(ledger, "x", 0n);
      expect([take(ledger, "z", 10n), take(ledger, "z", 3n), take(ledger, "z", 4n)]).toEqual([true, true, false]);
      expect([take(ledger, "x", 3n), take(ledger, "x", 1n)]).toEqual([true, false]);
      giveBack(ledger, "z", 3n);
      expect(take(ledger, "x", 3n)).toBe(true);
    });

    test("never past a cap, and never short of a promise, whatever is taken in whatever order", () => {
      const cap = fc.constantFrom("u", "v", "w");
      fc.assert(
        fc.asyncProperty(
          fc.array(fc.bigInt({ min: 0n, max: 10n }), { minLength: 3, maxLength: 3 }),
          fc.array(fc.tuple(cap, fc.bigInt({ min: 0n, max: 12n }), fc.boolean()), { maxLength: 40 }),
          async (prices, takes) => {
            const reservation = new ReservedSums(caps, 0n);
            const hosts = { u: "a", v: "a", w: "b" } as const;
            const kept = (["u", "v", "w"] as const).flatMap((name, i): [string, string, bigint][] =>
              reservation.reserve(recipientOf(hosts[name], "p"), prices[i]!, 4n) === null
                ? [[name, hosts[name], prices[i]! * 4n]]
                : [],
            );
            const ledger = await day(kept);
            const spent = new Map<string, bigint>();
            for (const [name, amount, back] of takes) {
              const host = hosts[name as "u"];
              if (!take(ledger, name, amount, host)) continue;
              if (back) giveBack(ledger, name, amount, host);
              else spent.set(name, (spent.get(name) ?? 0n) + amount);
            }
            const of = (name: string) => spent.get(name) ?? 0n;
            expect(of("u") + of("v")).toBeLessThanOrEqual(caps.perHostDay);
            expect(of("u") + of("v") + of("w")).toBeLessThanOrEqual(caps.perDay);
            for (const [name, host, micro] of kept) {
              const price = micro / 4n;
              for (let left = micro - of(name); price > 0n && left >= price; left -= price) {
                expect(take(ledger, name, price, host)).toBe(true);
              }
            }
          },
        ),
        { numRuns: 200 },
      );
    });
  });

  test("a refused reservation takes nothing", () => {
    const reservation = new ReservedSums(caps, 0n);
    const at = (host: string) => recipientOf(host, null);
    expect(reservation.reserve(at("a"), 6n, 4n)).toBeNull();
    expect(reservation.reserve(at("a"), 1n, 4n)).toBe("per_host_day");
    expect(reservation.reserve(at("b"), 4n, 4n)).toBeNull();
    expect(reservation.reserve(at("c"), 1n, 4n)).toBe("per_day");
  });
});

describe("who is probed and not paid", () => {
  const days = (n: number): string => new Date(dayStart(DAY).getTime() - n * 86_400_000).toISOString();
  const whyOf = (one: ListedCap, exclude: string[] = []) => {
    const { lines } = planDay({ day: DAY, salt, listed: [one], caps: CAPS, now, exclude });
    const [{ covered, why, calls }] = lines as [(typeof lines)[number]];
    // Free handshakes go on whatever is paid.
    expect(calls.filter(({ kind }) => kind === "probe")).toHaveLength(4);
    expect(calls.some(({ kind }) => kind === "paid")).toBe(covered);
    return why;
  };
  const refusing = (one: ListedCap): ListedCap => ({ ...one, sellerClaims: { ...one.claims, no_paid_calls: true } });

  test.each<[string, ListedCap, string[], string | null]>([
    ["asked for money yesterday", listed("https://a.example", { lastAsked: days(1) }), [], null],
    ["asked for money 13 days ago", listed("https://a.example", { lastAsked: days(13) }), [], null],
    ["asked for money two weeks ago", listed("https://a.example", { lastAsked: days(14) }), [], "silent"],
    [
      "never asked, known for long",
      listed("https://a.example", { lastAsked: null, firstSeen: days(20) }),
      [],
      "silent",
    ],
    ["never asked, new", listed("https://a.example", { lastAsked: null, firstSeen: days(2) }), [], null],
    ["never seen", listed("https://a.example", { lastAsked: null, firstSeen: null, lastPrice: null }), [], null],
    ["its host is excluded", listed("https://a.example"), ["a.example"], "excluded"],
    ["it is excluded by its id", listed("https://a.example"), [listed("https://a.example").cap], "excluded"],
    ["another endpoint of the host is", listed("https://a.example"), [listed("https://a.example/b").cap], null],
    ["another port of the host is", listed("https://a.example:8443"), ["a.example:9443"], null],
    ["another host is", listed("https://a.example"), ["b.example"], null],
    ["its seller asks for none", refusing(listed("https://a.example")), [], "opted_out"],
    [
      "somebody else says so",
      {
        ...listed("https://a.example"),
        sellerClaims: null,
        claims: refusing(listed("https://a.example")).sellerClaims!,
      },
      [],
      null,
    ],
  ])("%s", (_, one, exclude, why) => expect(whyOf(one, exclude)).toBe(why));
});
