import { expect, test } from "vitest";
import { type Caps, Ledger } from "../../../pipelines/1-observe/spend.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { PublishedFold } from "../../../pipelines/4-publish/fold.ts";
import { isFresh, keptReport } from "../../../pipelines/budget/report.ts";
import { Pipeline, type PipelineParts } from "../../../pipelines/pipeline.ts";
import { fc } from "../../helpers/histories.ts";
import { at, handshake, intent, listing } from "../2-ingest/records.ts";
import { openTestWorld } from "../2-ingest/world.ts";

/** What the caps and the kept budget mean where several observers spend, none of which knows what the others spend. */
const DAY = "2026-11-12";
const CALLS = 4;
const DEAR = 50_000n;

interface Line {
  host: string;
  price: bigint;
  /** Calls that were paid before the caps were set anew. */
  paid: number;
}

const line: fc.Arbitrary<Line> = fc.record({
  host: fc.constantFrom("a", "b", "c"),
  price: fc.bigInt({ min: 1n, max: 1_000n }),
  paid: fc.nat(2),
});
const caps: fc.Arbitrary<Caps> = fc.record({
  perCall: fc.constant(DEAR),
  perHostDay: fc.bigInt({ min: 0n, max: 8_000n }),
  perDay: fc.bigInt({ min: 0n, max: 16_000n }),
  total: fc.bigInt({ min: 0n, max: 20_000n }),
});
const call = fc.record({ observer: fc.nat(3), line: fc.nat(7), dearer: fc.bigInt({ min: 0n, max: 2n }) });

test("observers that are started with lower caps than the plan was drawn with stay in them together", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(line, { minLength: 1, maxLength: 8 }),
      caps,
      fc.bigInt({ min: 0n, max: 4_000n }),
      fc.array(call, { maxLength: 120 }),
      async (lines, lowered, ever, calls) => {
        const spent = lines.map(({ price, paid }) => price * BigInt(paid));
        const made = lines.map(({ paid }) => paid);
        const sum = (of = (_: Line) => true) =>
          spent.reduce((all, micro, i) => (of(lines[i]!) ? all + micro : all), 0n);
        const byHost = (host: string) => sum((one) => one.host === host);
        const hosts = [...new Set(lines.map(({ host }) => host))];
        const before = { day: sum(), hosts: new Map(hosts.map((host) => [host, byHost(host)])) };
        // The record as the lake has it when an observer asks: what all of them have spent by then.
        const memory = {
          spentOn: async () => ({
            byCap: new Map(spent.map((micro, i) => [`cap ${i}`, micro])),
            byHost: new Map(hosts.map((host) => [host, byHost(host)])),
            total: sum(),
          }),
        };
        const reserved = lines.map(({ host, price }, i) => ({ cap: `cap ${i}`, host, micro: price * BigInt(CALLS) }));
        const ledgers = new Map<number, Ledger>();
        for (const { observer, line: which, dearer } of calls) {
          const own = lines[which];
          if (!own) continue;
          let ledger = ledgers.get(observer);
          if (!ledger) {
            ledger = new Ledger(lowered, ever + sum(), BigInt(CALLS));
            await ledger.open(DAY, memory, reserved);
            ledgers.set(observer, ledger);
          }
          // A slot is one observer's, and an endpoint has four on a day.
          if (made[which]! >= CALLS) continue;
          const price = own.price + dearer;
          if (!ledger.take(DAY, own.host, price, `cap ${which}`).ok) continue;
          expect(dearer).toBe(0n);
          spent[which]! += price;
          made[which]!++;
        }
        const most = (cap: bigint, had: bigint): bigint => (cap > had ? cap : had);
        expect(sum() <= most(lowered.perDay, before.day)).toBe(true);
        expect(ever + sum() <= most(lowered.total, ever + before.day)).toBe(true);
        for (const host of hosts) expect(byHost(host) <= most(lowered.perHostDay, before.hosts.get(host)!)).toBe(true);
      },
    ),
  );
});

test("a plan that fits is paid whole, whichever observer is asked", async () => {
  const fits: Caps = { perCall: DEAR, perHostDay: 400n, perDay: 800n, total: 10_000n };
  const reserved = ["a", "a", "b"].map((host, i) => ({ cap: `cap ${i}`, host, micro: 200n }));
  const memory = { spentOn: async () => ({ byCap: new Map(), byHost: new Map(), total: 0n }) };
  for (const { cap, host } of reserved) {
    const ledger = new Ledger(fits, 0n, BigInt(CALLS));
    await ledger.open(DAY, memory, reserved);
    for (let n = 0; n < CALLS; n++) expect(ledger.take(DAY, host, 50n, cap)).toEqual({ ok: true });
  }
});

test("an observer keeps the budget of all of them, with the letters of what it follows", async () => {
  const world = await openTestWorld();
  try {
    await world.append(
      listing("a", at("00:00:00", DAY)),
      handshake("a", at("01:00:00", DAY)),
      // Another observer's payment: it came by the log.
      intent("a", at("02:00:00", DAY), {}),
    );
    await world.ingest.pass();
    const now = new Date(at("12:00:00", DAY));
    const money: Caps = { perCall: DEAR, perHostDay: 2_000_000n, perDay: 200_000n, total: 1_000_000n };
    const parts = {
      now: () => now,
      privateStore: world.store,
      lake: world.lake,
      memory: createMemory(world.lake),
      caps: money,
    };
    const pipeline = new Pipeline(parts as unknown as PipelineParts);
    await pipeline.budget(new PublishedFold());
    const kept = (await keptReport(world.store))!;
    expect(kept).toMatchObject({ day: DAY, spent: { day: { calls: 1 } }, coverage: { listed: 1, planned: false } });
    expect(kept.endpoints).toMatchObject([{ letter: "UNRATED" }]);
    expect(isFresh(kept, DAY, now)).toBe(true);
    expect(isFresh(kept, DAY, new Date(now.getTime() + 24 * 60_000))).toBe(true);
    // Nobody keeps it any more, or another day is asked for.
    expect(isFresh(kept, DAY, new Date(now.getTime() + 26 * 60_000))).toBe(false);
    expect(isFresh(kept, "2026-11-11", now)).toBe(false);
  } finally {
    await world.close();
  }
});
