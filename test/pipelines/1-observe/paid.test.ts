import { describe, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import { blockOf } from "../../../pipelines/record/time.ts";
import { END, firstPaidOnly, listAndPlan, listing, payOnce, START } from "./day.ts";
import {
  answer,
  CAPS,
  CONTROL,
  DAY,
  entry,
  type FakeWorld,
  fakeWorld,
  type Handler,
  honest,
  OUTPUT_SCHEMA,
  paying,
  terms402,
  timeout,
  transport,
} from "./world.ts";

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
    expect(report).toEqual({ knocks: 0, paid: 1, unpaid: 0, missed: 0, broken: 0, stopped: false });
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
    expect(settlement).toMatchObject({
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

  test("a result says so when the chain could not be read, and nothing is lost: the sweep books it", async () => {
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
    expect(await world.observer.awaitSettlements()).toMatchObject({
      settled: 0,
      waiting: 1,
      down: "the chain does not answer",
    });
    world.rail.down = false;
    const twice = await Promise.all([world.observer.awaitSettlements(), world.observer.awaitSettlements()]);
    expect(twice).toMatchObject([{ settled: 1, waiting: 0, down: null }, { settled: 1 }]);
    const intentTime = Date.parse(only(world).intent.planned_at);
    const booked = world.log.envelopes().find((one) => one.type === "settlement")!;
    expect(Date.parse(booked.observed_at)).toBeGreaterThanOrEqual(intentTime);
    expect(only(world).settlement).toMatchObject({ nonce: only(world).intent.nonce });
    expect(await world.observer.awaitSettlements()).toMatchObject({ settled: 0 });
    expect(world.log.bodies("settlement")).toHaveLength(1);
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

  test("an answer that comes with the second showing is delivered, and judged", async () => {
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

  test("who settles behind our back is shown the proof when the sweep sees it; a Transfer back is a refund", async () => {
    const world = fakeWorld();
    await payOnce(
      world,
      paying(world.rail, () => timeout()),
    );
    const { intent } = only(world);
    expect(await world.observer.awaitSettlements()).toMatchObject({ settled: 0, waiting: 1 });
    world.rail.settle(intent.signed_bytes);
    expect(await world.observer.awaitSettlements()).toMatchObject({ settled: 1, waiting: 0 });
    expect(only(world).shown).toHaveLength(3);
    const { settlement } = only(world);
    const back = { ...world.rail.settled.get(intent.nonce)!, from: settlement!.to, to: settlement!.from, tx: "0xback" };
    world.rail.transfersBack.push({ ...back, amountAtomic: 9_999n });
    await world.observer.awaitSettlements();
    expect(only(world).shown).toHaveLength(3);
    world.rail.transfersBack.push({ ...back, tx: "0xall" });
    await world.observer.awaitSettlements();
    await world.observer.awaitSettlements();
    expect(only(world).shown.slice(3)).toMatchObject([
      { kind: "refund", refund: { tx: "0xall", amount_atomic: "10000" } },
    ]);
  });

  test("a payment nobody settled is let go after its last moment", async () => {
    const world = fakeWorld();
    await payOnce(
      world,
      paying(world.rail, () => terms402()),
    );
    world.rail.time += 60;
    expect(await world.observer.awaitSettlements()).toMatchObject({ waiting: 1 });
    world.rail.time += 61;
    expect(await world.observer.awaitSettlements()).toMatchObject({ waiting: 0 });
    expect(await world.observer.awaitSettlements()).toMatchObject({ waiting: 0, settled: 0 });
  });

  test("a settlement that is not final yet becomes final as a later fact", async () => {
    const world = fakeWorld();
    world.rail.final = false;
    await payOnce(world, honest(world.rail));
    expect(only(world).settlement).toMatchObject({ final: false });
    expect(await world.observer.awaitSettlements()).toMatchObject({ waiting: 1 });
    const nonce = only(world).intent.nonce;
    world.rail.settled.set(nonce, { ...world.rail.settled.get(nonce)!, final: true });
    expect(await world.observer.awaitSettlements()).toMatchObject({ waiting: 0, settled: 0 });
    expect(only(world).shown).toMatchObject([{ kind: "finality" }]);
  });

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
        w.wallets.blind = w.wallets.known;
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

  test("a cap that would be passed is never passed: the price is raised all day, and payments stop at the cap", async () => {
    const caps = { ...CAPS, perHostDay: 25_000n };
    const world = fakeWorld({ caps });
    const plan = await listAndPlan(world, honest(world.rail));
    await world.observer.observeSpan(plan, START, END);
    expect(world.log.bodies("paid.intent")).toHaveLength(2);
    expect(world.log.bodies("handshake").filter((one) => one.planned === "paid")).toMatchObject([
      { says: expect.stringMatching(/cap of a host/) },
      {},
    ]);
    // A new process knows from the record what was spent.
    const again = world.restart({ caps });
    await again.observeSpan(plan, START, END);
    expect(world.log.bodies("paid.intent")).toHaveLength(2);
    expect(DAY).toBe(plan.day);
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
