import { afterAll, beforeAll, expect, test } from "vitest";
import { budgetLines } from "../../../commands/budget.ts";
import type { Caps } from "../../../pipelines/1-observe/plan/spend.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import {
  type BudgetReport,
  createBudgetReport,
  deriveDayReport,
  readStoredReport,
  storeReport,
} from "../../../pipelines/budget/report.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import { dayStart } from "../../../pipelines/record/time.ts";
import { planDay } from "../../helpers/plan-day.ts";
import {
  at,
  capOf,
  followup,
  handshake,
  intent,
  later,
  listing,
  NOTHING,
  PAY_TO,
  result,
  settlement,
} from "../2-ingest/records.ts";
import { openTestWorld, type World } from "../2-ingest/world.ts";

const DAY = "2026-11-12";
const CAPS: Caps = {
  ...{ perCall: 50_000n, perHostDay: 2_000_000n, perDomainDay: 3_000_000n, perPayeeDay: 4_000_000n },
  ...{ perDay: 200_000n, total: 1_000_000n, newShare: 200_000n },
};

const noMoney = { signed: "0.000000", settled: "0.000000", lost: "0.000000", refunded: "0.000000" };

let world: World;
let report: BudgetReport;
beforeAll(async () => {
  world = await openTestWorld();
  const quote = (price: string) => ({ price });
  await world.append(
    ...["cheap", "dear", "full", "free", "late"].map((name) => listing(name, at("00:00:00", "2026-11-11"))),
    handshake("cheap", at("01:00:00", "2026-11-11"), quote("0.010000")),
    handshake("dear", at("01:00:00", "2026-11-11"), quote("0.060000")),
    handshake("full", at("01:00:00", "2026-11-11"), quote("0.049000")),
    handshake("free", at("01:00:00", "2026-11-11"), { price: null, state: "free", status: 200, terms: null }),
  );
  // One that settled, one that nobody watched, one that was paid back: on the day; one on the day before.
  const calls = ["02:00:00", "08:00:00", "14:00:00"].map((time) => intent("cheap", at(time, DAY)));
  const before = intent("cheap", at("20:00:00", "2026-11-11"));
  const [settled, lost, refunded] = calls as [(typeof calls)[0], (typeof calls)[0], (typeof calls)[0]];
  await world.append(...calls, before);
  await world.append(
    result("cheap", settled.eventId, at("02:00:01", DAY)),
    settlement("cheap", settled.eventId, at("02:00:02", DAY)),
    result("cheap", lost.eventId, at("08:00:01", DAY), { watched: false, fault: "ours", delivered: false }),
    result("cheap", refunded.eventId, at("14:00:01", DAY), { delivered: false, delivery: null, response_sha256: null }),
    settlement("cheap", refunded.eventId, at("14:00:02", DAY)),
    followup("cheap", refunded.eventId, at("14:01:00", DAY), {
      kind: "shown_again",
      shown_again: { ...NOTHING, watched: true },
    }),
    followup("cheap", refunded.eventId, later(at("14:00:02", DAY), 60_000), {
      kind: "refund",
      refund: { tx: "0xback", amount_atomic: "20000" },
    }),
  );
  await world.ingest.pass();
  const memory = createMemory(world.lake);
  const known = (await memory.listed()).filter((one) => one.cap !== capOf("late"));
  const plan = planDay({ day: DAY, salt: Buffer.alloc(32, 1), listed: known, caps: CAPS, now: dayStart(DAY) });
  await world.store.create(`plans/${DAY}.json`, Buffer.from(JSON.stringify(plan)));
  const parts = { lake: world.lake, memory, privateStore: world.store, caps: CAPS, published: new PublishedFold() };
  report = await createBudgetReport({ ...parts, now: new Date(at("23:00:00", DAY)) }, DAY, 10);
});
afterAll(() => world.close());

test("coverage: who is, who is not, and why", () => {
  expect(report.coverage).toEqual({
    ...{ planned: true, listed: 5, covered: 1, reserved: "0.080000" },
    not_covered: { per_call: 1, per_day: 1, nothing_to_pay: 1, not_planned: 1 },
  });
  const why = Object.fromEntries(report.endpoints.map((one) => [one.host.split(".")[0], [one.covered, one.why]]));
  expect(why).toEqual({
    cheap: [true, null],
    dear: [false, "per_call"],
    full: [false, "per_day"],
    free: [false, "nothing_to_pay"],
    late: [null, null],
  });
});

test("spend against the caps: what left, what settled, what we lost ourselves, what came back", () => {
  const { day, by_host, by_domain, by_payee, by_day, ever } = report.spent;
  expect(day).toEqual({ calls: 3, signed: "0.060000", settled: "0.040000", lost: "0.020000", refunded: "0.020000" });
  expect(by_host).toEqual([{ host: "cheap.example", ...day }]);
  expect(by_domain).toEqual([{ domain: "cheap.example", ...day }]);
  expect(by_payee).toEqual([{ payee: PAY_TO, ...day }]);
  expect(by_day.map((one) => [one.day, one.signed, one.lost])).toEqual([
    [DAY, "0.060000", "0.020000"],
    ["2026-11-11", "0.020000", "0.020000"],
  ]);
  expect(ever).toBe("0.080000");
  expect(report.caps).toEqual({
    ...{ per_call: "0.050000", per_host_day: "2.000000", per_domain_day: "3.000000", per_payee_day: "4.000000" },
    ...{ per_day: "0.200000", total: "1.000000" },
  });
  expect(report.new_share).toBe("0.200000");
});

test("the next letter of what can be paid has its price, and the cheapest covered one comes first", () => {
  const [first, ...rest] = report.endpoints;
  expect(first).toMatchObject({ host: "cheap.example", letter: "UNRATED", price: "0.020000" });
  const next = first!.next!;
  // A refunded theft is a 0: more than the thirty blocks of a clean start, and no fewer.
  expect(next.gate_calls).toBeGreaterThanOrEqual(28);
  expect(next.cost).toBe(`0.${String(next.calls * 20_000).padStart(6, "0")}`);
  expect(rest.find((one) => one.host === "free.example")?.next).toBeNull();
});

test("the table is for people: bounded, with the reasons in words and where to look next", () => {
  const text = budgetLines(report, 2).join("\n");
  expect(text).toContain("covered   1 of 5 endpoints, 0.080000 set aside");
  expect(text).toContain(
    "0.060000 of 0.200000 on the day (3 calls; 0.040000 settled, 0.020000 lost by our own fault, 0.020000 refunded)",
  );
  expect(text).toContain("at most 0.050000 a call; on a day 2.000000 a host, 3.000000 a domain, 4.000000 a payee");
  expect(text).toContain("0.200000 of a day's caps is kept for endpoints never paid");
  expect(text).toContain(`0.060000 to cheap.example\n          0.060000 to the payee ${PAY_TO}`);
  expect(text).toContain("1 more expensive than the cap per call");
  expect(text).toContain("and 3 more: --all, or --json");
  expect(text).toMatch(
    /covered +UNRATED +0\.020000 +[BC] +\d+ +0\.\d+ +2026-11-\d\d +GET https:\/\/cheap\.example\/paid/,
  );
  expect(budgetLines(report, 10).join("\n")).not.toContain("more: --all");
});

test("a report is kept for whoever asks beside a running service, the newest one of this version", async () => {
  expect(await readStoredReport(world.store)).toBeNull();
  await storeReport(world.store, { ...report, v: 1 as 2 });
  expect(await readStoredReport(world.store)).toBeNull();
  await storeReport(world.store, { ...report, day: "2026-11-11" });
  await storeReport(world.store, report);
  expect(await readStoredReport(world.store)).toEqual({ report, storedAt: expect.any(Date) });
});

test("an earlier day comes from the kept report and that day's plan, as it would be computed over the lake", async () => {
  const memory = createMemory(world.lake);
  const day = "2026-11-11";
  const caps = { ...CAPS, perCall: 20_000n };
  const plan = planDay({ day, salt: Buffer.alloc(32, 1), listed: await memory.listed(), caps, now: dayStart(day) });
  await world.store.create(`plans/${day}.json`, Buffer.from(JSON.stringify(plan)));
  const parts = { lake: world.lake, memory, privateStore: world.store, caps: CAPS, published: new PublishedFold() };
  const computed = await createBudgetReport({ ...parts, now: new Date(at("23:00:00", DAY)) }, day, 10);
  const turned = (await deriveDayReport(day, report, world.store))!;
  expect(turned.coverage).toEqual(computed.coverage);
  expect(turned.coverage).not.toEqual(report.coverage);
  expect(turned.spent.day).toEqual(computed.spent.day);
  expect(turned.spent.day.calls).toBe(1);
  // The kept report priced no next letter of what its own day's plan did not hold.
  const next = ({ host, next }: BudgetReport["endpoints"][number]) => (host === "late.example" ? null : next);
  expect(turned.endpoints.map((one) => [one.host, one.covered, one.why, one.price, next(one)])).toEqual(
    computed.endpoints.map((one) => [one.host, one.covered, one.why, one.price, next(one)]),
  );
  expect(next(turned.endpoints[0]!)).not.toBeNull();
  expect(turned).toMatchObject({ day, at: report.at, spent: { by_host: null, by_domain: null, by_payee: null } });
  expect(budgetLines(turned, 10).join("\n")).toContain("who was paid on this day is shown once the service is stopped");
});

test("a day without a payment or a plan has none, and one that the report does not sum up is not answered", async () => {
  const quiet = (await deriveDayReport("2026-10-14", report, world.store))!;
  expect(quiet.spent.day).toEqual({ calls: 0, ...noMoney });
  expect(quiet.coverage).toMatchObject({ planned: false, covered: 0, not_covered: { not_planned: 5 } });
  expect(await deriveDayReport("2026-10-13", report, world.store)).toBeNull();
  expect(await deriveDayReport("2026-11-13", report, world.store)).toBeNull();
});

test("a day without a plan says so", async () => {
  const parts = { lake: world.lake, memory: createMemory(world.lake), privateStore: world.store, caps: CAPS };
  const empty = await createBudgetReport(
    { ...parts, published: new PublishedFold(), now: new Date(at("23:00:00", DAY)) },
    "2026-10-01",
    0,
  );
  expect(empty.coverage).toMatchObject({ planned: false, covered: 0, not_covered: { not_planned: 5 } });
  expect(empty.spent.day.calls).toBe(0);
  expect(budgetLines(empty, 40).join("\n")).toContain("there is no plan of this day");
});

test("a price near the largest that the record holds: a stranger's 402 does not stop the report", async () => {
  const other = await openTestWorld();
  try {
    await other.append(
      listing("priceless", at("00:00:00", "2026-11-11")),
      handshake("priceless", at("01:00:00", "2026-11-11"), { price: "999999999999.999999" }),
    );
    await other.ingest.pass();
    const memory = createMemory(other.lake);
    const plan = planDay({
      ...{ day: DAY, salt: Buffer.alloc(32, 1), listed: await memory.listed(), caps: CAPS, now: dayStart(DAY) },
    });
    await other.store.create(`plans/${DAY}.json`, Buffer.from(JSON.stringify(plan)));
    const parts = { lake: other.lake, memory, privateStore: other.store, caps: CAPS, published: new PublishedFold() };
    const made = await createBudgetReport({ ...parts, now: new Date(at("23:00:00", DAY)) }, DAY, 10);
    const [line] = made.endpoints;
    const cost = `${BigInt(line!.next!.calls) * 999_999_999_999_999_999n}`;
    const expected = { price: "999999999999.999999", next: { cost: `${cost.slice(0, -6)}.${cost.slice(-6)}` } };
    expect(line).toMatchObject({ why: "per_call", ...expected });
    expect((await deriveDayReport(DAY, made, other.store))!.endpoints[0]).toMatchObject(expected);
    expect(budgetLines(made, 10).join("\n")).toContain("priceless");
  } finally {
    await other.close();
  }
});
