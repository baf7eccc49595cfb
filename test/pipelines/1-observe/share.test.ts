import { describe, expect, test } from "vitest";
import { planDay, reservedFor } from "../../../pipelines/1-observe/plan.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import { parseMoney } from "../../../pipelines/record/money.ts";
import type { DayPlan } from "../../../pipelines/record/plan.ts";
import { END, START, salt } from "./day.ts";
import { AT_ONCE, type Process, SharedWorld } from "./shared-world.ts";
import { CAPS, DAY, entry, honest, item, LogMemory, paying } from "./world.ts";

const ALL = [0, 1, 2, 3];
/** Sellers in every partition of the hosts. */
const ORIGINS = Array.from({ length: 12 }, (_, i) => `https://s${i}.example`);

/** A world with twelve sellers that are listed, and the day's plan for them. */
async function listed(caps = CAPS, handler = (world: SharedWorld) => honest(world.rail)) {
  const world = new SharedWorld(caps);
  for (const origin of ORIGINS) world.egress.sellers.set(origin, handler(world));
  const first = await world.process(ALL);
  for (const origin of ORIGINS) await first.observer.intakeSeller(origin);
  await first.hosts.close();
  const plan = planDay({ day: DAY, salt, listed: await new LogMemory(world.log).listed(), caps, now: START });
  expect(plan.lines.filter(({ covered }) => covered)).toHaveLength(ORIGINS.length);
  world.atOnce = 0;
  return { world, plan };
}

const planned = (plan: DayPlan) =>
  plan.lines.flatMap(({ calls }) => calls.filter(({ kind }) => kind === "paid")).length;
const until = async (met: () => boolean) => {
  for (let n = 0; n < 20_000 && !met(); n++) await new Promise((resolve) => setTimeout(resolve, 1));
  expect(met()).toBe(true);
};

/** All observe the plan until every paid call of it has a result in the log; `meanwhile` runs beside. */
async function observeAll(world: SharedWorld, plan: DayPlan, processes: Process[], meanwhile: () => Promise<void>) {
  let end: () => void = () => undefined;
  const over = new Promise<void>((resolve) => {
    end = resolve;
  });
  const spans = processes.map(({ observer }) => observer.observeShare(plan, START, END, over));
  const moved = meanwhile();
  await until(() => new Set(world.log.bodies("paid.result").map(({ intent }) => intent)).size === planned(plan));
  await moved;
  end();
  return Promise.all(spans);
}

/** Every slot of the plan was paid once on the wire, with what the first intent in the log signed. */
function prove(world: SharedWorld, plan: DayPlan): void {
  const wire = new Map<string, Set<string>>();
  for (const { url, payment } of world.egress.paid()) {
    const host = new URL(url).host;
    wire.set(host, (wire.get(host) ?? new Set()).add(payment!));
  }
  const intents = world.log.envelopes().filter(({ type }) => type === "paid.intent");
  expect(intents).toHaveLength(planned(plan));
  const signed = new Set(world.log.bodies("paid.intent").map((intent) => intent.signed_bytes));
  for (const line of plan.lines) {
    const calls = line.calls.filter(({ kind }) => kind === "paid").length;
    expect(wire.get(line.host)?.size, line.host).toBe(calls);
    for (const payment of wire.get(line.host)!) expect(signed.has(payment), line.host).toBe(true);
  }
  // What was settled is what was sent, each once, and nothing is booked twice.
  expect(world.rail.settled.size).toBe(planned(plan));
  expect(world.log.bodies("paid.result").every(({ watched, fault }) => watched && fault === null)).toBe(true);
}

const spentOf = (world: SharedWorld): bigint =>
  world.log.bodies("paid.intent").reduce((sum, { quote }) => sum + parseMoney(quote.price), 0n);

describe("several observers", () => {
  test("the sellers of this test lie in every partition", () => {
    expect(new Set(ORIGINS.map((origin) => partitionOf(new URL(origin).host, 4))).size).toBe(4);
  });

  test("each calls its own hosts, and together they make the plan once", async () => {
    const { world, plan } = await listed();
    const processes = [await world.process([0, 3]), await world.process([1]), await world.process([2])];
    const reports = await observeAll(world, plan, processes, async () => undefined);
    prove(world, plan);
    for (const { paid, missed, broken } of reports) {
      expect(paid).toBeGreaterThan(0);
      expect([missed, broken]).toEqual([0, 0]);
    }
    expect(world.atOnce).toBe(1);
  });

  test.each([1, 2, 3, 4, 5])(
    "partitions handed over in mid-span: no slot twice, no host at once (%i)",
    async (seed) => {
      const { world, plan } = await listed();
      const [one, two] = [await world.process(ALL), await world.process()];
      await observeAll(world, plan, [one, two], async () => {
        // A walk through the hand-overs that is another one for each seed.
        let [from, to] = [one, two];
        for (let n = 0; n < 6; n++) {
          const after = world.egress.paid().length + ((seed * 7 + n * 3) % 5) + 1;
          await until(() => world.egress.paid().length >= Math.min(after, planned(plan)));
          const moved = from.ownership.held().filter((partition) => (partition + n + seed) % 2 === 0);
          await from.ownership.change([], moved);
          await to.ownership.change(moved, []);
          [from, to] = [to, from];
        }
      });
      prove(world, plan);
      expect(world.atOnce).toBe(1);
    },
  );

  test("two that both believe to own everything: the first intent pays, the other leaves nowhere", async () => {
    const { world, plan } = await listed();
    const processes = [await world.process(ALL), await world.process(ALL)];
    const reports = await observeAll(world, plan, processes, async () => undefined);
    prove(world, plan);
    expect(reports[0]!.paid + reports[1]!.paid).toBe(planned(plan));
    // They did meet: slots were signed for twice.
    const copies = world.log.records.length - world.log.envelopes().length;
    expect(copies).toBeGreaterThan(0);
    expect(spentOf(world)).toBeLessThanOrEqual(plan.lines.reduce((sum, line) => sum + reservedFor(line), 0n));
  });

  test("what a seller asks beyond the plan is paid by nobody, so no cap is passed", async () => {
    // The caps are what the plan sets aside, to the last micro-unit.
    const price = 10_000n;
    const perDay = price * 4n * BigInt(ORIGINS.length);
    const caps = { perCall: CAPS.perCall, perHostDay: price * 4n, perDay, total: perDay };
    let asks = "10000";
    const { world, plan } = await listed(
      caps,
      (made) => (asked, n) => honest(made.rail, { accepts: [entry({ amount: asks })] })(asked, n),
    );
    const processes = [await world.process(ALL), await world.process(ALL)];
    let end: () => void = () => undefined;
    const over = new Promise<void>((resolve) => {
      end = resolve;
    });
    const spans = processes.map(({ observer }) => observer.observeShare(plan, START, END, over));
    await until(() => world.log.bodies("paid.intent").length >= 5);
    asks = "30000";
    end();
    await Promise.all(spans);
    expect(spentOf(world)).toBeLessThanOrEqual(perDay);
    const said = world.log.bodies("handshake").flatMap(({ says }) => says ?? []);
    expect(said.some((text) => /more than the day's plan set aside/.test(text))).toBe(true);
  });

  test("who dies in a call: its hosts' next owner books the call as ours, once nobody can be watching it", async () => {
    const { world, plan } = await listed();
    const [dead, next] = [await world.process(ALL), await world.process()];
    const never = new Promise<never>(() => undefined);
    for (const origin of ORIGINS) {
      world.egress.sellers.set(
        origin,
        paying(world.rail, (asked) => {
          world.rail.settle(asked.payment!);
          return never;
        }),
      );
    }
    void dead.observer.observeShare(plan, START, END, never);
    await until(() => world.egress.paid().length === AT_ONCE);
    // Not heard any more: the group hands out what it had, and nothing of it settles.
    await next.ownership.change(ALL, []);
    await next.hosts.settled();
    const deadlines = world.log.bodies("paid.intent").map(({ deadline }) => Date.parse(deadline));
    next.clock.set(new Date(Math.max(...deadlines) + 299_000));
    await next.observer.awaitSettlements();
    const booked = () => world.log.bodies("paid.result");
    expect(booked().length).toBeLessThan(AT_ONCE);
    next.clock.set(new Date(Math.max(...deadlines) + 300_000));
    await next.observer.awaitSettlements();
    expect(booked()).toHaveLength(AT_ONCE);
    for (const result of booked()) expect(result).toMatchObject({ watched: false, fault: "ours" });
    // And no slot of these is called again.
    const before = world.egress.paid().length;
    for (const origin of ORIGINS) world.egress.sellers.set(origin, honest(world.rail, { item: item() }));
    const report = await next.observer.observeShare(plan, START, END, Promise.resolve());
    expect(world.egress.paid().length - before).toBe(planned(plan) - AT_ONCE);
    expect(report.paid).toBe(planned(plan) - AT_ONCE);
  });
});
