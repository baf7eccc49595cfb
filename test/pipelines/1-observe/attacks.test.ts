import { describe, expect, test } from "vitest";
import { importFile } from "../../../commands/listings.ts";
import { FixedClock } from "../../../infra/clock.ts";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import { createMetrics } from "../../../infra/telemetry.ts";
import { Intake } from "../../../pipelines/1-observe/listings/intake.ts";
import { ListingWriter } from "../../../pipelines/1-observe/listings/writer.ts";
import { processReader, type Reader } from "../../../pipelines/1-observe/reading/reader.ts";
import { Recorder } from "../../../pipelines/1-observe/recorder.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { capId } from "../../../pipelines/record/ids.ts";
import { END, firstPaidOnly, listAndPlan, START } from "./day.ts";
import { toolTerms } from "./other-protocols.ts";
import { claimOf } from "./readings.ts";
import {
  answer,
  DAY,
  entry,
  FakeEgress,
  FakeLog,
  FakeRail,
  type FakeWorld,
  fakeWorld,
  type Handler,
  honest,
  item,
  paying,
  SELLER,
  terms402,
  wellKnown,
} from "./world.ts";

/**
 * What strangers send to stop the observer, each by its name: our event loop never stands still for it, the record says
 * what there is to say of its sender, and everybody else is seen as ever. Most took our loop 5 to 40 s.
 */
const EVIL = "https://evil.example";
/** A busy machine keeps anybody waiting for that long; no attack may. */
const MOST_STILL_MS = 2_000;

/** Longest time that the event loop stood still while `work` was under way, ms. */
async function stallOf(work: () => Promise<unknown>): Promise<number> {
  let last = performance.now();
  let longest = 0;
  const look = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(look, 5);
  await work();
  await new Promise((resolve) => setTimeout(resolve, 10));
  look();
  clearInterval(timer);
  return longest;
}

const ask = (world: FakeWorld, url: string) =>
  world.observer.probeAsk({ url, normalised_url: url, method: null, host: new URL(url).host, cap: capId("GET", url) });

const handshakesOf = (world: FakeWorld, url: string): BodyOf<"handshake">[] =>
  world.log
    .envelopes()
    .flatMap(({ type, body }) => (type === "handshake" && (body as BodyOf<"handshake">).url === url ? [body] : []))
    .map((body) => body as BodyOf<"handshake">);

const GOOD = `${SELLER}/sum`;
const seen = { state: "asked", live: true, honest: true, fault: null, latency_ms: 20, price: "0.010000" };

/** An anonymous check of the bad one's url while an honest one is asked: neither waits for the other. */
async function attacked(handler: Handler): Promise<BodyOf<"handshake">[]> {
  const world = fakeWorld();
  world.egress.sellers.set(EVIL, handler);
  world.egress.sellers.set(SELLER, honest(world.rail));
  // The reader begins before anybody measures.
  await ask(world, GOOD);
  const still = await stallOf(() => Promise.all([ask(world, `${EVIL}/x`), ask(world, GOOD)]));
  expect(still).toBeLessThan(MOST_STILL_MS);
  const good = handshakesOf(world, GOOD);
  expect(good.length).toBeGreaterThan(0);
  for (const one of good) expect(one).toMatchObject(seen);
  return handshakesOf(world, `${EVIL}/x`);
}

const nested = (levels: number, inside = '"string"'): string => `${"[".repeat(levels)}${inside}${"]".repeat(levels)}`;

/** A JSON Schema of a kilobyte that names one member 64 times at each of six levels. */
const multiplying = (() => {
  let schema: Record<string, unknown> = { type: "string" };
  for (let i = 0; i < 6; i++) schema = { type: "object", required: Array(64).fill("a"), properties: { a: schema } };
  return schema;
})();

/** Operations that all refer to one schema of `chars` characters. */
const references = (operations: number, chars: number): string =>
  JSON.stringify({
    openapi: "3.1.0",
    paths: Object.fromEntries(
      Array.from({ length: operations }, (_, i) => [
        `/${i}`,
        {
          post: {
            "x-402": 1,
            requestBody: { content: { "application/json": { schema: { $ref: "#/components/schemas/S" } } } },
          },
        },
      ]),
    ),
    components: { schemas: { S: { type: "object", properties: { a: { const: "x".repeat(chars) } } } } },
  });

/** A reference to a reference, `n` times. */
const chain = (n: number): string =>
  JSON.stringify({
    openapi: "3.1.0",
    paths: {
      "/a": { post: { accepts: [], requestBody: { content: { "application/json": { schema: { $ref: "#/s/0" } } } } } },
    },
    s: Array.from({ length: n }, (_, i) => ({ $ref: `#/s/${i + 1}` })),
  });

/** Each of these twenty names the next one twice. */
const doubling = JSON.stringify({
  openapi: "3.1.0",
  paths: {
    "/a": { post: { accepts: [], requestBody: { content: { "application/json": { schema: { $ref: "#/s/0" } } } } } },
  },
  s: Array.from({ length: 20 }, (_, i) => ({ anyOf: [{ $ref: `#/s/${i + 1}` }, { $ref: `#/s/${i + 1}` }] })),
});

describe("documents", () => {
  test.each<[string, string]>([
    ["a kilobyte of YAML questions", `a:\n${"? ".repeat(500)}`],
    ["YAML with 60,000 keys", `a: 1\n${Array.from({ length: 60_000 }, (_, i) => `k${i}: 1`).join("\n")}`],
    ["YAML of commas", `a: [${",".repeat(500_000)}`],
    ["YAML whose aliases multiply", `a: &a [x,x]\nb: &b [*a,*a]\nresources: [${"*b,".repeat(90_000)}]`],
    ["a megabyte of references to one schema, put in place for each operation", references(5_000, 500_000)],
    ["references to references", chain(40_000)],
    ["references that double at each level", doubling],
    ["JSON nested without end", nested(500_000, "")],
    ["a list of 300,000 rows of nothing", `[${"{},".repeat(300_000)}{}]`],
    [
      "a base of slashes for 90,000 paths",
      JSON.stringify([{ baseUrl: `http:${"/".repeat(2_000)}x`, endpoints: Array(90_000).fill("/a") }]),
    ],
    [
      "a type nested in lists",
      `{"items":[{"resource":"/a","outputSchema":{"type":${nested(4_000)},"properties":{}}}]}`,
    ],
    ["a CSV of quotes", `url,method\n${'"'.repeat(1_000_000)}`],
    ["a cell that never ends", `url,method\n"https://s.example/${"x".repeat(1_000_000)}`],
  ])("%s", async (_name, text) => {
    const [seen, ...more] = await attacked((asked) =>
      asked.url.startsWith(`${EVIL}/x`) ? terms402() : answer(200, text),
    );
    // Its documents are nothing, and its 402 is what it is.
    expect(more).toEqual([]);
    expect(seen).toMatchObject({ state: "asked", live: true, latency_ms: 20 });
  });
});

const body402 = (text: string): EgressResult => answer(402, text);
const header402 = (value: string): EgressResult => answer(402, "{}", { "www-authenticate": value });
const output = (type: string): string =>
  `{"x402Version":1,"accepts":[${JSON.stringify({ ...entry(), maxAmountRequired: "10000" }).slice(0, -1)},"outputSchema":{"input":{"type":"http"},"output":{"type":${type},"properties":{}}}}]}`;

describe("demands for payment", () => {
  test.each<[string, EgressResult, object]>([
    [
      "a challenge of 64 KiB of letters",
      header402(`Payment id=1 ${"a".repeat(65_000)}`),
      { state: "malformed", live: false },
    ],
    ["a challenge of quotes and backslashes", header402('"\\'.repeat(32_000)), { state: "malformed", live: false }],
    [
      "a challenge of 64 KiB of dashes",
      header402(`Payment id=1, ${"-".repeat(65_000)}`),
      { state: "malformed", live: false },
    ],
    ["a type nested 4,000 levels deep", body402(output(nested(4_000))), { state: "malformed", live: false }],
    ["a type nested 400,000 levels deep", body402(output(nested(400_000))), { state: "malformed", live: false }],
    ["a type that is a list of lists", body402(output(nested(20))), { state: "asked", live: true }],
    ["300,000 entries", body402(`{"accepts":[${"{},".repeat(300_000)}{}]}`), { state: "malformed", live: false }],
    [
      "an input whose schema multiplies",
      terms402([entry()], {
        extensions: { bazaar: { info: { input: { type: "http", method: "POST", body: multiplying } } } },
      }),
      { state: "asked", live: true },
    ],
  ])("%s", async (_name, bad, wanted) => {
    const [seen] = await attacked((asked) => (asked.url.startsWith(`${EVIL}/x`) ? bad : answer(404, {})));
    // It is recorded, and it counts: the fault is nobody else's.
    expect(seen).toMatchObject({ ...wanted, fault: null });
  });
});

/** A world in which the seller's endpoint is called and paid once; what of it stands in the record. */
async function paidOnce(handlerOf: (world: FakeWorld) => Handler) {
  const world = fakeWorld();
  const plan = await listAndPlan(world, handlerOf(world));
  let report: unknown;
  const still = await stallOf(async () => {
    report = await world.observer.observeSpan(firstPaidOnly(plan), START, END);
  });
  expect(still).toBeLessThan(MOST_STILL_MS);
  return { world, report, results: world.log.bodies("paid.result") };
}

describe("paid answers", () => {
  const schema = (pattern: string) => ({ type: "object", properties: { sum: { type: "string", pattern } } });
  test.each<[string, unknown, object, object]>([
    [
      "an answer that a pattern backtracks on",
      schema("^(a+)+$"),
      { sum: `${"a".repeat(40)}b` },
      { delivered: true, schema_ok: null },
    ],
    ["a megabyte of numbers", undefined, { sum: 0, all: Array(500_000).fill(1) }, { delivered: true, delivery: 1 }],
  ])("%s", async (_name, outputSchema, body, wanted) => {
    const { report, results } = await paidOnce(({ rail }) =>
      paying(
        rail,
        (asked) => {
          rail.settle(asked.payment!);
          return answer(200, body);
        },
        { item: { class: "any", outputSchema } },
      ),
    );
    expect(report).toMatchObject({ paid: 1, broken: 0 });
    expect(results).toMatchObject([{ watched: true, fault: null, ...wanted }]);
  });

  test("an answer nested without end is worth nothing, and it was delivered", async () => {
    const { results } = await paidOnce(({ rail }) =>
      paying(rail, (asked) => {
        rail.settle(asked.payment!);
        return answer(200, `{"sum":${nested(300_000, "1")}}`);
      }),
    );
    expect(results).toMatchObject([{ delivered: true, delivery: 0, outcome: 0, schema_ok: false, fault: null }]);
  });
});

describe("tools", () => {
  const reply = (id: unknown, result: unknown) => answer(200, { jsonrpc: "2.0", id, result });
  const tool =
    (list: unknown, call: unknown): Handler =>
    (asked) => {
      if (new URL(asked.url).pathname === "/.well-known/x402") {
        return answer(200, wellKnown(item({ resource: "/mcp", toolName: "add", method: "POST", example: undefined })));
      }
      const { id, method } = (asked.json ?? {}) as { id?: unknown; method?: string };
      if (method === "initialize") return reply(id, { protocolVersion: "2025-06-18" });
      if (method === "tools/list") return reply(id, list);
      if (method === "tools/call") return reply(id, call);
      return answer(method ? 202 : 404, "");
    };
  const challenges = [{ id: "1", realm: "r", method: "evm", intent: "charge", a: "-".repeat(65_000) }];
  test.each<[string, unknown, unknown, object]>([
    [
      "a tool whose input multiplies",
      { tools: [{ name: "add", inputSchema: multiplying }] },
      { isError: true, structuredContent: toolTerms(), content: [] },
      { state: "asked", live: true },
    ],
    [
      "a tool whose challenge is 64 KiB long",
      { tools: [{ name: "add" }] },
      { isError: true, content: [], _meta: { "org.paymentauth/payment-required": { challenges } } },
      { state: "malformed", live: false },
    ],
  ])("%s", async (_name, list, call, wanted) => {
    const { world } = await paidOnce(() => tool(list, call));
    const probes = world.log.bodies("mcp.probe");
    const intents = world.log.bodies("paid.intent");
    expect(probes.length + intents.length).toBe(1);
    if (probes.length > 0) expect(probes).toMatchObject([{ ...wanted, fault: null }]);
    else expect(wanted).toMatchObject({ state: "asked" });
  });
});

describe("an operator's own YAML", () => {
  const take = (text: string) => {
    const metrics = createMetrics();
    const recorder = new Recorder({ log: new FakeLog(), producer: "test", metrics });
    const intake = new Intake({ egress: new FakeEgress(), rail: new FakeRail(), recorder, metrics });
    return importFile(intake, "own.yaml", Buffer.from(text), new FixedClock(`${DAY}T00:00:00.000Z`));
  };

  // Waits for a reader that is given up after seconds.
  test("is read, and a kilobyte that never ends is given up while we go on", async () => {
    expect(await take("version: 1\nresources: [https://s.example/a]\n")).toMatchObject({ form: "list", appended: 1 });
    const still = await stallOf(() =>
      expect(take(`a:\n${"? ".repeat(500)}`)).rejects.toThrow(/own.yaml as YAML: not done after 4000 ms/),
    );
    expect(still).toBeLessThan(MOST_STILL_MS);
    expect(await take("resources: [https://s.example/b]\n")).toMatchObject({ form: "list", appended: 1 });
  });
});

describe("one bad row stops only itself", () => {
  test("in a catalogue: it is named with its reason, and nothing that is listed goes", async () => {
    const log = new FakeLog();
    const egress = new FakeEgress();
    const metrics = createMetrics();
    const recorder = new Recorder({ log, producer: "test", metrics });
    let bad: string | null = null;
    const asked: number[] = [];
    /** Our reader, and a row that uses up all the time that it gets. */
    const reader: Reader = {
      ask: (name, of) => {
        if (name !== "rows" || bad === null || !JSON.stringify(of).includes(bad)) return processReader.ask(name, of);
        asked.push((of as unknown as { rows: unknown[] }).rows.length);
        return Promise.resolve({ ok: false, says: "not done after 2000 ms of a processor" });
      },
    };
    const intake = new Intake({ egress, rail: new FakeRail(), recorder, metrics, reader });
    const rows = Array.from({ length: 350 }, (_, i) => ({ resource: `https://s${i}.example/a` }));
    egress.sellers.set("https://catalogue.example", (asked) => {
      const offset = Number(new URL(asked.url).searchParams.get("offset"));
      return answer(200, { items: rows.slice(offset, offset + 100), pagination: { total: rows.length } });
    });
    const clock = new FixedClock(`${DAY}T00:00:00.000Z`);
    expect(await intake.readCatalogue("https://catalogue.example", clock)).toMatchObject({ appended: 350 });
    bad = rows[120]!.resource;
    const report = await intake.readCatalogue("https://catalogue.example", clock);
    expect(report).toMatchObject({ items: 350, refused: 1, appended: 0, same: 349, delisted: 0 });
    expect(report.rejected).toMatchObject([{ reason: "unreadable", row: rows[120] }]);
    // Together with its neighbours, and alone.
    expect(asked).toEqual([100, 1]);
  });

  test("a row that the log would refuse does not take its batch with it", async () => {
    const log = new FakeLog();
    const metrics = createMetrics();
    const writer = new ListingWriter({ recorder: new Recorder({ log, producer: "test", metrics }), metrics });
    const source = { name: "https://catalogue.example" };
    const rows = ["/a", "/b", "/c"].map((resource) => {
      const taken = claimOf(item({ resource }), { ...source, base: SELLER }, new FakeRail());
      if (!("claim" in taken)) throw new Error(taken.rejected.says);
      return { claim: taken.claim, row: resource };
    });
    // Longer than a record holds, and of a form that can be written in one way.
    rows[1]!.claim.body.claims.output_mime = "x".repeat(500);
    const written = await writer.write(rows, source, false, new FixedClock(`${DAY}T00:00:00.000Z`));
    expect(written).toMatchObject({ appended: 2, rejected: [{ reason: "unkeepable", row: "/b" }] });
    expect(log.bodies("listing").map((one) => one.normalised_url)).toEqual([`${SELLER}/a`, `${SELLER}/c`]);
  });

  test("an origin whose listing breaks our own code ends nobody else's reading", async () => {
    const { observer, egress, log } = fakeWorld();
    const origins = Array.from({ length: 5 }, (_, i) => `https://s${i}.example`);
    egress.sellers.set("https://catalogue.example", () =>
      answer(200, { items: origins.map((origin) => ({ resource: `${origin}/a` })), pagination: { total: 5 } }),
    );
    for (const origin of origins) egress.sellers.set(origin, () => answer(200, wellKnown(item({ resource: "/a" }))));
    egress.sellers.set(origins[2]!, () => {
      throw new Error("our own code broke");
    });
    expect(await observer.intakeCatalogue("https://catalogue.example")).toMatchObject({ appended: 5 + 4 });
    const own = log.bodies("listing").filter((one) => one.seller_controlled);
    expect(own.map((one) => new URL(one.normalised_url).host)).toHaveLength(4);
  });

  test("who is asked about is probed, though our own code broke over its listing", async () => {
    const world = fakeWorld();
    world.egress.sellers.set(EVIL, (asked) => {
      if (asked.url.startsWith(`${EVIL}/x`)) return terms402();
      throw new Error("our own code broke");
    });
    expect(await ask(world, `${EVIL}/x`)).toMatchObject({ probed: [{ state: "asked" }], listings: 0 });
    expect(handshakesOf(world, `${EVIL}/x`)).toMatchObject([{ state: "asked", live: true }]);
  });
});
