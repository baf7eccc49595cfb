import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readLedger } from "../../../fixtures/market/ledger.ts";
import { startWorld, type World } from "../../../fixtures/market/world.ts";
import { SimulatedClock } from "../../../infra/clock.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import type { BodyOf, RecordType } from "../../../pipelines/record/bodies.ts";
import { planDay } from "../../helpers/plan-day.ts";
import { END, START, salt } from "./day.ts";
import { marketObserver } from "./market-observer.ts";
import { CAPS, DAY, FakeLog, LogMemory } from "./world.ts";

/** The sellers that speak something else than plain x402, on the real market: a day of probes and paid calls. */
const NAMES = ["mpp", "both", "mcp-paid", "v2-in-body", "honest-v1"];

let dir: string;
let world: World;
let egress: Egress;
const log = new FakeLog();

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "protocols-"));
  world = await startWorld({ dir, leaseSeconds: 3_600 });
  const { catalogue, newcomers, sellers } = world.info;
  egress = createEgress({ allowLoopback: true, userAgent: "touchstone-test" });
  const memory = new LogMemory(log);
  const observer = marketObserver(world.info, { log, egress, clock: new SimulatedClock(START), memory, seed: 5 });
  await observer.intakeCatalogue(catalogue);
  for (const { url } of newcomers) await observer.intakeCatalogue(url);
  const origins = new Set(sellers.filter((one) => NAMES.includes(one.name)).map((one) => one.origin));
  const listed = (await memory.listed()).filter((one) => origins.has(new URL(one.url).origin));
  await observer.observeSpan(planDay({ day: DAY, salt, listed, caps: CAPS, now: START }), START, END);
});

afterAll(async () => {
  await egress?.close();
  await world?.stop();
  await rm(dir, { recursive: true, force: true });
});

function of(name: string) {
  const seller = world.info.sellers.find((one) => one.name === name)!;
  const mine = log.envelopes().filter((one) => one.cap !== undefined);
  const { cap } = mine.find(
    (one) => one.type === "listing" && (one.body as BodyOf<"listing">).normalised_url.startsWith(`${seller.origin}/`),
  )!;
  const bodies = <T extends RecordType>(type: T) =>
    mine.flatMap((one) => (one.type === type && one.cap === cap ? [one.body as BodyOf<T>] : []));
  return { seller, cap, bodies };
}

describe.each([
  ["mpp", { protocol: "mpp", x402_version: null, price: "0.008000" }, ["mpp"], "AUTHORIZATION"],
  ["both", { protocol: "x402", x402_version: 2, price: "0.009000" }, ["x402", "mpp"], "PAYMENT-SIGNATURE"],
  ["v2-in-body", { protocol: "x402", x402_version: 2 }, ["x402"], "PAYMENT-SIGNATURE"],
  ["honest-v1", { protocol: "x402", x402_version: 1 }, ["x402"], "X-PAYMENT"],
  ["mcp-paid", { protocol: "x402", x402_version: 2, price: "0.007000" }, ["x402"], "x402/payment"],
])("%s", (name, quote, protocols, header) => {
  test("is probed, paid, right and honest, four times a day", () => {
    const { bodies, seller } = of(name);
    const probes = bodies(name === "mcp-paid" ? "mcp.probe" : "handshake");
    expect(probes.map(({ state, live, honest, fault, planned }) => ({ state, live, honest, fault, planned }))).toEqual(
      Array(4).fill({ state: "asked", live: true, honest: true, fault: null, planned: "free" }),
    );
    expect(bodies(name === "mcp-paid" ? "handshake" : "mcp.probe")).toEqual([]);
    const intents = bodies("paid.intent");
    expect(intents).toHaveLength(4);
    for (const intent of intents) {
      expect(intent).toMatchObject({ quote, header_name: header, first_leg: { honest: true, terms: { protocols } } });
    }
    const results = bodies("paid.result");
    expect(results).toHaveLength(4);
    for (const result of results) {
      const right = { fault: null, watched: true, live: true, honest: true, delivered: true, delivery: 1 };
      expect(result).toMatchObject({ ...right, schema_ok: true });
    }
    const settled = bodies("settlement");
    expect(settled.map((one) => [one.as_quoted, one.to])).toEqual(Array(4).fill([true, seller.payTo]));
    const truths = name === "honest-v1" ? null : 1;
    expect(results.map((one) => one.outcome)).toEqual(Array(4).fill(truths));
    expect(intents.map((one) => one.input)).toEqual(Array(4).fill(truths === null ? "example" : "known_answer"));
  });

  test("its own ledger says the same: payments, money, and the bytes it sent", () => {
    const { bodies, seller } = of(name);
    const paid = readLedger(seller.ledger).filter((line) => line.kind === "paid");
    expect(paid.map((line) => line.nonce)).toEqual(bodies("paid.intent").map((one) => one.nonce));
    expect(paid.map((line) => line.payer)).toEqual(bodies("paid.intent").map((one) => one.wallet));
    expect(paid.map((line) => line.tx)).toEqual(bodies("settlement").map((one) => one.tx));
    expect(paid.map((line) => line.sha256)).toEqual(bodies("paid.result").map((one) => one.response_sha256));
  });

  test("its word on the settlement is kept, and only kept", () => {
    const named = { mpp: "payment-receipt", "honest-v1": "x-payment-response" }[name] ?? "payment-response";
    for (const result of of(name).bodies("paid.result")) expect(result.receipt).toMatchObject({ header: named });
  });
});

test("a tool's records say how its sessions began", () => {
  const { bodies } = of("mcp-paid");
  for (const probe of bodies("mcp.probe")) {
    expect(probe).toMatchObject({ tool: "add", tool_present: true, price: "0.007000", status: 402 });
    expect(probe.initialize_ms).toBeGreaterThanOrEqual(0);
    expect(probe.terms).toMatchObject({ x402_version: 2, defects: [] });
  }
  const paid = bodies("mcp.paid");
  expect(paid.map((one) => one.of)).toEqual(bodies("paid.result").map((one) => one.intent));
  expect(paid.every((one) => one.tool === "add" && one.initialize_ms !== null)).toBe(true);
});
