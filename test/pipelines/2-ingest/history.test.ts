import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { changedBuckets, historyOf } from "../../../pipelines/2-ingest/volatile.ts";
import type { HistoryDay } from "../../../pipelines/record/history.ts";
import { encodeHistory, HistoryFile } from "../../../pipelines/record/history-arrow.ts";
import { bucketOf } from "../../../pipelines/record/ids.ts";
import { fc } from "../../helpers/histories.ts";
import { at, capOf, correction, handshake, intent, later, listing, NOTHING, result } from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

const NOW = new Date("2026-11-15T12:00:00.000Z");
const dayNumber = (day: string): number => Date.parse(`${day}T00:00:00.000Z`) / 86_400_000;

let world: World;
beforeAll(async () => {
  world = await openTestWorld();
});
afterAll(() => world.close());

const ALL = Array.from({ length: 64 }, (_, i) => i);

async function collect(buckets: readonly number[] = ALL, now = NOW) {
  const found = new Map<number, HistoryDay[]>();
  for await (const { bucket, rows } of historyOf(world.lake, buckets, now)) found.set(bucket, rows);
  return found;
}
const daysOf = async (name: string, now = NOW) =>
  ((await collect(ALL, now)).get(bucketOf(capOf(name))) ?? []).filter((day) => day.capability_id === capOf(name));

const SILENT = {
  state: "silent" as const,
  status: null,
  live: false,
  latency_ms: null,
  price: null,
  pay_to: null,
  terms: null,
};

describe("days of the history", () => {
  test("prices, both latencies and counts of a day, each day for itself", async () => {
    const paid = intent("h", at("09:00:00"), {});
    const lost = intent("h", at("15:00:00"));
    await world.append(
      listing("h", at("00:00:00")),
      handshake("h", at("01:00:00"), { price: "0.010000", latency_ms: 100 }),
      handshake("h", at("02:00:00"), { price: "0.030000", latency_ms: 300 }),
      handshake("h", at("03:00:00"), { price: "0.020000", latency_ms: 200 }),
      handshake("h", at("04:00:00"), SILENT),
      handshake("h", at("05:00:00"), { fault: "ours", price: "9.000000", latency_ms: 9_000 }),
      handshake("h", at("06:00:00"), {
        wall: true,
        live: false,
        state: "status",
        status: 403,
        price: null,
        pay_to: null,
        terms: null,
        latency_ms: 7,
      }),
      paid,
      result("h", paid.eventId, later(at("09:00:00"), 900), { latency_ms: 800 }),
      lost,
      result("h", lost.eventId, later(at("15:00:00"), 60_000), { ...NOTHING, latency_ms: 60_000 }),
      handshake("h", at("01:00:00", "2026-11-12"), { price: "0.000001" }),
    );
    await world.ingest.pass();
    expect(await daysOf("h")).toEqual([
      {
        ...{ capability_id: capOf("h"), day: dayNumber("2026-11-10") },
        ...{ price_low: 10_000n, price_high: 30_000n, price_last: 20_000n, terms_ms_median: 200, terms_ms_p95: 300 },
        ...{ paid_ms_median: 800, paid_ms_p95: 800, probes: 5, answered: 4, paid: 2, delivered: 1 },
      },
      {
        ...{ capability_id: capOf("h"), day: dayNumber("2026-11-12") },
        ...{ price_low: 1n, price_high: 1n, price_last: 1n, terms_ms_median: 120.5, terms_ms_p95: 120.5 },
        ...{ paid_ms_median: null, paid_ms_p95: null, probes: 1, answered: 1, paid: 0, delivered: 0 },
      },
    ]);
  });

  test("ninety days, today included, and what a correction withdraws is gone", async () => {
    const wrong = handshake("o", at("01:00:00"), { price: "5.000000" });
    await world.append(listing("o", at("00:00:00")), handshake("o", at("02:00:00")), wrong);
    await world.append(handshake("o", at("01:00:00", "2026-08-18")), handshake("o", at("23:00:00", "2026-08-17")));
    await world.ingest.pass();
    expect((await daysOf("o")).map(({ day, price_high }) => [day, price_high])).toEqual([
      [dayNumber("2026-08-18"), 20_000n],
      [dayNumber("2026-11-10"), 5_000_000n],
    ]);
    await world.append(correction("o", at("03:00:00"), { record_id: wrong.eventId }));
    await world.ingest.pass();
    expect((await daysOf("o")).at(-1)).toMatchObject({ price_high: 20_000n, probes: 1 });
  });

  test("only buckets with news since the positions of the last files; all of them for another lake", async () => {
    const before = await world.ingest.positions();
    const every = await changedBuckets(world.lake, null, before);
    expect(every).toEqual([...new Set(["h", "o"].map((name) => bucketOf(capOf(name))))].sort((a, b) => a - b));
    expect(await changedBuckets(world.lake, before, before)).toEqual([]);
    await world.append(handshake("o", at("11:00:00")));
    await world.ingest.pass();
    const now = await world.ingest.positions();
    expect(await changedBuckets(world.lake, before, now)).toEqual([bucketOf(capOf("o"))]);
    const ahead = { ...now, "observations.free": { "0": 1_000_000, "1": 1_000_000 } };
    expect(await changedBuckets(world.lake, ahead, now)).toEqual(every);
    expect([...(await collect([bucketOf(capOf("o"))])).keys()]).toEqual([bucketOf(capOf("o"))]);
    expect([...(await collect([])).keys()]).toEqual([]);
  });

  test("the bucket of the query is the bucket of the record", async () => {
    const names = Array.from({ length: 40 }, (_, i) => `b${i}`);
    await world.append(...names.flatMap((name) => [listing(name, at("00:00:00")), handshake(name, at("10:00:00"))]));
    await world.ingest.pass();
    for (const [bucket, rows] of await collect())
      for (const row of rows) expect(bucketOf(row.capability_id)).toBe(bucket);
  });
});

describe("a history file", () => {
  const count = fc.nat(1_000_000);
  const money = fc.option(fc.bigInt(0n, 10n ** 18n));
  const ms = fc.option(fc.nat(120_000));
  const row = fc.record({
    ...{ capability_id: fc.constantFrom("a", "b", "c"), day: fc.nat(30_000), price_low: money, price_high: money },
    ...{ price_last: money, terms_ms_median: ms, terms_ms_p95: ms, paid_ms_median: ms, paid_ms_p95: ms },
    ...{ probes: count, answered: count, paid: count, delivered: count },
  });

  test("gives back what went in, of each endpoint, and nothing of one that it does not know", () => {
    fc.assert(
      fc.property(fc.array(row, { maxLength: 30 }), (rows) => {
        const sorted = rows.toSorted((x, y) =>
          x.capability_id < y.capability_id ? -1 : x.capability_id > y.capability_id ? 1 : x.day - y.day,
        );
        const file = new HistoryFile(encodeHistory(sorted));
        for (const cap of ["", "a", "aa", "b", "c", "d"]) {
          expect(file.daysOf(cap)).toEqual(sorted.filter((one) => one.capability_id === cap));
        }
      }),
      { numRuns: 60 },
    );
  });

  test.each([
    ["no Arrow", Buffer.from("{}")],
    ["nothing", new Uint8Array()],
    ["a torn file", encodeHistory([]).subarray(0, 300)],
  ])("%s is refused", (_what, bytes) => {
    expect(() => new HistoryFile(bytes)).toThrow(/no Arrow file|no column/);
  });
});
