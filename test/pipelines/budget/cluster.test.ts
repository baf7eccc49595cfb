import { expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { type Caps, Ledger, recipientOf } from "../../../pipelines/1-observe/plan/spend.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { isFresh, readStoredReport } from "../../../pipelines/budget/report.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import type { SpentSum } from "../../../pipelines/record/memory.ts";
import { Pipeline, type PipelineParts } from "../../../pipelines/roles/pipeline.ts";
import { fc } from "../../helpers/histories.ts";
import { CAPS } from "../1-observe/world.ts";
import { at, handshake, intent, listing } from "../2-ingest/records.ts";
import { openTestWorld } from "../2-ingest/world.ts";

/** What the caps and the kept budget mean where several observers spend, none of which knows what the others spend. */
const DAY = "2026-11-12";
const CALLS = 4;
const DEAR = 50_000n;

interface Line {
  host: string;
  /** To whom the plan says that it wants the money; null when nobody knew. */
  payee: string | null;
  price: bigint;
  /** Calls that were paid before the caps were set anew, and to whom. */
  paid: number;
  paidTo: string;
}

const PAYEES = ["p", "q", "r"];
const payee = fc.constantFrom(...PAYEES);
const line: fc.Arbitrary<Line> = fc.record({
  host: fc.constantFrom("a.one.example", "b.one.example", "c.two.example"),
  payee: fc.option(payee),
  price: fc.bigInt({ min: 1n, max: 1_000n }),
  paid: fc.nat(2),
  paidTo: payee,
});
const most = (max: bigint) => fc.bigInt({ min: 0n, max });
/** Now and then so wide that another cap bites. */
const cap = (max: bigint) => fc.oneof(most(max), fc.constant(100_000n));
const caps: fc.Arbitrary<Caps> = fc.record({
  perCall: fc.constant(DEAR),
  perHostDay: cap(8_000n),
  perDomainDay: cap(10_000n),
  perPayeeDay: cap(8_000n),
  perDay: cap(16_000n),
  total: cap(20_000n),
  newShare: fc.constant(0n),
});
const call = fc.record({
  observer: fc.nat(3),
  line: fc.nat(7),
  dearer: fc.oneof({ weight: 4, arbitrary: fc.constant(0n) }, fc.constantFrom(1n, 2n)),
  /** Whom its 402 names: the payee of its plan, or another one. */
  other: fc.option(payee, { freq: 1 }),
  restart: fc.nat(15).map((n) => n === 0),
});

test("observers that are started with lower caps than the plan was drawn with stay in them together", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(line, { minLength: 1, maxLength: 8, size: "max" }),
      caps,
      most(4_000n),
      fc.array(call, { maxLength: 120, size: "max" }),
      async (lines, lowered, ever, calls) => {
        // The record as the lake has it when an observer asks: what all of them have spent by then.
        const record: SpentSum[] = lines.map(({ host, price, paid, paidTo }, i) => ({
          ...{ cap: `cap ${i}`, host, payTo: paidTo, micro: price * BigInt(paid) },
        }));
        const made = lines.map(({ paid }) => paid);
        const sumsOf = (): Map<string, bigint> => {
          const sums = new Map<string, bigint>([["day", 0n]]);
          for (const { host, payTo, micro } of record) {
            const keys = ["day", host, host.split(".").slice(1).join("."), payTo];
            for (const key of keys) sums.set(key, (sums.get(key) ?? 0n) + micro);
          }
          return sums;
        };
        const before = sumsOf();
        const reserved = lines.map(({ host, payee, price }, i) => ({
          ...{ cap: `cap ${i}`, ...recipientOf(host, payee), micro: price * BigInt(CALLS), block: 0 },
        }));
        const ledgers = new Map<number, Ledger>();
        for (const { observer, line: which, dearer, other, restart } of calls) {
          const own = lines[which];
          if (!own) continue;
          let ledger = ledgers.get(observer);
          if (!ledger || restart) {
            ledger = new Ledger(lowered, ever + sumsOf().get("day")!, BigInt(CALLS));
            await ledger.openDay(DAY, { spentOn: async () => record }, reserved);
            ledgers.set(observer, ledger);
          }
          // A slot is one observer's, and an endpoint has four on a day.
          const block = made[which]!;
          if (block >= CALLS) continue;
          const micro = own.price + dearer;
          const payTo = other ?? own.payee ?? "p";
          const payment = { cap: `cap ${which}`, ...recipientOf(own.host, payTo), micro, block };
          if (!ledger.spend(DAY, payment).ok) continue;
          expect(dearer).toBe(0n);
          record.push({ cap: payment.cap, host: own.host, payTo, micro });
          made[which] = block + 1;
        }
        const after = sumsOf();
        const holds = (key: string, cap: bigint): void => {
          const [had, has] = [before.get(key) ?? 0n, after.get(key) ?? 0n];
          expect(has <= (cap > had ? cap : had), `${key}: ${has} of ${cap}`).toBe(true);
        };
        holds("day", lowered.perDay);
        holds("day", lowered.total - ever);
        for (const host of new Set(lines.map((one) => one.host))) holds(host, lowered.perHostDay);
        for (const domain of ["one.example", "two.example"]) holds(domain, lowered.perDomainDay);
        for (const one of PAYEES) holds(one, lowered.perPayeeDay);
      },
    ),
    { numRuns: 500 },
  );
});

test("a payee that the plan did not name: all may pay it in a light plan, once each in a fuller one, else nobody", async () => {
  const reserved = [1, 2, 3, 4, 5, 6, 7, 8].map((i) => ({
    ...{ cap: `cap ${i}`, ...recipientOf(`${i}.example`, `p${i}`), micro: 400n, block: 7 },
  }));
  const may = async (perPayeeDay: bigint, block: number, payTo = "new") => {
    const ledger = new Ledger({ ...CAPS, perPayeeDay }, 0n, BigInt(CALLS));
    await ledger.openDay(DAY, { spentOn: async () => [] }, reserved);
    return ledger.spend(DAY, { cap: "cap 1", ...recipientOf("1.example", payTo), micro: 100n, block });
  };
  // Everything that is set aside is 3,200; one call of everybody is 800.
  expect([await may(3_200n, 7), await may(3_200n, 8)]).toEqual([{ ok: true }, { ok: true }]);
  expect([(await may(3_199n, 7)).ok, (await may(3_199n, 8)).ok, (await may(800n, 7)).ok]).toEqual([true, false, true]);
  expect(await may(799n, 7)).toEqual({ ok: false, says: expect.stringMatching(/set nothing aside for this payee/) });
  // What is set aside for it is kept: 400, and a call of each of the other seven.
  expect([(await may(1_100n, 7, "p2")).ok, (await may(1_099n, 7, "p2")).ok]).toEqual([true, false]);
  // Its own payee it may pay whatever the others do.
  expect((await may(400n, 8, "p1")).ok).toBe(true);
});

test("a plan that fits is paid whole, whichever observer is asked", async () => {
  const fits: Caps = { ...CAPS, perHostDay: 400n, perDomainDay: 400n, perPayeeDay: 600n, perDay: 800n, total: 10_000n };
  const reserved = ["a", "a", "b"].map((host, i) => ({ cap: `cap ${i}`, ...recipientOf(host, "p"), micro: 200n }));
  for (const { cap, host } of reserved) {
    const ledger = new Ledger(fits, 0n, BigInt(CALLS));
    await ledger.openDay(DAY, { spentOn: async () => [] }, reserved);
    const payment = { cap, ...recipientOf(host, "p"), micro: 50n, block: 0 };
    for (let n = 0; n < CALLS; n++) expect(ledger.spend(DAY, payment)).toEqual({ ok: true });
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
    const money: Caps = { ...CAPS, perDay: 200_000n, total: 1_000_000n };
    const parts = {
      clock: new FixedClock(now),
      log: world.log,
      privateStore: world.store,
      lake: world.lake,
      memory: createMemory(world.lake),
      caps: money,
    };
    const pipeline = new Pipeline(parts as unknown as PipelineParts);
    await pipeline.storeBudget(new PublishedFold());
    const { report: kept } = (await readStoredReport(world.store))!;
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
