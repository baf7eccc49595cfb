import { describe, expect, test } from "vitest";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import type { Call } from "../../../pipelines/1-observe/call.ts";
import { NotConfirmed, type Observer } from "../../../pipelines/1-observe/observer.ts";
import { isPassing } from "../../../pipelines/1-observe/plan/steps.ts";
import type { DayPlan } from "../../../pipelines/record/plan.ts";
import { END, listAndPlan, START } from "./day.ts";
import { realSeller } from "./real-seller.ts";
import {
  answer,
  CONTROL,
  type FakeWorld,
  fakeWorld,
  type Handler,
  honest,
  paying,
  terms402,
  timeout,
  transport,
} from "./world.ts";

/**
 * What goes wrong on our side, one cause at a time, while the seller is honest. Each ends as `ours` or as nothing at all:
 * no record of it may count against the seller.
 */

/** Records that count against a seller: a probe that is not live, a 402 that differs, a paid call that does not pass. */
function accusations({ log }: FakeWorld): unknown[] {
  const excused = (fault: string | null) => fault === "ours" || fault === "bad_input";
  const probes = log
    .bodies("handshake")
    .filter((one) => !excused(one.fault) && (!one.live || one.honest === false || one.wall));
  const paid = log.bodies("paid.result").filter((one) => !excused(one.fault) && !(one.live && isPassing(one)));
  return [...probes, ...paid];
}

/** A plan with one call of this kind for each endpoint. */
const only = (plan: DayPlan, isWanted: (call: Pick<Call, "kind" | "blind">) => boolean): DayPlan => ({
  ...plan,
  lines: plan.lines.map((line) => ({ ...line, calls: line.calls.filter(isWanted).slice(0, 1) })),
});
const aProbe = ({ kind }: Pick<Call, "kind">) => kind === "probe";
const aPayment = ({ kind }: Pick<Call, "kind">) => kind === "paid";
const aKnownPayment = ({ kind, blind }: Pick<Call, "kind" | "blind">) => kind === "paid" && !blind;
const aBlindPayment = ({ kind, blind }: Pick<Call, "kind" | "blind">) => kind === "paid" && blind;

const refuse: Handler = () => terms402();

interface Case {
  name: string;
  call: Parameters<typeof only>[1];
  /** The seller on its good days; default: honest. */
  seller?: (world: FakeWorld) => Handler;
  /** After it was listed. */
  breaks: (world: FakeWorld) => void;
  /** What is recorded of it. */
  ends: (world: FakeWorld) => void;
}

const isOurs = (world: FakeWorld) =>
  expect(world.log.bodies("paid.result")).toEqual([expect.objectContaining({ fault: "ours" })]);
const isUnpaid =
  (says: RegExp) =>
  ({ log, egress }: FakeWorld): void => {
    expect(egress.paid()).toEqual([]);
    expect(log.bodies("paid.intent")).toEqual([]);
    expect(log.bodies("handshake")).toEqual([
      expect.objectContaining({ live: true, says: expect.stringMatching(says) }),
    ]);
  };
const probeIsOurs = (world: FakeWorld) =>
  expect(world.log.bodies("handshake")).toEqual([expect.objectContaining({ live: false, fault: "ours" })]);

/** From now on nothing reaches anybody. */
const cutOff = (world: FakeWorld, says: string) => {
  for (const origin of world.egress.sellers.keys()) world.egress.sellers.set(origin, () => transport(says));
};

const signsWith = ({ rail }: FakeWorld, change: (time: number) => { validAfter?: number; validBefore?: number }) => {
  const sign = rail.sign.bind(rail);
  rail.sign = async (...args) => ({ ...(await sign(...args)), ...change(rail.time) });
};

const CASES: Case[] = [
  {
    name: "a dead RPC, before anything is signed",
    call: aPayment,
    breaks: (world) => {
      world.rail.down = true;
    },
    ends: isUnpaid(/our own fault: the chain does not answer/),
  },
  {
    name: "a dead RPC, with the payment on its way: the seller's facilitator needs the same chain",
    call: aPayment,
    seller: (world) =>
      paying(world.rail, () => {
        world.rail.down = true;
        return terms402();
      }),
    breaks: () => undefined,
    ends: isOurs,
  },
  {
    name: "a wallet that cannot be funded: its funder's nonce is stuck",
    call: aBlindPayment,
    breaks: (world) => {
      world.wallets.blind = async () => {
        throw new Error("nonce too low");
      };
    },
    ends: isUnpaid(/our own fault: nonce too low/),
  },
  {
    name: "a wallet whose balance is gone",
    call: aPayment,
    breaks: (world) => {
      world.rail.funds = 9_999n;
    },
    ends: isUnpaid(/our own fault: the wallet 0x[0-9a-f]+ holds 9999 of 10000/),
  },
  {
    name: "a known wallet that ran dry while the payment was on its way",
    call: aKnownPayment,
    seller: (world) =>
      paying(world.rail, () => {
        world.rail.funds = 0n;
        return terms402();
      }),
    breaks: () => undefined,
    ends: isOurs,
  },
  {
    name: "a clock that is behind the chain's: what is signed would end while the seller works",
    call: aPayment,
    breaks: (world) => signsWith(world, (time) => ({ validBefore: time + 40 })),
    ends: isUnpaid(/our own fault: our clock is behind the chain's: the payment would be valid for 40 s/),
  },
  {
    name: "a clock that is ahead of the chain's: what is signed is not valid yet",
    call: aPayment,
    seller: (world) => paying(world.rail, refuse),
    breaks: (world) => signsWith(world, (time) => ({ validAfter: time + 3_000, validBefore: time + 3_660 })),
    ends: isOurs,
  },
  {
    name: "a clock that is set back by an hour, or on by two, while a probe is under way",
    call: aProbe,
    breaks: (world) => {
      let steps = 0;
      world.egress.before = () =>
        world.clock.set(new Date(world.clock.now().getTime() + (steps++ ? -1 : 2) * 3_600_000));
    },
    ends: ({ log }) =>
      expect(log.bodies("handshake")).toEqual([expect.objectContaining({ live: true, latency_ms: 20 })]),
  },
  {
    name: "name servers that do not answer, under a probe",
    call: aProbe,
    breaks: (world) => cutOff(world, "seller.example does not resolve: ETIMEOUT"),
    ends: probeIsOurs,
  },
  {
    name: "name servers that do not answer any more, under a payment",
    call: aPayment,
    seller: (world) =>
      paying(world.rail, () => {
        cutOff(world, "seller.example does not resolve: ETIMEOUT");
        return transport("seller.example does not resolve: ETIMEOUT");
      }),
    breaks: () => undefined,
    ends: isOurs,
  },
  {
    name: "a way out that is gone for blind calls alone",
    call: aBlindPayment,
    seller: (world) => {
      const seller = honest(world.rail);
      return (asked, n) => (asked.stock === undefined ? seller(asked, n) : timeout());
    },
    breaks: (world) =>
      world.egress.sellers.set(CONTROL, (asked) => (asked.stock === undefined ? answer(200, {}) : timeout())),
    ends: probeIsOurs,
  },
  {
    name: "a way out that is gone for blind calls once the first leg was answered",
    call: aBlindPayment,
    seller: (world) => paying(world.rail, () => timeout()),
    breaks: (world) =>
      world.egress.sellers.set(CONTROL, (asked) => (asked.stock === undefined ? answer(200, {}) : timeout())),
    ends: isOurs,
  },
];

describe("one cause each", () => {
  test.each(CASES)("$name", async ({ call, seller, breaks, ends }) => {
    const world = fakeWorld();
    const plan = await listAndPlan(world, seller?.(world) ?? honest(world.rail));
    breaks(world);
    await world.observer.observeSpan(only(plan, call), START, END);
    ends(world);
    expect(accusations(world)).toEqual([]);
  });

  test("and where nothing of ours is wrong the same ends are the seller's", async () => {
    for (const [call, seller] of [
      [aPayment, (world: FakeWorld) => paying(world.rail, refuse)],
      [aPayment, (world: FakeWorld) => paying(world.rail, () => timeout())],
      // What it holds afterwards excuses nobody: its one payee may have taken it.
      [
        aBlindPayment,
        (world: FakeWorld) =>
          paying(world.rail, () => {
            world.rail.funds = 0n;
            return terms402();
          }),
      ],
    ] as const) {
      const world = fakeWorld();
      const plan = await listAndPlan(world, seller(world));
      await world.observer.observeSpan(only(plan, call), START, END);
      expect(accusations(world)).toHaveLength(1);
    }
  });
});

test("a wallet that its seller emptied is no excuse while the node that is asked of the payment lags", async () => {
  const world = fakeWorld();
  const seller = paying(world.rail, (asked) => {
    const { block: number, time } = world.rail;
    world.rail.asOf = { number, time };
    world.rail.settle(asked.payment!);
    world.rail.funds = 0n;
    return answer(500, "");
  });
  await world.observer.observeSpan(only(await listAndPlan(world, seller), aKnownPayment), START, END);
  const { says } = world.log.bodies("paid.result")[0]!;
  expect(says).toMatch(/one node is at block \d+, another at \d+/);
  expect(says).not.toContain("our wallet holds less");
  world.rail.asOf = null;
  expect(await world.observer.followUpCalls()).toMatchObject({ settled: 1 });
});

describe("a restart", () => {
  test("in the middle of a payment: nobody watched its end, so it is ours", async () => {
    const world = fakeWorld();
    const plan = await listAndPlan(
      world,
      paying(world.rail, () => new Promise(() => undefined)),
    );
    void world.observer.observeSpan(only(plan, aPayment), START, END);
    await expect.poll(() => world.egress.paid()).toHaveLength(1);
    expect(await world.restart().recover()).toEqual({ lost: 1 });
    isOurs(world);
    expect(accusations(world)).toEqual([]);
  });
});

describe("a full disk", () => {
  const holds = (type: string) => (records: readonly { value: Uint8Array }[]) =>
    records.some(({ value }) => Buffer.from(value).includes(`"type":"${type}"`)) ? { keep: 0 } : null;

  async function refusing(type: string, call: Case["call"]): Promise<FakeWorld> {
    const world = fakeWorld();
    const plan = await listAndPlan(world, honest(world.rail));
    world.log.refuse = holds(type) as typeof world.log.refuse;
    await expect(world.observer.observeSpan(only(plan, call), START, END)).rejects.toThrow(NotConfirmed);
    world.log.refuse = null;
    return world;
  }

  test("before the intent is durable nothing leaves, and nothing is recorded", async () => {
    const world = await refusing("paid.intent", aPayment);
    expect(world.egress.paid()).toEqual([]);
    expect([...world.log.bodies("paid.intent"), ...world.log.bodies("handshake")]).toEqual([]);
  });

  test("under a probe nothing is recorded", async () => {
    const world = await refusing("handshake", aProbe);
    expect(world.log.bodies("handshake")).toEqual([]);
  });

  test("under a result it is ours at the next start, with what the chain took", async () => {
    const world = await refusing("paid.result", aPayment);
    expect(world.egress.paid()).toHaveLength(1);
    expect(await world.restart().recover()).toEqual({ lost: 1 });
    isOurs(world);
    expect(world.log.bodies("settlement")).toHaveLength(1);
    expect(accusations(world)).toEqual([]);
  });
});

describe("the way out", () => {
  test("an outage that begins after a control call was answered is seen by the next one", async () => {
    const world = fakeWorld();
    const plan = await listAndPlan(world, honest(world.rail));
    const dead = await listAndPlan(world, honest(world.rail), "https://b.example");
    const seller = world.egress.sellers.get("https://b.example")!;
    // One seller is down by its own doing, and a moment later nothing of ours gets out any more.
    world.egress.sellers.set("https://b.example", (asked, n) =>
      asked.url.endsWith("x402") ? seller(asked, n) : transport("connection refused"),
    );
    const probes = (of: DayPlan, host: string) => ({
      ...only(of, aProbe),
      lines: only(of, aProbe).lines.filter((line) => line.host === host),
    });
    await world.observer.observeSpan(probes(dead, "b.example"), START, END);
    expect(accusations(world)).toHaveLength(1);
    cutOff(world, "no route to host");
    await world.observer.observeSpan(probes(plan, "seller.example"), START, END);
    expect(accusations(world)).toHaveLength(1);
    expect(world.log.bodies("handshake").at(-1)).toMatchObject({ live: false, fault: "ours" });
  });

  test("a source address that is no address of this machine any more: nobody was asked", async () => {
    const world = fakeWorld({ controlUrls: [] });
    const server = await realSeller(honest(world.rail));
    const egress: Egress = createEgress({
      allowLoopback: true,
      userAgent: "touchstone-test",
      sources: { declared: ["192.0.2.7"], stock: ["192.0.2.8"] },
    });
    try {
      const plan = await listAndPlan(world, honest(world.rail), `http://127.0.0.1:${server.port}`);
      const observer: Observer = world.restart({ controlUrls: [] }, { egress });
      for (const call of [aProbe, aPayment]) await observer.observeSpan(only(plan, call), START, END);
      const probes = world.log.bodies("handshake");
      expect(probes.length).toBeGreaterThanOrEqual(2);
      for (const one of probes) expect(one).toMatchObject({ state: "unfetchable", fault: "ours" });
      expect(server.legs).toEqual([]);
      expect(accusations(world)).toEqual([]);
    } finally {
      await egress.close();
      await server.close();
    }
  });
});
