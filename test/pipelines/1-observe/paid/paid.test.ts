import { describe, expect, test } from "vitest";
import { FixedClock, PacedClock } from "../../../../infra/clock.ts";
import type { EgressResult } from "../../../../infra/egress/egress.ts";
import { createMetrics } from "../../../../infra/telemetry.ts";
import type { Caps } from "../../../../pipelines/1-observe/plan/spend.ts";
import { blockOf } from "../../../../pipelines/record/time.ts";
import { planDay } from "../../../helpers/plan-day.ts";
import { END, firstPaidOnly, listAndPlan, listing, payOnce, START, salt } from "../day.ts";
import {
  answer,
  CAPS,
  CONTROL,
  DAY,
  entry,
  FACILITATOR,
  type FakeWorld,
  fakeWorld,
  type Handler,
  honest,
  OUTPUT_SCHEMA,
  paying,
  terms402,
  timeout,
  transport,
} from "../world.ts";

const settleAnd =
  (world: FakeWorld, result: () => EgressResult): Handler =>
  (asked) => {
    world.rail.settle(asked.payment!);
    return result();
  };
const only = (world: FakeWorld) => {
  const { log } = world;
  const [result] = log.bodies("paid.result");
  return {
    intent: log.bodies("paid.intent")[0]!,
    result: result!,
    settlement: log.bodies("settlement")[0],
    shown: log.bodies("paid.followup"),
  };
};

describe("a paid call", () => {
  test("of an honest seller: intent before the payment, result and settlement after it, all as they were", async () => {
    const world = fakeWorld();
    const order: string[] = [];
    world.egress.before = (asked) => order.push(asked.payment ? "payment left" : "asked");
    const append = world.log.append.bind(world.log);
    world.log.append = async (records) => {
      const done = await append(records);
      order.push(
        ...world.log
          .envelopes()
          .slice(-records.length)
          .map((one) => one.type),
      );
      return done;
    };
    const report = await payOnce(world, honest(world.rail));
    expect(report).toEqual({ probes: 0, paid: 1, unpaid: 0, missed: 0, broken: 0, stopped: false });
    expect(order.slice(-5)).toEqual(["asked", "paid.intent", "payment left", "paid.result", "settlement"]);
    const { intent, result, settlement } = only(world);
    const url = new URL(intent.url);
    const sum = Number(url.searchParams.get("a")) + Number(url.searchParams.get("b"));
    expect(sum).toBeGreaterThan(3);
    expect(intent).toMatchObject({
      input: "known_answer",
      w: 1,
      retest: false,
      attempt: 0,
      quote: { price: "0.010000", pay_to: entry().payTo },
      first_leg: { honest: true },
    });
    expect(intent.listing_record).toBe(world.log.envelopes().find((one) => one.type === "listing")?.event_id);
    expect(intent.schema_sha256).toMatch(/^[0-9a-f]{64}$/);
    expect(result).toMatchObject({
      watched: true,
      ended: "closed",
      fault: null,
      live: true,
      honest: true,
      delivered: true,
      delivery: 1,
      outcome: 1,
      schema_ok: true,
      latency_ms: 20,
      status: 200,
      control: null,
    });
    // Real time, whatever the record's clock says: it is held against a block's.
    expect(Math.abs(result!.answered_time! - Date.now() / 1000)).toBeLessThan(60);
    expect(settlement).toMatchObject({
      sender: FACILITATOR,
      amount_atomic: "10000",
      price: "0.010000",
      final: true,
      as_quoted: true,
      nonce: intent.nonce,
    });
    const envelope = world.log.envelopes().find((one) => one.type === "paid.intent")!;
    expect(blockOf(new Date(envelope.observed_at))).toBe(intent.slot.block);
    expect(world.acks).toEqual(world.log.envelopes().map((one) => one.event_id));
    const paid = world.egress.paid()[0]!;
    expect(paid).toMatchObject({ profile: "paid", deadlineMs: 60_000, payment: intent.signed_bytes });
  });

  test.each([
    [5, 30_000],
    [30, 30_000],
    [90, 90_000],
    [300, 120_000],
  ])("max timeout %i s: deadline %i ms", async (seconds, ms) => {
    const world = fakeWorld();
    await payOnce(world, honest(world.rail, { accepts: [entry({ maxTimeoutSeconds: seconds })] }));
    expect(world.egress.paid()[0]?.deadlineMs).toBe(ms);
  });

  test("no signature is valid for longer than a proof can be shown again, whatever the seller asks for", async () => {
    const world = fakeWorld();
    await payOnce(world, honest(world.rail, { accepts: [entry({ maxTimeoutSeconds: 86_400 })] }));
    const { intent } = only(world);
    expect(intent.valid_before - world.rail.time).toBe(300);
    expect(intent.quote.max_timeout_s).toBe(86_400);
  });

  test("questions are new ones each block, and cannot be told without the secret", async () => {
    const ask = async (secret: Buffer) => {
      const world = fakeWorld({ secret });
      await payOnce(world, honest(world.rail));
      return only(world).intent.url;
    };
    expect(await ask(Buffer.alloc(32, 7))).toBe(await ask(Buffer.alloc(32, 7)));
    expect(await ask(Buffer.alloc(32, 7))).not.toBe(await ask(Buffer.alloc(32, 8)));
  });
});

/** Name, answer to the payment, what the result says; the seller lists an example unless `change` takes it away. */
type Row = [string, (world: FakeWorld) => Handler, Record<string, unknown>, Record<string, unknown>?];
const made = { example: undefined, class: undefined };
const controlDown = (world: FakeWorld) => world.egress.sellers.set(CONTROL, () => transport("unreachable"));

describe("how a paid call ends", () => {
  const rows: Row[] = [
    [
      "a wrong answer",
      (w) => settleAnd(w, () => answer(200, { sum: -1 })),
      { fault: null, delivered: true, outcome: 0, control: null },
    ],
    [
      "an error page after it settled",
      (w) => settleAnd(w, () => answer(500, { error: "x" })),
      { fault: null, delivered: true, delivery: 0, outcome: 0, live: true },
    ],
    [
      "an error page, unsettled",
      () => () => answer(500, { error: "x" }),
      { fault: null, delivered: true, delivery: 0, control: { ok: true } },
    ],
    ["settle refused", () => () => terms402(), { fault: null, delivered: false, live: false, outcome: 0, status: 402 }],
    [
      "a wall is named and counts",
      () => () => answer(403, "no"),
      { fault: "blocked", wall: true, live: false, delivered: false, outcome: 0 },
    ],
    ["silence", () => timeout, { fault: null, ended: "deadline", delivered: false, latency_ms: null }],
    [
      "a closed port, nothing sent, our network up",
      () => () => transport("refused"),
      { fault: null, ended: "transport", delivered: false },
    ],
    [
      "a closed port while the control fails",
      (w) => () => {
        controlDown(w);
        return transport("refused");
      },
      { fault: "ours", ended: "transport", control: { ok: false } },
    ],
    [
      "we had no place to fetch from",
      () => () => ({ outcome: "refused", says: "our side: full", totalMs: 0, sent: false }),
      { fault: "ours", watched: false, ended: "unknown" },
    ],
    [
      "its name now leads to a private address",
      () => () => ({ outcome: "refused", reason: "address", says: "private", totalMs: 0, sent: false }),
      { fault: null, watched: true, ended: "transport" },
    ],
    [
      "a made input fails, no money moved",
      () => () => answer(400, { error: "bad q" }),
      { fault: "bad_input", delivery: 0 },
      made,
    ],
    [
      "a made input fails and the money went",
      (w) => settleAnd(w, () => answer(400, { error: "bad q" })),
      { fault: null, delivery: 0 },
      made,
    ],
    ["a made input meets a wall", () => () => answer(429, ""), { fault: "blocked" }, made],
    [
      "a made input works",
      (w) => settleAnd(w, () => answer(200, { sum: 1 })),
      { fault: null, delivered: true, delivery: 1, outcome: null },
      made,
    ],
    [
      "the chain goes down while it answers",
      (w) => (asked) => {
        w.rail.settle(asked.payment!);
        w.rail.down = true;
        return answer(200, { sum: 0 });
      },
      { fault: null, delivered: true, outcome: 0 },
    ],
    [
      "the chain goes down and nothing comes",
      (w) => () => {
        w.rail.down = true;
        return answer(500, "");
      },
      { fault: "ours", delivered: false },
    ],
  ];
  test.each(rows)("%s", async (_name, handler, want, change = {}) => {
    const world = fakeWorld();
    const report = await payOnce(world, paying(world.rail, handler(world), { item: change }));
    expect(report).toMatchObject({ paid: 1, broken: 0 });
    expect(only(world).result).toMatchObject({ watched: true, ...want });
    expect(world.log.bodies("paid.result")).toHaveLength(1);
  });

  test("a result says so when the chain could not be read, and nothing is lost: a later look books it", async () => {
    const world = fakeWorld();
    await payOnce(
      world,
      paying(world.rail, (asked) => {
        world.rail.settle(asked.payment!);
        world.rail.down = true;
        return answer(200, { sum: 0 });
      }),
    );
    expect(only(world).result.says).toMatch(/chain could not be read: the chain does not answer/);
    expect(await world.observer.followUpCalls()).toMatchObject({
      settled: 0,
      waiting: 1,
      down: "the chain does not answer",
    });
    world.rail.down = false;
    const twice = await Promise.all([world.observer.followUpCalls(), world.observer.followUpCalls()]);
    expect(twice).toMatchObject([{ settled: 1, waiting: 0, down: null }, { settled: 1 }]);
    const intentTime = Date.parse(only(world).intent.planned_at);
    const booked = world.log.envelopes().find((one) => one.type === "settlement")!;
    expect(Date.parse(booked.observed_at)).toBeGreaterThanOrEqual(intentTime);
    expect(only(world).settlement).toMatchObject({ nonce: only(world).intent.nonce });
    expect(await world.observer.followUpCalls()).toMatchObject({ settled: 0 });
    expect(world.log.bodies("settlement")).toHaveLength(1);
  });

  test("a payment that a lagging node does not show is not given up, however far the newest block is", async () => {
    const world = fakeWorld();
    const seller = paying(world.rail, (asked) => {
      const { block: number, time } = world.rail;
      world.rail.asOf = { number, time };
      world.rail.settle(asked.payment!);
      return answer(200, { sum: 0 });
    });
    await payOnce(world, seller);
    expect(world.log.bodies("settlement")).toEqual([]);
    world.rail.time += 10_000;
    for (let n = 0; n < 2; n++) expect(await world.observer.followUpCalls()).toMatchObject({ settled: 0, waiting: 1 });
    world.rail.asOf = null;
    expect(await world.observer.followUpCalls()).toMatchObject({ settled: 1, waiting: 0 });
  });

  test("an input that passed before is no bad input when it fails later", async () => {
    const world = fakeWorld();
    let good = true;
    const day = await listAndPlan(
      world,
      paying(
        world.rail,
        (asked) => {
          if (!good) return answer(400, { error: "bad q" });
          good = false;
          world.rail.settle(asked.payment!);
          return answer(200, { sum: 1 });
        },
        { item: made },
      ),
    );
    await world.observer.observeSpan(day, START, END);
    expect(world.log.bodies("paid.result").map((one) => one.fault)).toEqual([null, null, null, null]);
  });

  test.each([
    ["the next process knows it from the record", true, null],
    ["one that has not looked would excuse it", false, "bad_input"],
  ])("an input that passed before is known after a restart: %s", async (_name, recovers, fault) => {
    const world = fakeWorld();
    let good = true;
    const seller = paying(
      world.rail,
      (asked) => {
        if (!good) return answer(400, { error: "bad q" });
        good = false;
        world.rail.settle(asked.payment!);
        return answer(200, { sum: 1 });
      },
      { item: made },
    );
    const day = await listAndPlan(world, seller);
    const middle = new Date(START.getTime() + 6 * 3_600_000);
    await world.observer.observeSpan(day, START, middle);
    const next = world.restart();
    if (recovers) await next.recover();
    await next.observeSpan(day, middle, END);
    expect(world.log.bodies("paid.result").map((one) => one.fault)).toEqual([null, fault, fault, fault]);
  });
});

describe("the money went and nothing came", () => {
  const thief = (world: FakeWorld): Handler =>
    paying(
      world.rail,
      settleAnd(world, () => answer(200, "")),
    );

  test("the same proof is shown again, three times within ten minutes, each a record; never another payment", async () => {
    const world = fakeWorld();
    await payOnce(world, thief(world));
    const { intent, result, shown, settlement } = only(world);
    expect(result).toMatchObject({ watched: true, delivered: false, fault: null });
    expect(settlement).toBeDefined();
    expect(shown).toMatchObject(
      Array.from({ length: 3 }, () => ({ kind: "shown_again", shown_again: { delivered: false, watched: true } })),
    );
    const payments = world.egress.paid().map((one) => one.payment);
    expect(payments).toEqual(Array.from({ length: 4 }, () => intent.signed_bytes));
    const urls = new Set(world.egress.paid().map((one) => one.url));
    expect(urls.size).toBe(1);
    const times = world.log
      .envelopes()
      .filter((one) => one.type.startsWith("paid."))
      .map((one) => Date.parse(one.observed_at));
    expect(times.at(-1)! - times[0]!).toBeLessThan(600_000);
    expect(world.rail.signed).toHaveLength(1);
  });

  test("an answer that comes with the second showing is delivered, and evaluated", async () => {
    const world = fakeWorld();
    let tries = 0;
    await payOnce(
      world,
      paying(world.rail, (asked, n) => {
        world.rail.settle(asked.payment!);
        return tries++ < 2 ? transport("reset", true) : honest(world.rail)(asked, n);
      }),
    );
    expect(only(world).result).toMatchObject({ delivered: false, ended: "transport" });
    expect(only(world).shown.map((one) => one.shown_again)).toMatchObject([
      { delivered: false },
      { delivered: true, outcome: 1 },
    ]);
  });

  test("after an answer that broke off the proof is shown again, and the result has its bytes", async () => {
    const world = fakeWorld();
    const broken = { outcome: "cut" as const, says: "broke off", status: 200, totalMs: 9, sent: true };
    await payOnce(
      world,
      paying(world.rail, (asked) =>
        world.rail.settle(asked.payment!) ? { ...broken, body: Buffer.from('{"sum":') } : terms402(),
      ),
    );
    expect(only(world).result).toMatchObject({ delivered: false, status: 200, wall: false, response_bytes: 7 });
    expect(only(world).shown.map((one) => one.shown_again)).toMatchObject(
      Array.from({ length: 3 }, () => ({ watched: true, delivered: false, status: 402 })),
    );
  });

  test("a showing that we could not make is not watched", async () => {
    const world = fakeWorld();
    let tries = 0;
    const handler = paying(world.rail, (asked) => {
      world.rail.settle(asked.payment!);
      if (tries++ > 0) controlDown(world);
      return tries === 1 ? answer(200, "") : transport("unreachable");
    });
    const plan = firstPaidOnly(await listAndPlan(world, handler));
    // Time passes between the calls, so that none shares the control call of the one before.
    class Striding extends FixedClock {
      #ms = 0;
      override monotonic(): number {
        this.#ms += 10_000;
        return this.#ms;
      }
    }
    await world.observer.observeSpan(plan, START, END, (start) => new Striding(start));
    expect(only(world).result).toMatchObject({ fault: null, control: { ok: true } });
    expect(only(world).shown.map((one) => one.shown_again?.watched)).toEqual([false, false, false]);
  });

  test("nothing is shown when nothing settled, or when the fault is ours", async () => {
    const refused = fakeWorld();
    await payOnce(
      refused,
      paying(refused.rail, () => answer(200, "")),
    );
    expect(refused.egress.paid()).toHaveLength(1);
    const ours = fakeWorld();
    controlDown(ours);
    await payOnce(
      ours,
      paying(
        ours.rail,
        settleAnd(ours, () => answer(200, "")),
      ),
    );
    expect(only(ours).result.fault).toBe("ours");
    expect(ours.egress.paid()).toHaveLength(1);
  });

  test("who settles behind our back is shown the proof when a later look sees it; a Transfer back is a refund", async () => {
    const world = fakeWorld();
    await payOnce(
      world,
      paying(world.rail, () => timeout()),
    );
    const { intent } = only(world);
    expect(await world.observer.followUpCalls()).toMatchObject({ settled: 0, waiting: 1 });
    world.rail.settle(intent.signed_bytes);
    expect(await world.observer.followUpCalls()).toMatchObject({ settled: 1, waiting: 0 });
    expect(only(world).shown).toHaveLength(3);
    const { settlement } = only(world);
    const back = { ...world.rail.settled.get(intent.nonce)!, from: settlement!.to, to: settlement!.from, tx: "0xback" };
    world.rail.transfersBack.push({ ...back, amountAtomic: 9_999n });
    await world.observer.followUpCalls();
    expect(only(world).shown).toHaveLength(3);
    world.rail.transfersBack.push({ ...back, tx: "0xall" });
    await world.observer.followUpCalls();
    await world.observer.followUpCalls();
    expect(only(world).shown.slice(3)).toMatchObject([
      { kind: "refund", refund: { tx: "0xall", amount_atomic: "10000" } },
    ]);
  });

  test("a seller that stalls the showings of its payment delays those of no other", async () => {
    const world = fakeWorld();
    const clock = new PacedClock(START, 200);
    world.observer = world.restart({}, { clock });
    let release: (result: EgressResult) => void = () => {};
    const stalled = new Promise<EgressResult>((resolve) => {
      release = resolve;
    });
    const origins = ["https://first.example", "https://second.example"];
    let calls = 0;
    for (const origin of origins)
      await listAndPlan(
        world,
        paying(world.rail, () => (calls++ < 2 ? answer(500, "") : stalled)),
        origin,
      );
    const plan = planDay({ day: DAY, salt, listed: await world.memory.listed(), caps: CAPS, now: START });
    await world.observer.observeSpan(firstPaidOnly(plan), START, END, (start) => new FixedClock(start));
    for (const { signed_bytes } of world.log.bodies("paid.intent")) {
      world.rail.settle(signed_bytes);
      expect(await world.observer.followUpCalls()).toMatchObject({ settled: 1 });
    }
    await expect.poll(() => world.egress.paid()).toHaveLength(4);
    release(timeout());
    await world.observer.waitForShowings();
    expect(new Set(only(world).shown.map((one) => one.of)).size).toBe(2);
  });

  test("a payment nobody settled is let go after its last moment", async () => {
    const world = fakeWorld();
    await payOnce(
      world,
      paying(world.rail, () => terms402()),
    );
    world.rail.time += 60;
    expect(await world.observer.followUpCalls()).toMatchObject({ waiting: 1 });
    world.rail.time += 61;
    expect(await world.observer.followUpCalls()).toMatchObject({ waiting: 0 });
    expect(await world.observer.followUpCalls()).toMatchObject({ waiting: 0, settled: 0 });
  });

  test("a settlement that is not final yet becomes final as a later fact", async () => {
    const world = fakeWorld();
    world.rail.final = false;
    await payOnce(world, honest(world.rail));
    expect(only(world).settlement).toMatchObject({ final: false });
    expect(await world.observer.followUpCalls()).toMatchObject({ waiting: 1 });
    const nonce = only(world).intent.nonce;
    world.rail.settled.set(nonce, { ...world.rail.settled.get(nonce)!, final: true });
    expect(await world.observer.followUpCalls()).toMatchObject({ waiting: 0, settled: 0 });
    expect(only(world).shown).toMatchObject([{ kind: "finality" }]);
  });

  test.each([{ tx: "0xtwin" }, { blockNumber: 7 }, { blockTime: 7 }])(
    "a settlement whose block was replaced before it was final is recorded anew: %j",
    async (place) => {
      const world = fakeWorld();
      world.rail.final = false;
      await payOnce(world, honest(world.rail));
      const { nonce } = only(world).intent;
      const transfer = world.rail.settled.get(nonce)!;
      world.rail.settled.set(nonce, { ...transfer, ...place });
      expect(await world.observer.followUpCalls()).toMatchObject({ waiting: 1 });
      expect(world.log.bodies("settlement")).toHaveLength(1);
      world.rail.settled.set(nonce, { ...transfer, ...place, final: true });
      expect(await world.observer.followUpCalls()).toMatchObject({ waiting: 0, settled: 0 });
      const final = { ...transfer, ...place };
      expect(world.log.bodies("settlement")).toMatchObject([
        { tx: transfer.tx, final: false },
        { tx: final.tx, block_number: final.blockNumber, block_time: final.blockTime, final: true },
      ]);
      expect(only(world).shown).toEqual([]);
    },
  );

  test("a Transfer other than the quote is not as quoted, and the call not honest", async () => {
    const world = fakeWorld();
    await payOnce(
      world,
      paying(world.rail, (asked, n) => {
        world.rail.settle(asked.payment!, { amountAtomic: 10_001n });
        return honest(world.rail)(asked, n);
      }),
    );
    expect(only(world).settlement?.as_quoted).toBe(false);
    expect(only(world).result.honest).toBe(false);
  });
});

describe("our own event loop stood still while a payment was watched", () => {
  const STILL = { stoodStill: true, atEnd: true };
  /** It does so from the payment on. */
  const still = (): FakeWorld => {
    const world = fakeWorld();
    world.egress.before = (asked) => {
      if (asked.payment !== undefined) world.egress.loop = STILL;
    };
    return world;
  };

  test("an answer that came is delivered and evaluated; only its time was not taken", async () => {
    const world = still();
    await payOnce(world, honest(world.rail));
    const { intent, result } = only(world);
    expect(intent.first_leg.latency_ms).toBe(20);
    expect(result).toMatchObject({
      delivered: true,
      delivery: 1,
      outcome: 1,
      schema_ok: true,
      fault: null,
      watched: true,
    });
    expect(result.latency_ms).toBeNull();
    expect(result.says).toMatch(/our own event loop stood still/);
  });

  test("of the first leg: it is paid as ever, and its time is not known", async () => {
    const world = fakeWorld();
    world.egress.loop = STILL;
    await payOnce(world, honest(world.rail));
    expect(only(world).intent.first_leg.latency_ms).toBeNull();
  });

  test("a deadline that came with it, and no money moved: the answer may have waited for us", async () => {
    const world = still();
    await payOnce(
      world,
      paying(world.rail, () => timeout()),
    );
    expect(only(world).result).toMatchObject({ fault: "ours", watched: true, delivered: false, ended: "deadline" });
  });

  test("the money moved: the proof is shown again, and an honest seller answers it", async () => {
    const world = still();
    const seller = paying(world.rail, (asked) => {
      // The second time it was settled already.
      if (world.rail.settle(asked.payment!)) return timeout();
      world.egress.loop = { stoodStill: false, atEnd: false };
      return answer(200, { sum: Number(new URL(asked.url).searchParams.get("a")) });
    });
    await payOnce(world, seller);
    const { result, shown } = only(world);
    expect(result).toMatchObject({ fault: null, delivered: false });
    expect(shown).toMatchObject([{ kind: "shown_again", shown_again: { delivered: true, watched: true } }]);
  });

  test("a theft is not excused by it, unless every showing of the proof was ours to miss", async () => {
    const showings = async (from: number) => {
      const world = still();
      await payOnce(
        world,
        paying(world.rail, (asked) => {
          world.rail.settle(asked.payment!);
          if (world.egress.paid().length >= from) world.egress.loop = { stoodStill: false, atEnd: false };
          return timeout();
        }),
      );
      const { result, shown } = only(world);
      expect(result).toMatchObject({ fault: null, delivered: false });
      return shown.map((one) => one.shown_again?.watched);
    };
    expect(await showings(2)).toEqual([true, true, true]);
    expect(await showings(99)).toEqual([false, false, false]);
  });
});

describe("nothing is signed", () => {
  const none: [string, (world: FakeWorld) => Handler, Record<string, unknown>][] = [
    ["free", () => () => answer(200, { sum: 3 }), { state: "free", live: true }],
    ["malformed", () => () => answer(402, "{}"), { state: "malformed", live: false }],
    ["a wall", () => () => answer(403, ""), { state: "wall", fault: "blocked" }],
    ["nobody there", () => () => transport("refused"), { state: "silent", live: false, fault: null }],
    [
      "a network we cannot pay",
      () => () => terms402([entry({ network: "eip155:1" })]),
      { state: "asked", live: true, price: null, honest: false },
    ],
    [
      "past the cap of a call",
      () => () => terms402([entry({ amount: "100001" })]),
      { state: "asked", live: true, fault: null, honest: false, says: expect.stringMatching(/over the cap of a call/) },
    ],
    [
      "the chain is down",
      (w) => () => {
        w.rail.down = true;
        return terms402();
      },
      { state: "asked", live: true, fault: null, says: expect.stringMatching(/by our own fault: the chain/) },
    ],
    [
      "no wallet",
      (w) => () => {
        w.wallets.known = async () => {
          throw new Error("empty");
        };
        w.wallets.blind = () => w.wallets.known();
        return terms402();
      },
      { says: expect.stringMatching(/empty/) },
    ],
    [
      "more to echo than a header holds",
      (w) => () => {
        const sign = w.rail.sign.bind(w.rail);
        w.rail.sign = async (...of) => ({ ...(await sign(...of)), headerValue: "x".repeat(40_000) });
        return terms402();
      },
      { says: expect.stringMatching(/header/) },
    ],
  ];
  test.each(none)("%s: the first leg stands as a handshake of the paid plan", async (_name, handler, want) => {
    const world = fakeWorld();
    const report = await payOnce(world, listing(handler(world)));
    expect(report).toMatchObject({ paid: 0, unpaid: 1, broken: 0 });
    expect(world.log.bodies("handshake")).toMatchObject([{ planned: "paid", ...want }]);
    expect(world.log.bodies("paid.intent")).toEqual([]);
    expect(world.egress.paid()).toEqual([]);
  });

  test.each([true, false])("a wallet is asked for what the fee takes beside the price (blind: %s)", async (blind) => {
    const world = fakeWorld();
    world.rail.fee = 10_000n;
    const plan = firstPaidOnly(await listAndPlan(world, honest(world.rail)));
    const lines = plan.lines.map((line) => ({ ...line, calls: line.calls.map((call) => ({ ...call, blind })) }));
    await world.observer.observeSpan({ ...plan, lines }, START, END);
    expect(new Set(world.wallets.needs)).toEqual(new Set([BigInt(entry().amount as string) + 10_000n]));
  });

  test.each([true, false])(
    "the share of blind calls that was not kept is said by a gauge (blind: %s)",
    async (blind) => {
      const world = fakeWorld();
      const metrics = createMetrics();
      world.observer = world.restart({}, { metrics });
      world.wallets.blind = world.wallets.known = async () => {
        throw new Error("empty");
      };
      const missed = async () => (await metrics.gauges("touchstone_observe_blind_missed_seconds"))[0]?.value;
      const plan = firstPaidOnly(await listAndPlan(world, honest(world.rail)));
      expect(await missed()).toBe(0);
      const lines = plan.lines.map((line) => ({ ...line, calls: line.calls.map((call) => ({ ...call, blind })) }));
      await world.observer.observeSpan({ ...plan, lines }, START, END);
      expect((await missed())! > START.getTime() / 1000).toBe(blind);
    },
  );

  test.each<[string, Partial<Caps>, RegExp]>([
    ["a host", { perHostDay: 25_000n }, /cap of a host and day/],
    ["a domain", { perDomainDay: 25_000n }, /cap of a domain and day/],
    ["a payee, whom its listing does not name", { perPayeeDay: 25_000n }, /cap of a payee and day/],
  ])("the cap of %s is never passed: payments stop at it, also in a new process", async (_name, change, says) => {
    const caps = { ...CAPS, ...change };
    const world = fakeWorld({ caps });
    const payTo = `0x${"Ed".repeat(20)}`;
    const plan = await listAndPlan(world, honest(world.rail, { accepts: [entry({ payTo })] }));
    await world.observer.observeSpan(plan, START, END);
    expect(world.log.bodies("paid.intent").map(({ quote }) => quote.pay_to)).toEqual([payTo, payTo]);
    const unpaid = () => world.log.bodies("handshake").filter((one) => one.planned === "paid");
    expect(unpaid()).toMatchObject([{ says: expect.stringMatching(says) }, {}]);
    // A new process knows from the record what was spent.
    const again = world.restart({ caps });
    await again.observeSpan(plan, START, END);
    expect(world.log.bodies("paid.intent")).toHaveLength(2);
    expect(DAY).toBe(plan.day);
  });

  test("what was signed and cannot be sent is no money spent: the next call has the room", async () => {
    const world = fakeWorld({ caps: { ...CAPS, perHostDay: 10_000n } });
    const sign = world.rail.sign.bind(world.rail);
    let n = 0;
    world.rail.sign = async (...of) => ({
      ...(await sign(...of)),
      ...(n++ === 0 ? { headerValue: "x".repeat(40_000) } : {}),
    });
    const plan = await listAndPlan(world, honest(world.rail));
    await world.observer.observeSpan(plan, START, END);
    expect(world.log.bodies("paid.intent")).toHaveLength(1);
  });

  test("the schema a 402 advertises is used where the seller's listing has none", async () => {
    const world = fakeWorld();
    const extensions = {
      bazaar: {
        info: {
          input: { type: "http", method: "GET", queryParams: { a: "1", b: "2" } },
          output: { schema: { ...OUTPUT_SCHEMA, required: ["total"] } },
          class: "arithmetic",
        },
      },
    };
    const bare = { example: undefined, class: undefined, outputSchema: undefined };
    await payOnce(world, (asked, n) =>
      new URL(asked.url).pathname === "/sum" && !asked.payment
        ? terms402([entry()], { extensions })
        : honest(world.rail, { item: bare })(asked, n),
    );
    expect(only(world).intent).toMatchObject({ input: "known_answer" });
    expect(only(world).result).toMatchObject({ outcome: 1, schema_ok: false });
  });
});
