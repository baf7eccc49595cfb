import { describe, expect, test } from "vitest";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import { CannotSign } from "../../../infra/rails/rails.ts";
import { timeoutMsOf } from "../../../pipelines/1-observe/paid/sign.ts";
import { END, firstPaidOnly, firstProbeOnly, listAndPlan, listing, payOnce, START } from "./day.ts";
import { both402, challenge, mpp402, mppSeller, toolItem, toolSeller } from "./other-protocols.ts";
import { readTerms } from "./readings.ts";
import { answer, entry, FakeRail, fakeWorld, type Handler, honest, SELLER, sumOf, terms402, timeout } from "./world.ts";

const rail = new FakeRail();
type Answered = Extract<EgressResult, { outcome: "answered" }>;
const read = (result: EgressResult) => readTerms(result as Answered, rail, `${SELLER}/sum`);
const others = terms402([entry({ network: "eip155:8453" })]) as Answered;
const mppBeside = (x402: EgressResult, ...lines: string[]): EgressResult => {
  const { headers } = x402 as Answered;
  return { ...(x402 as Answered), headers: { ...headers, "www-authenticate": lines.join(", ") } };
};

describe("which offer is paid", () => {
  const asks = (amount: string) => challenge({ request: { amount } });
  test.each<[string, EgressResult, object, string[], string]>([
    ["x402 before mpp, also where mpp is cheaper", both402(), { x402Version: 2 }, ["x402", "mpp"], "0.010000"],
    ["mpp alone", mpp402(asks("700")), { x402Version: null }, ["mpp"], "0.000700"],
    [
      "the cheapest challenge",
      mpp402(asks("900"), asks("700"), asks("800")),
      { amountAtomic: 700n },
      ["mpp"],
      "0.000700",
    ],
    ["the first of equals", mpp402(asks("700"), asks("700")), { amountAtomic: 700n }, ["mpp"], "0.000700"],
    [
      "the cheapest entry of x402",
      terms402([entry({ amount: "900" }), entry({ amount: "300" })]),
      { amountAtomic: 300n },
      ["x402"],
      "0.000300",
    ],
    [
      "mpp where x402 asks on a chain that is not ours",
      mppBeside(others, asks("700")),
      { x402Version: null },
      ["x402", "mpp"],
      "0.000700",
    ],
    [
      "x402 where mpp asks in a method that is not ours",
      mppBeside(terms402(), challenge({ params: { method: "tempo" } })),
      { x402Version: 2 },
      ["x402", "mpp"],
      "0.010000",
    ],
  ])("%s", (_name, result, payable, protocols, price) => {
    const terms = read(result);
    expect(terms.payable).toMatchObject(payable);
    expect(terms.terms.protocols).toEqual(protocols);
    expect(terms.price).toBe(price);
  });

  test("tempo and stripe alone are read, and nothing is payable", () => {
    const terms = read(
      mpp402(
        challenge({ params: { method: "tempo" } }),
        challenge({ params: { method: "stripe" }, request: { currency: "usd" } }),
      ),
    );
    expect(terms).toMatchObject({ readable: true, payable: null, price: null });
    expect(terms.terms.offers.map((one) => [one.scheme, one.payable])).toEqual([
      ["tempo/charge", false],
      ["stripe/charge", false],
    ]);
  });
});

/** Settles whatever it is paid with, and answers. */
const settling =
  (world: ReturnType<typeof fakeWorld>, unpaid: () => EgressResult): Handler =>
  (asked) => {
    if (asked.payment === undefined) return unpaid();
    world.rail.settle(asked.payment);
    return answer(200, { sum: sumOf(asked.url) });
  };

describe("each form of terms is paid in the protocol's own way", () => {
  const v2 = { x402Version: 2, accepts: [entry()] };
  const v1Entry = {
    ...entry({ amount: undefined, maxAmountRequired: "10000", network: "base-sepolia" }),
    resource: `${SELLER}/sum`,
  };
  test.each<[string, () => EgressResult, string, string, number | null]>([
    ["version 2 in the header", () => terms402(), "payment-signature", "PAYMENT-SIGNATURE", 2],
    ["version 2 in the body", () => answer(402, v2), "payment-signature", "PAYMENT-SIGNATURE", 2],
    [
      "version 2 in the header, no body at all",
      () => ({ ...(terms402() as Answered), body: new Uint8Array() }),
      "payment-signature",
      "PAYMENT-SIGNATURE",
      2,
    ],
    ["a bare entry", () => answer(402, entry()), "payment-signature", "PAYMENT-SIGNATURE", 2],
    [
      "a list of bare entries",
      () => answer(402, [entry({ network: "solana:x" }), entry()]),
      "payment-signature",
      "PAYMENT-SIGNATURE",
      2,
    ],
    [
      "several offers, ours last",
      () => terms402([entry({ scheme: "upto" }), entry({ network: "eip155:8453" }), entry()]),
      "payment-signature",
      "PAYMENT-SIGNATURE",
      2,
    ],
    ["version 1", () => answer(402, { x402Version: 1, accepts: [v1Entry] }), "x-payment", "X-PAYMENT", 1],
    ["mpp", () => mpp402(), "authorization", "AUTHORIZATION", null],
    ["both at once", both402, "payment-signature", "PAYMENT-SIGNATURE", 2],
  ])("%s", async (_name, unpaid, sent, header, version) => {
    const world = fakeWorld();
    await payOnce(world, listing(settling(world, unpaid)));
    const [intent] = world.log.bodies("paid.intent");
    expect(intent).toMatchObject({ header_name: header, quote: { x402_version: version, price: "0.010000" } });
    expect(world.log.bodies("paid.result")).toMatchObject([{ delivered: true, outcome: 1, fault: null, honest: true }]);
    expect(world.log.bodies("settlement")).toMatchObject([{ as_quoted: true }]);
    const [paid] = world.egress.paid();
    expect(paid!.headers![sent]).toBe(intent!.signed_bytes);
    const names = ["payment-signature", "x-payment", "authorization"].filter((name) => paid!.headers![name]);
    expect(names).toEqual([sent]);
  });
});

describe("mpp keeps to the promises of every payment", () => {
  test("the intent is in the log, whole, before a byte of the payment leaves", async () => {
    const world = fakeWorld();
    world.egress.before = (asked) => {
      if (asked.payment === undefined) return;
      const intents = world.log.bodies("paid.intent");
      expect(intents.map((one) => one.signed_bytes)).toContain(asked.payment);
    };
    await payOnce(world, mppSeller(settling(world, mpp402)));
    expect(world.egress.paid()).toHaveLength(1);
  });

  test("money gone and nothing come: the very same bytes are shown again", async () => {
    const world = fakeWorld();
    const thief: Handler = (asked) => {
      world.rail.settle(asked.payment!);
      return timeout();
    };
    await payOnce(world, mppSeller(thief));
    expect(world.egress.paid().length).toBeGreaterThan(1);
    expect(new Set(world.egress.paid().map((one) => one.payment)).size).toBe(1);
    expect(world.log.bodies("settlement")).toHaveLength(1);
    expect(world.log.bodies("paid.followup").every((one) => one.kind === "shown_again")).toBe(true);
  });

  test("a receipt without a Transfer is kept, and nothing is settled", async () => {
    const world = fakeWorld();
    await payOnce(
      world,
      mppSeller((asked) => answer(200, { sum: sumOf(asked.url) }, { "payment-receipt": "bm90aGluZw" })),
    );
    expect(world.log.bodies("paid.result")).toMatchObject([
      { receipt: { header: "payment-receipt", value: "bm90aGluZw" } },
    ]);
    expect(world.log.bodies("settlement")).toEqual([]);
  });

  test("terms that cannot be signed now are the seller's, and are said so; nothing is paid and nothing is spent", async () => {
    const world = fakeWorld();
    world.rail.sign = () => Promise.reject(new CannotSign("the seller repeats a challenge that was paid before"));
    await payOnce(world, mppSeller(settling(world, mpp402)));
    expect(world.log.bodies("paid.intent")).toEqual([]);
    expect(world.log.bodies("handshake")).toMatchObject([
      { planned: "paid", fault: null, says: "not paid: the seller repeats a challenge that was paid before" },
    ]);
  });

  test("a challenge leaves as long as any paid call may take", () => {
    expect(timeoutMsOf(read(mpp402()).payable!.maxTimeoutSeconds)).toBe(120_000);
  });
});

describe("a tool is kept to its listing like any endpoint", () => {
  test("at the listed price it is honest; dearer, or to another payee, it is not", async () => {
    for (const [listed, honestly] of [
      [entry(), true],
      [entry({ amount: "9999" }), false],
      [entry({ payTo: `0x${"7".repeat(40)}` }), false],
    ] as const) {
      const world = fakeWorld();
      const plan = await listAndPlan(world, toolSeller(world.rail, {}, toolItem({ accepts: [listed] })));
      await world.observer.observeSpan(firstProbeOnly(plan), START, END);
      expect(world.log.bodies("mcp.probe")).toMatchObject([{ honest: honestly, state: "asked" }]);
      expect(world.log.bodies("handshake")).toEqual([]);
    }
  });

  test("paid through the intent machine: settled, right, and its session beside it, in one append", async () => {
    const world = fakeWorld();
    const plan = firstPaidOnly(await listAndPlan(world, toolSeller(world.rail)));
    let together: string[] = [];
    world.log.refuse = (records) => {
      const types = records.map((one) => JSON.parse(Buffer.from(one.value).toString()).type);
      if (types.includes("paid.result")) together = types;
      return null;
    };
    await world.observer.observeSpan(plan, START, END);
    expect(together).toEqual(["paid.result", "settlement", "mcp.paid"]);
    expect(world.log.bodies("paid.intent")).toMatchObject([{ header_name: "x402/payment", input: "known_answer" }]);
    expect(world.log.bodies("paid.result")).toMatchObject([
      { delivered: true, delivery: 1, outcome: 1, schema_ok: true },
    ]);
    const [intent] = world.log.envelopes().filter((one) => one.type === "paid.intent");
    expect(world.log.bodies("mcp.paid")).toMatchObject([{ of: intent!.event_id, tool: "add" }]);
  });

  test("its slot is taken: a restarted process does not call it again", async () => {
    const world = fakeWorld();
    const plan = await listAndPlan(world, toolSeller(world.rail));
    const first = await world.observer.observeSpan(plan, START, END);
    expect(first).toMatchObject({ probes: 4, paid: 4 });
    const again = world.restart();
    await again.recover();
    expect(await again.observeSpan(plan, START, END)).toMatchObject({ probes: 0, paid: 0 });
  });

  test("a tool that takes the money is shown the same payment again, in a session of its own each time", async () => {
    const world = fakeWorld();
    const thief: Handler = (asked) => {
      world.rail.settle(asked.payment!);
      return timeout();
    };
    const plan = firstPaidOnly(await listAndPlan(world, toolSeller(world.rail, { paid: thief })));
    await world.observer.observeSpan(plan, START, END);
    const paid = world.egress.paid();
    expect(paid).toHaveLength(4);
    expect(new Set(paid.map((one) => one.payment)).size).toBe(1);
    const welcomes = world.egress.asked.filter((one) => (one.json as { method?: string })?.method === "initialize");
    expect(welcomes).toHaveLength(5);
  });
});

test("HTTP is probed with the declared verb and example, and asked for JSON", async () => {
  const world = fakeWorld();
  const item = { method: "POST", example: { body: { a: 4, b: 5 } } };
  const plan = await listAndPlan(world, honest(world.rail, { item }));
  await world.observer.observeSpan(firstProbeOnly(plan), START, END);
  const probe = world.egress.asked.find((one) => one.url === `${SELLER}/sum`)!;
  expect(probe).toMatchObject({ method: "POST", json: { a: 4, b: 5 } });
  expect(probe.headers).toMatchObject({ accept: "application/json", "content-type": "application/json" });
});
