import { describe, expect, test } from "vitest";
import { FixedClock } from "../../../../infra/clock.ts";
import type { LoopStall } from "../../../../infra/loop-watch.ts";
import { ControlCalls } from "../../../../pipelines/1-observe/probe/exchange.ts";
import { compareWithListing, probe } from "../../../../pipelines/1-observe/probe/probe.ts";
import type { Request } from "../../../../pipelines/1-observe/probe/request.ts";
import { processReader, type Reader } from "../../../../pipelines/1-observe/reading/reader.ts";
import { BODIES, type Claims } from "../../../../pipelines/record/bodies.ts";
import { STEADY_LOOP } from "../../../helpers/steady-loop.ts";
import { claimOf, readTerms } from "../readings.ts";
import {
  answer,
  CONTROL,
  entry,
  FakeEgress,
  FakeRail,
  type Handler,
  item,
  NETWORK,
  OUTPUT_SCHEMA,
  SELLER,
  terms402,
  timeout,
  transport,
} from "../world.ts";

const rail = new FakeRail();
const URL_ASKED = `${SELLER}/sum`;
const html = { "content-type": "text/html" };
const request = { url: URL_ASKED, method: "GET" as const, headers: { accept: "application/json" }, sha256: "" };

const claimsOf = (change: Record<string, unknown> = {}): Claims => {
  const taken = claimOf(item(change), { name: "own", ownOrigin: SELLER }, rail);
  if (!("claim" in taken)) throw new Error(taken.rejected.says);
  return taken.claim.body.claims;
};

interface Options {
  control?: Handler;
  claims?: Claims | null;
  /** What the event loop did that took the times; of a tool, what the one did that leads the session. */
  loop?: LoopStall;
  asked?: Request;
  reader?: Reader;
}

async function probeAt(handler: Handler, options: Options = {}) {
  const egress = new FakeEgress();
  egress.sellers.set(new URL(options.asked?.url ?? SELLER).origin, handler);
  egress.sellers.set(CONTROL, options.control ?? (() => answer(200, {})));
  if (options.loop && !options.asked?.tool) egress.loop = options.loop;
  const loop = options.loop && options.asked?.tool ? { begin: () => () => options.loop! } : STEADY_LOOP;
  const tools = {
    egress,
    reader: options.reader ?? processReader,
    loop,
    rail,
    control: new ControlCalls(egress, [`${CONTROL}/ok`]),
  };
  const { body } = await probe(
    tools,
    options.asked ?? request,
    options.claims ?? null,
    new FixedClock("2026-11-02T00:00:00Z"),
  );
  expect(() => BODIES.handshake.parse({ slot: { block: 1, minute: 0 }, planned: "free", ...body })).not.toThrow();
  return { body, egress, asked: egress.asked.filter((one) => one.url === URL_ASKED).length };
}

describe("what an answer is", () => {
  const dead: Handler = () => transport("connection refused");
  test.each<[string, Handler, Record<string, unknown>]>([
    ["a 402", () => terms402(), { state: "asked", live: true, honest: true, fault: null, price: "0.010000" }],
    [
      "a 402 after eleven seconds",
      () => ({ ...terms402(), totalMs: 11_000 }) as never,
      { state: "asked", live: false, fault: null },
    ],
    ["a 402 without terms", () => answer(402, "{}"), { state: "malformed", live: false, honest: null }],
    ["a 402 of a website", () => answer(402, "<html>", html), { state: "malformed", live: false, honest: null }],
    ["a free answer", () => answer(200, { sum: 3 }), { state: "free", live: true, honest: null, terms: null }],
    ["403", () => answer(403, "no"), { state: "wall", live: false, wall: true, fault: "blocked", honest: null }],
    ["429", () => answer(429, "no"), { state: "wall", wall: true, fault: "blocked" }],
    ["a bot check", () => answer(503, "<title>Just a moment...", html), { state: "wall", wall: true }],
    ["a bot check that answers 200", () => answer(200, "<p>captcha", html), { state: "wall", wall: true }],
    ["an outage page", () => answer(503, "<p>down", html), { state: "status", wall: false, fault: null, status: 503 }],
    ["404", () => answer(404, {}), { state: "status", live: false, fault: null }],
    ["a redirect", () => answer(302, ""), { state: "status", live: false }],
    ["silence", () => timeout(), { state: "silent", live: false, fault: null, status: null, latency_ms: null }],
    ["a refused connection", dead, { state: "silent", live: false, fault: null }],
    [
      "a hundred megabytes",
      () => ({
        outcome: "too_large",
        says: "past the cap",
        status: 200,
        totalMs: 90,
        sent: true,
        body: Buffer.alloc(1024 * 1024),
      }),
      { state: "silent", live: false, status: 200 },
    ],
    [
      "a name that resolves to an address that is not public",
      () => ({ outcome: "refused", reason: "address", says: "private", totalMs: 0, sent: false }),
      { state: "silent", live: false, fault: null, control: { ok: true } },
    ],
    ...(["own_address", "port", undefined] as const).map((reason): [string, Handler, Record<string, unknown>] => [
      `an exchange that we refuse: ${reason ?? "we could not try"}`,
      () => ({ outcome: "refused", ...(reason ? { reason } : {}), says: "refused", totalMs: 0, sent: false }),
      { state: "unfetchable", live: false, fault: "ours" },
    ]),
  ])("%s", async (_name, handler, want) => {
    expect((await probeAt(handler)).body).toMatchObject(want);
  });

  test("a url whose host is itself an address that is not public is one that we never ask", async () => {
    const asked = { ...request, url: "http://10.0.0.1/sum" };
    const refused: Handler = () => ({
      outcome: "refused",
      reason: "address",
      says: "private",
      totalMs: 0,
      sent: false,
    });
    expect((await probeAt(refused, { asked })).body).toMatchObject({ state: "unfetchable", fault: "ours" });
  });

  test("a failure while the control fails too is ours, and without a control address nothing is excused", async () => {
    const down: Handler = () => transport("network is unreachable");
    expect((await probeAt(down, { control: down })).body).toMatchObject({ fault: "ours", control: { ok: false } });
    expect((await probeAt(down)).body).toMatchObject({ fault: null, control: { ok: true } });
    expect((await probeAt(() => terms402(), { control: down })).body.control).toBeUndefined();
    const egress = new FakeEgress();
    const none = new ControlCalls(egress, []);
    expect(await none.call(new FixedClock(0 as never))).toBeNull();
  });

  test("a transport error is retried once, and nothing else is", async () => {
    const lost = await probeAt((_asked, n) => (n === 0 ? transport("reset") : terms402()));
    expect(lost).toMatchObject({ asked: 2, body: { state: "asked", live: true } });
    expect((await probeAt(() => transport("reset"))).asked).toBe(2);
    expect((await probeAt(() => timeout())).asked).toBe(1);
    expect((await probeAt(() => answer(500, {}))).asked).toBe(1);
  });

  const up: Handler = () => answer(200, {});
  const gone: Handler = () => transport("network is unreachable");
  test.each<[string, Handler[], boolean, number]>([
    ["one of one", [up], true, 0],
    ["one of two is down itself", [gone, up], true, 1],
    ["two of three are down", [gone, up, gone], false, 0],
    ["one of three is down itself", [gone, up, up], true, 1],
    ["all of them", [gone, gone], false, 0],
  ])("of several control addresses half have to answer: %s", async (_, handlers, ok, decided) => {
    const egress = new FakeEgress();
    const origins = handlers.map((_one, i) => `https://control-${i}.example`);
    for (const [i, handler] of handlers.entries()) egress.sellers.set(origins[i]!, handler);
    const control = new ControlCalls(egress, origins);
    const seen = await control.call(new FixedClock("2026-11-02T00:00:00Z"));
    expect(seen).toMatchObject({ ok, url: origins[decided] });
  });

  test("failures of one moment share one control call", async () => {
    const egress = new FakeEgress();
    egress.sellers.set(CONTROL, () => answer(200, {}));
    const control = new ControlCalls(egress, [`${CONTROL}/ok`]);
    const clock = new FixedClock("2026-11-02T00:00:00Z");
    await Promise.all(Array.from({ length: 20 }, () => control.call(clock)));
    expect(egress.asked).toHaveLength(1);
  });
});

describe("an exchange in which our own event loop stood still", () => {
  const meanwhile = { stoodStill: true, atEnd: false };
  const atEnd = { stoodStill: true, atEnd: true };
  const late: Handler = () => ({ ...terms402(), totalMs: 11_000 }) as never;
  const large: Handler = () => ({ outcome: "too_large", says: "past the cap", status: 200, totalMs: 90, sent: true });
  test.each<[string, Handler, LoopStall, Record<string, unknown>]>([
    [
      "a 402: what it says stands, no time was taken",
      () => terms402(),
      atEnd,
      { state: "asked", live: true, honest: true },
    ],
    ["a free answer", () => answer(200, {}), meanwhile, { state: "free", live: true }],
    ["a 402 that came late: that may have been us", late, meanwhile, { state: "asked", live: false, fault: "ours" }],
    ["silence whose deadline came with it", () => timeout(), atEnd, { state: "silent", fault: "ours" }],
    ["a connection that broke with it", () => transport("reset"), atEnd, { state: "silent", fault: "ours" }],
    ["silence long after it is the seller's", () => timeout(), meanwhile, { state: "silent", fault: null }],
    ["a flood is the seller's", large, atEnd, { state: "silent", fault: null }],
    ["an error is the seller's", () => answer(500, {}), atEnd, { state: "status", fault: null }],
    ["a wall stays a wall", () => answer(403, "no"), atEnd, { state: "wall", fault: "blocked" }],
  ])("%s", async (_name, handler, loop, want) => {
    const { body } = await probeAt(handler, { loop });
    expect(body).toMatchObject({ fault: null, ...want, latency_ms: null });
    expect(body.says).toMatch(/our own event loop stood still meanwhile: no time was taken$/);
  });

  test("of a tool: the loop that leads its session may have kept it waiting too", async () => {
    const tool = { name: "sum", arguments: {}, isInputUnknown: false };
    const asked = { ...request, method: "POST" as const, tool };
    const { body } = await probeAt(() => timeout(), { loop: atEnd, asked });
    expect(body).toMatchObject({ state: "silent", fault: "ours", latency_ms: null });
    expect((await probeAt(() => timeout(), { asked })).body).toMatchObject({ state: "silent", fault: null });
  });

  test("a 402 that differs from the listing is not excused by it", async () => {
    const claims = claimsOf({ accepts: [entry({ amount: "1" })] });
    const { body } = await probeAt(() => terms402(), { loop: atEnd, claims });
    expect(body).toMatchObject({ honest: false, fault: null, latency_ms: null });
  });
});

describe("a 402 that cannot be read", () => {
  const readers: [string, Reader["ask"], RegExp | null][] = [
    [
      "in time",
      () => Promise.resolve({ ok: false, says: "not done after 500 ms of a processor" }),
      /not done after 500 ms/,
    ],
    [
      "because our reader stumbles",
      () => Promise.resolve({ ok: false, says: "our reader failed: Error" }),
      /our reader failed/,
    ],
  ];
  test.each(readers)("%s is malformed, recorded, and counts", async (_name, ask, says) => {
    const { body } = await probeAt(() => terms402(), { reader: { ask } });
    expect(body).toMatchObject({
      state: "malformed",
      live: false,
      honest: null,
      fault: null,
      latency_ms: 20,
      price: null,
    });
    expect(body.terms).toMatchObject({ offers: [], protocols: [], defects: [{ defect: "malformed_terms" }] });
    expect(body.says).toMatch(says!);
  });

  test("where nobody can read at all it is our own fault, and nothing is said of the seller", async () => {
    const ask = () => Promise.reject(new Error("no thread can be begun"));
    await expect(probeAt(() => terms402(), { reader: { ask } })).rejects.toThrow(/no thread can be begun/);
  });
});

describe("honesty: the 402 against the seller's own listing", () => {
  const differs = (claims: Claims | null, accepts: unknown[], rest: Record<string, unknown> = {}): string[] => {
    const quoted = terms402(accepts, rest);
    if (quoted.outcome !== "answered") throw new Error("not answered");
    return compareWithListing(claims, readTerms(quoted, rail)).map((one) => one.defect);
  };
  const other = "0x9999999999999999999999999999999999999999";
  const solana = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
  /** Some deployments write the whole hash of the genesis, of which CAIP-2 takes the first 32 characters. */
  const long = `${solana}KvdpKmnopqrs1`;
  const mint = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
  const usdc = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
  const iou = {
    ...{ network: "xrpl:0", asset: "524C555344000000000000000000000000000000", amount: "10.5" },
    payTo: "rN7n3473SaZBCG4dFL83w7a1RXtXtbk2D9",
  };
  const listed = (offer: Record<string, unknown>) => claimsOf({ accepts: [entry(offer)] });
  const schema402 = (schema: unknown) => ({
    extensions: { bazaar: { info: { input: { type: "http" }, output: { schema } } } },
  });

  test.each<[string, Claims | null, unknown[], string[]]>([
    ["as listed", claimsOf(), [entry()], []],
    ["in other capitals", claimsOf(), [entry({ payTo: entry().payTo.toUpperCase().replace("0X", "0x") })], []],
    ["cheaper than listed", claimsOf(), [entry({ amount: "1" })], []],
    ["dearer than listed", claimsOf(), [entry({ amount: "10001" })], ["price_differs"]],
    ["dearer, where the price moves", claimsOf({ pricing: { mode: "dynamic" } }), [entry({ amount: "99999" })], []],
    ["another payout address", claimsOf(), [entry({ payTo: other })], ["pay_to_differs"]],
    [
      "another address, none listed",
      claimsOf({ accepts: [entry({ payTo: undefined })] }),
      [entry({ payTo: other })],
      [],
    ],
    [
      "one of several listed addresses",
      claimsOf({ accepts: [entry(), entry({ payTo: other })] }),
      [entry({ payTo: other })],
      [],
    ],
    ["another asset", claimsOf(), [entry({ asset: other })], ["asset_differs"]],
    ["another network only", claimsOf(), [entry({ network: "eip155:8453" })], ["network_differs"]],
    [
      "a further network beside the listed one",
      claimsOf(),
      [entry({ network: "eip155:8453", amount: "99999" }), entry()],
      [],
    ],
    [
      "a network we cannot pay",
      claimsOf({ accepts: [entry({ network: solana })] }),
      [entry({ network: solana, amount: "20000" })],
      ["price_differs"],
    ],
    ["the symbol of its asset", listed({ asset: "usdc" }), [entry({ asset: usdc })], []],
    ["a symbol, and another contract asked", listed({ asset: "USDC" }), [entry({ asset: other })], ["asset_differs"]],
    ["a symbol that nobody here knows", listed({ asset: "ABC" }), [entry({ asset: other })], []],
    ["a currency", listed({ asset: "USD" }), [entry({ asset: usdc })], []],
    ["its asset as CAIP-19", listed({ asset: `eip155:84532/erc20:${usdc}` }), [entry({ asset: usdc })], []],
    [
      "another as CAIP-19",
      listed({ asset: `eip155:84532/erc20:${usdc}` }),
      [entry({ asset: other })],
      ["asset_differs"],
    ],
    ["a network's name", listed({ network: "celo" }), [entry({ network: "eip155:42220" })], []],
    ["its CAIP-2 id, and the name asked", listed({ network: "eip155:1514" }), [entry({ network: "story" })], []],
    [
      "a network's name, another asked",
      listed({ network: "celo" }),
      [entry({ network: "eip155:1514" })],
      ["network_differs"],
    ],
    ["a name that nobody here knows", listed({ network: "our-chain" }), [entry({ payTo: other })], []],
    ["the name asked that nobody knows", claimsOf(), [entry({ network: "our-chain" })], []],
    ["a long genesis hash", listed({ network: long, asset: mint }), [entry({ network: solana, asset: mint })], []],
    [
      "a short one, asked at length",
      listed({ network: solana, asset: mint }),
      [entry({ network: long, asset: mint })],
      [],
    ],
    [
      "a mint in other capitals",
      listed({ network: solana, asset: mint }),
      [entry({ network: solana, asset: mint.toLowerCase().replaceAll("l", "m") })],
      ["asset_differs"],
    ],
    ["a decimal amount of XRPL", listed(iou), [entry(iou)], []],
    ["another one", listed(iou), [entry({ ...iou, amount: "11.5" })], []],
    ["another payee of it", listed(iou), [entry({ ...iou, payTo: "r".repeat(30) })], ["pay_to_differs"]],
    [
      "a decimal amount elsewhere, where it is none",
      claimsOf(),
      [entry({ amount: "0.01" }), entry(iou)],
      ["network_differs"],
    ],
    ["no terms listed", claimsOf({ accepts: undefined }), [entry({ payTo: other, amount: "99999" })], []],
    ["no listing of its own", null, [entry({ payTo: other })], []],
    ["everything at once", claimsOf(), [entry({ amount: "10001", payTo: other })], ["pay_to_differs", "price_differs"]],
  ])("%s", (_name, claims, accepts, want) => {
    expect(differs(claims, accepts)).toEqual(want);
  });

  test("of two tokens that differ in decimals, the offer with the lower price is compared", () => {
    const decimalsOf = ({ asset }: { asset: string }) => (asset === other ? 18 : 6);
    const ours = Object.assign(new FakeRail(), { canPay: () => true, decimalsOf });
    const cheap = entry({ asset: other, amount: "10000000000000000" });
    const dear = entry({ amount: "90000", payTo: other });
    for (const accepts of [
      [cheap, dear],
      [dear, cheap],
    ]) {
      const quoted = terms402(accepts) as Parameters<typeof readTerms>[0];
      expect(compareWithListing(claimsOf({ accepts: [cheap] }), readTerms(quoted, ours))).toEqual([]);
    }
  });

  test("a schema may be left out of the 402, and not be another one", () => {
    expect(differs(claimsOf(), [entry()])).toEqual([]);
    expect(differs(claimsOf(), [entry()], schema402({ ...OUTPUT_SCHEMA }))).toEqual([]);
    expect(differs(claimsOf(), [entry()], schema402({ ...OUTPUT_SCHEMA, required: [] }))).toEqual(["schema_differs"]);
    expect(differs(claimsOf({ outputSchema: undefined }), [entry()], schema402(OUTPUT_SCHEMA))).toEqual([]);
  });

  test("listed as paid and given away is a defect, and no dishonesty", async () => {
    const { body } = await probeAt(() => answer(200, {}), { claims: claimsOf() });
    expect(body).toMatchObject({ state: "free", honest: null, differs: [{ defect: "no_402" }] });
    expect(NETWORK).toBe("eip155:84532");
  });
});
