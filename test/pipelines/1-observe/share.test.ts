import { describe, expect, test } from "vitest";
import { reservedMicro } from "../../../pipelines/1-observe/plan/plan.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import { parseMoney } from "../../../pipelines/record/money.ts";
import { END, START } from "./day.ts";
import { ALL, AT_ONCE, listed, ORIGINS, observeAll, planned, prove, type SharedWorld, until } from "./shared-world.ts";
import { CAPS, entry, honest, item, paying } from "./world.ts";

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
    expect(spentOf(world)).toBeLessThanOrEqual(plan.lines.reduce((sum, line) => sum + reservedMicro(line), 0n));
  });

  test("what a seller asks beyond the plan is paid by nobody, so no cap is passed", async () => {
    // The caps are what the plan sets aside, to the last micro-unit.
    const price = 10_000n;
    const perDay = price * 4n * BigInt(ORIGINS.length);
    const caps = { ...CAPS, perHostDay: price * 4n, perDomainDay: price * 4n, perDay, total: perDay };
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
    await next.hosts.waitUntilCaughtUp();
    const deadlines = world.log.bodies("paid.intent").map(({ deadline }) => Date.parse(deadline));
    next.clock.set(new Date(Math.max(...deadlines) + 299_000));
    await next.observer.followUpCalls();
    const booked = () => world.log.bodies("paid.result");
    expect(booked().length).toBeLessThan(AT_ONCE);
    next.clock.set(new Date(Math.max(...deadlines) + 300_000));
    await next.observer.followUpCalls();
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
