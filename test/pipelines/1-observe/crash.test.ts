import { describe, expect, test } from "vitest";
import type { Egress } from "../../../infra/egress/egress.ts";
import type { Log } from "../../../infra/log/log.ts";
import type { Rail, Wallets } from "../../../infra/rails/rails.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { createObserver } from "../../../pipelines/1-observe/observer.ts";
import { STEADY_LOOP } from "../../helpers/steady-loop.ts";
import { END, firstPaidOnly, listAndPlan, START } from "./day.ts";
import { mpp402, mppSeller, toolSeller, unpaidTool } from "./other-protocols.ts";
import {
  answer,
  CAPS,
  type FakeWorld,
  fakeWorld,
  type Handler,
  honest,
  paying,
  sumOf,
  terms402,
  timeout,
} from "./world.ts";

/**
 * A process that is killed at its n-th step: each call to the outside has a seam before it and one after it. After the
 * kill nothing of it runs any more, as after kill -9: whatever it awaits never comes.
 */
function killable(world: FakeWorld, killAt: number) {
  let step = 0;
  let died: () => void = () => {};
  const dead = new Promise<"killed">((resolve) => {
    died = () => resolve("killed");
  });
  const never = new Promise<never>(() => {});
  const seams: string[] = [];
  const seam = async (name: string): Promise<void> => {
    if (step >= killAt) await never;
    seams.push(name);
    if (++step < killAt) return;
    died();
    await never;
  };
  const around = <A extends unknown[], R>(name: string, call: (...args: A) => Promise<R>) => {
    return async (...args: A): Promise<R> => {
      await seam(`before ${name}`);
      const result = await call(...args);
      await seam(`after ${name}`);
      return result;
    };
  };
  const { log, egress, rail, wallets } = world;
  const killableLog = { id: log.id, partitions: log.partitions, append: around("append", log.append.bind(log)) };
  const killableRail: Partial<Rail> = {
    network: rail.network,
    asset: rail.asset,
    canPay: rail.canPay.bind(rail),
    head: around("head", rail.head.bind(rail)),
    balance: around("balance", rail.balance.bind(rail)),
    sign: around("sign", rail.sign.bind(rail)),
    settlementOf: around("settlementOf", rail.settlementOf.bind(rail)),
  };
  const killableWallets: Wallets = {
    known: around("wallet", wallets.known.bind(wallets)),
    blind: around("wallet", wallets.blind.bind(wallets)),
  };
  const killableEgress: Partial<Egress> = {
    validate: egress.validate,
    fetch: around("fetch", egress.fetch.bind(egress)),
  };
  const observer = createObserver({
    loop: STEADY_LOOP,
    log: killableLog as Log,
    egress: killableEgress as Egress,
    rail: killableRail as Rail,
    wallets: killableWallets,
    clock: world.clock,
    memory: world.memory,
    logger: createLogger("silent"),
    metrics: createMetrics(),
    onAck: (ids) => world.acks.push(...ids),
    config: {
      producer: "killable",
      controlUrls: [],
      caps: CAPS,
      spentBefore: 0n,
      hostsAtOnce: 1,
      secret: Buffer.alloc(32, 7),
      settlePollMs: [],
    },
  });
  return { observer, dead, seams };
}

/** Settles two seconds before it would answer, and never answers. */
const sellers: [string, (world: FakeWorld) => Handler][] = [
  ["honest", (world) => honest(world.rail)],
  [
    "thief",
    (world) =>
      paying(world.rail, (asked) => {
        world.rail.settle(asked.payment!);
        return answer(200, "");
      }),
  ],
  [
    "silent thief",
    (world) =>
      paying(world.rail, (asked) => {
        world.rail.settle(asked.payment!);
        return timeout();
      }),
  ],
  ["refuser", (world) => paying(world.rail, () => terms402())],
  [
    "honest, over mpp",
    (world) =>
      mppSeller((asked) => {
        world.rail.settle(asked.payment!);
        return answer(200, { sum: sumOf(asked.url) });
      }),
  ],
  [
    "thief, over mpp",
    (world) =>
      mppSeller((asked) => {
        world.rail.settle(asked.payment!);
        return timeout();
      }),
  ],
  ["refuser, over mpp", () => mppSeller(() => mpp402())],
  ["honest, a tool", (world) => toolSeller(world.rail)],
  [
    "thief, a tool",
    (world) =>
      toolSeller(world.rail, {
        paid: (asked) => {
          world.rail.settle(asked.payment!);
          return timeout();
        },
      }),
  ],
  ["refuser, a tool", (world) => toolSeller(world.rail, { paid: unpaidTool })],
];

/** Kills one process at `killAt`, lets the next one do its work, and proves the record. Returns the seams it passed. */
async function killedAt(killAt: number, seller: (world: FakeWorld) => Handler) {
  const world = fakeWorld();
  const plan = firstPaidOnly(await listAndPlan(world, seller(world)));
  const first = killable(world, killAt);
  const ended = await Promise.race([
    first.dead,
    first.observer.observeSpan(plan, START, END).then(() => "ended" as const),
  ]);
  const watchedBefore = world.log.bodies("paid.result").length;
  const second = world.restart();
  await second.recover();
  await second.recover();
  await second.observeSpan(plan, START, END);
  await second.followUpCalls();
  prove(world);
  const results = world.log.bodies("paid.result");
  return { ended, seams: first.seams, world, results, watchedBefore };
}

function prove(world: FakeWorld): void {
  const { log, egress, rail } = world;
  const intents = log.envelopes().filter((one) => one.type === "paid.intent");
  const results = log.bodies("paid.result");
  // One slot, one intent, one result, and at most one payment that ever left for it.
  expect(intents).toHaveLength(1);
  expect(results).toHaveLength(1);
  const payments = new Set(egress.paid().map((one) => one.payment));
  expect(payments.size).toBeLessThanOrEqual(1);
  const intent = log.bodies("paid.intent")[0]!;
  // What left is what the intent in the record says, so the loss can be found on the chain.
  for (const payment of payments) expect(payment).toBe(intent.signed_bytes);
  expect(log.bodies("settlement").map((one) => one.nonce)).toEqual([...rail.settled.keys()]);
  for (const result of results) expect(result.watched || result.fault === "ours").toBe(true);
  // Nobody is accused by a process that did not see the end.
  const [result] = results;
  const shown = log.bodies("paid.followup").filter((one) => one.kind === "shown_again");
  if (!result!.watched) expect(shown).toEqual([]);
  const ids = new Set(log.envelopes().map((one) => one.event_id));
  for (const id of world.acks) expect(ids.has(id)).toBe(true);
}

describe.each(sellers)("killed between any two steps of a paid call: %s", (name, seller) => {
  test("one intent, one payment, one result; never an accusation by who did not watch", async () => {
    let killAt = 1;
    const fates = new Set<string>();
    for (; ; killAt++) {
      const { ended, results, watchedBefore } = await killedAt(killAt, seller);
      fates.add(`${watchedBefore ? "watched before the kill" : "open at the kill"}: ${results[0]!.fault}`);
      if (ended === "ended") break;
      expect(killAt).toBeLessThan(100);
    }
    // first leg, wallet, balance, sign, intent, payment, chain, result: two seams each, and the showings of a thief.
    expect(killAt).toBeGreaterThan(16);
    expect([...fates]).toContain("open at the kill: ours");
    expect([...fates]).toContain("watched before the kill: null");
    expect(name.includes("thief") ? killAt > 20 : true).toBe(true);
  });
});

describe("a log that refuses", () => {
  test.each([
    [0, "nothing of it is stored"],
    [1, "it is stored all the same"],
  ])("the intent (%i kept: %s): no byte leaves, and the slot is not paid again", async (keep) => {
    const world = fakeWorld();
    const plan = firstPaidOnly(await listAndPlan(world, honest(world.rail)));
    const type = (value: Uint8Array): string => JSON.parse(Buffer.from(value).toString()).type;
    world.log.refuse = (records) => (type(records[0]!.value) === "paid.intent" ? { keep } : null);
    await expect(world.observer.observeSpan(plan, START, END)).rejects.toThrow(/the disk is full/);
    expect(world.egress.paid()).toEqual([]);
    world.log.refuse = null;
    // The same process does not try again: its first intent may stand, with another nonce.
    await world.observer.observeSpan(plan, START, END);
    expect(world.egress.paid()).toEqual([]);
    // The next one asks the record: an intent that stands is a loss of ours, one that does not is a call still to be made.
    const next = world.restart();
    await next.recover();
    await next.observeSpan(plan, START, END);
    prove(world);
    expect(world.egress.paid()).toHaveLength(keep === 1 ? 0 : 1);
    expect(world.log.bodies("paid.result")).toMatchObject([
      keep === 1 ? { fault: "ours", watched: false } : { fault: null },
    ]);
  });

  test("the result: the payment left, the span ends there, and the next process books it as ours", async () => {
    const world = fakeWorld();
    const plan = await listAndPlan(world, honest(world.rail));
    const type = (value: Uint8Array): string => JSON.parse(Buffer.from(value).toString()).type;
    world.log.refuse = (records) => (type(records[0]!.value) === "paid.result" ? { keep: 0 } : null);
    await expect(world.observer.observeSpan(plan, START, END)).rejects.toThrow(/did not confirm/);
    expect(world.egress.paid()).toHaveLength(1);
    world.log.refuse = null;
    expect(await world.restart().recover()).toEqual({ lost: 1 });
    prove(world);
    expect(world.log.bodies("paid.result")).toMatchObject([{ watched: false, fault: "ours", ended: "unknown" }]);
  });

  test("half a batch and a copy: readers see each record once", async () => {
    const world = fakeWorld();
    const plan = firstPaidOnly(await listAndPlan(world, honest(world.rail)));
    let refusals = 2;
    world.log.refuse = (records) => (refusals-- > 0 ? { keep: Math.ceil(records.length / 2) } : null);
    await world.observer.observeSpan(plan, START, END);
    expect(world.log.records.length).toBeGreaterThan(world.log.envelopes().length);
    prove(world);
  });

  test("a chain that is down at the start: the loss is booked by a later look", async () => {
    const world = fakeWorld();
    const plan = firstPaidOnly(await listAndPlan(world, honest(world.rail)));
    const { observer, dead } = killable(world, 14);
    await Promise.race([dead, observer.observeSpan(plan, START, END)]);
    expect(world.rail.settled.size).toBe(1);
    expect(world.log.bodies("paid.result")).toEqual([]);
    world.rail.down = true;
    const next = world.restart();
    expect(await next.recover()).toEqual({ lost: 1 });
    expect(world.log.bodies("settlement")).toEqual([]);
    world.rail.down = false;
    expect(await next.followUpCalls()).toMatchObject({ settled: 1 });
    prove(world);
  });
});

describe("our own fault after the intent", () => {
  test("code of ours that throws is written down as ours at once", async () => {
    const world = fakeWorld();
    const plan = firstPaidOnly(
      await listAndPlan(
        world,
        paying(world.rail, (asked) => {
          world.rail.settle(asked.payment!);
          throw new Error("a bug of egress");
        }),
      ),
    );
    expect(await world.observer.observeSpan(plan, START, END)).toMatchObject({ paid: 1, broken: 0 });
    expect(world.log.bodies("paid.result")).toMatchObject([
      { watched: false, fault: "ours", says: expect.stringMatching(/a bug of egress/) },
    ]);
    await world.observer.followUpCalls();
    prove(world);
  });
});
