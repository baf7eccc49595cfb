import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { verifyObject } from "../../infra/keys/verify.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { OrderTable } from "../../pipelines/orders/order-table.ts";
import { PublishedTree } from "../../pipelines/published/reader.ts";
import type { Sales } from "../../serving/buy/checkout.ts";
import { SALE_POLICY } from "../../serving/buy/eligible.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { CheckAnswer } from "../../serving/schemas/check.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { EvaluateAnswer } from "../../serving/schemas/evaluate.ts";
import { ExposureReport } from "../../serving/schemas/exposure.ts";
import { PlanAnswer } from "../../serving/schemas/route.ts";
import { SearchAnswer } from "../../serving/schemas/search.ts";
import { Follower } from "../../serving/tables/follower.ts";
import { capOf, cardOf, listingDraft, ORIGIN, PAYEE, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { ManualClock, servingOver } from "../helpers/serving.ts";

const SUM = { url: "https://seller.example/sum", class: "arithmetic", description: "Adds two numbers" };
const DEAR = { url: "https://dear.example/sum", class: "arithmetic", description: "Adds numbers, dearly" };
const NEW = { url: "https://new.example/fresh", description: "numbers of tomorrow" };
const FAIL = { url: "https://fail.example/numbers", defects: [{ defect: "no_402", says: "it is free" }] };
const ALL = [SUM, DEAR, NEW, FAIL];

let record: PublicRecord;
let live: Serving;
const errors: unknown[] = [];
const logger = Object.assign(createLogger("silent"), { error: (line: unknown) => errors.push(line) });
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    ALL.map((one) => listingDraft(one)),
    record.grades([cardOf(SUM, { band: "B" })], "B."),
    record.grades([cardOf(DEAR, { band: "A", composite: 0.95 })], "A."),
    record.grades([cardOf(FAIL, { band: "F", composite: 0.1 })], "F."),
  );
  await record.live([
    rowOf(SUM, { retried: "answered", retried_at: Date.parse("2026-11-20T12:00:00.000Z") }),
    rowOf(DEAR, { price: "5.000000" }),
    rowOf(NEW, { price: null, asset: null }),
    rowOf(FAIL, { asset: "EUR", unit: null }),
  ]);
  const limits = { checks_per_minute: 1e6 };
  // Nobody is asked for a plan: of what sells only the policy is there.
  const { app } = await servingOver(record, {
    logger,
    limits,
    sales: {
      policy: { ...SALE_POLICY, leastPrice: 100n },
      receivingAccount: { network: "eip155:84532" },
      buying: { orders: { table: new OrderTable() }, cancelling: {} },
    } as unknown as Sales,
  });
  live = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 200 });
});
afterAll(async () => {
  await live.close();
  await record.close();
});

const address = (): URL => new URL("/mcp", live.url);

async function connected(mode: "legacy" | "auto"): Promise<Client> {
  const client = new Client({ name: "test", version: "1.0.0" }, { versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(address()));
  return client;
}

const textOf = ({ content }: { content: unknown }): string => (content as { text: string }[])[0]!.text;

describe.each([
  ["2025", "legacy"],
  ["2026", "auto"],
] as const)("a real client of the era of %s", (year, mode) => {
  let client: Client;
  beforeAll(async () => {
    client = await connected(mode);
  });
  afterAll(() => client.close());

  test("speaks a revision of that year and reads who this is", () => {
    expect(client.getNegotiatedProtocolVersion()).toMatch(new RegExp(`^${year}-`));
    expect(client.getServerVersion()).toMatchObject({ name: "touchstone" });
    expect(client.getInstructions()).toContain("UNRATED means unknown");
  });

  test("finds tools that change nothing, each with the schema of what it takes and gives", async () => {
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      ...["check_grade", "plan_route", "evaluate_answer", "check_exposure", "search_capabilities"],
    ]);
    for (const { annotations, inputSchema, outputSchema, description } of tools) {
      expect(annotations).toMatchObject({ readOnlyHint: true, destructiveHint: false });
      expect([inputSchema.type, outputSchema?.type, description!.length > 40]).toEqual(["object", "object", true]);
    }
    const check = tools.find(({ name }) => name === "check_grade")!;
    expect(Object.keys(check.inputSchema.properties!)).toEqual(["url", "method", "pay_to"]);
    expect(check.inputSchema.required).toEqual(["url"]);
  });

  test("check_grade gives the signed answer of /v1/check", async () => {
    const pay_to = "0x1111111111111111111111111111111111111111";
    const result = await client.callTool({ name: "check_grade", arguments: { url: SUM.url, pay_to } });
    const answer = CheckAnswer.parse(result.structuredContent);
    expect(answer).toMatchObject({ band: "B", capabilityId: capOf(SUM), matched: "exact" });
    expect(verifyObject(record.jwks, answer, { purpose: "answers", at: answer.answered_at }).ok).toBe(true);
    expect(JSON.parse(textOf(result))).toEqual(answer);
  });

  test("check_exposure gives the signed report of /v1/exposure", async () => {
    const dependencies = [SUM.url, { url: FAIL.url, calls_per_month: 10 }];
    const result = await client.callTool({ name: "check_exposure", arguments: { dependencies } });
    const report = ExposureReport.parse(result.structuredContent);
    expect(report.lines.map(({ band }) => band)).toEqual(["B", "F"]);
    expect(verifyObject(record.jwks, report, { purpose: "answers", at: report.answered_at }).ok).toBe(true);
    const bad = await client.callTool({ name: "check_exposure", arguments: { dependencies: [{ url: "x", c: 1 }] } });
    expect([bad.isError, textOf(bad)]).toEqual([true, expect.stringContaining("url")]);
  });

  test("plan_route gives the plan of /v1/route/plan", async () => {
    const need = { need: "numbers", max_price: "1.00", limit: 3 };
    const result = await client.callTool({ name: "plan_route", arguments: need });
    const plan = PlanAnswer.parse(result.structuredContent);
    expect(plan.candidates).toMatchObject([{ capability_id: capOf(SUM), band: "B", retry: "safe" }]);
    expect(JSON.parse(textOf(result))).toEqual(plan);
    const post = { method: "POST", body: JSON.stringify(need) };
    expect(await (await fetch(new URL("/v1/route/plan", live.url), post)).json()).toEqual(plan);
    const bad = await client.callTool({ name: "plan_route", arguments: { need: " ", limit: 0 } });
    expect([bad.isError, textOf(bad)]).toEqual([true, expect.stringMatching(/need|limit/)]);
  });

  test("evaluate_answer gives the evaluation of /v1/evaluate", async () => {
    const asked = { capability_id: capOf(SUM), status: 200, content_type: "application/json", body: '{"total":5}' };
    const result = await client.callTool({ name: "evaluate_answer", arguments: asked });
    const answer = EvaluateAnswer.parse(result.structuredContent);
    expect(answer).toMatchObject({ pass: false, held_against: { class: "arithmetic", class_from: "record" } });
    const post = { method: "POST", body: JSON.stringify(asked) };
    expect(await (await fetch(new URL("/v1/evaluate", live.url), post)).json()).toEqual(answer);
    const good = await client.callTool({ name: "evaluate_answer", arguments: { ...asked, body: '{"sum":5}' } });
    expect(good.structuredContent).toMatchObject({ pass: true });
    const unknown = { ...asked, capability_id: `cap_${"0".repeat(26)}` };
    const bad = await client.callTool({ name: "evaluate_answer", arguments: unknown });
    expect([bad.isError, JSON.parse(textOf(bad)).type]).toEqual([true, "/docs/api#unknown-capability"]);
    const both = await client.callTool({ name: "evaluate_answer", arguments: { status: 200, body: "", base64: "" } });
    expect([both.isError, textOf(both)]).toEqual([true, expect.stringContaining("base64")]);
  });

  test("a bad question is a result that says what is wrong, in the problem's words and with no stack", async () => {
    for (const bad of [{ url: "javascript:alert(1)" }, { url: "x" }, {}, { url: SUM.url, method: "PUT" }]) {
      const result = await client.callTool({ name: "check_grade", arguments: bad });
      const text = textOf(result);
      expect([bad, result.isError]).toEqual([bad, true]);
      expect(text).toMatch(/url|method/);
      expect(text).not.toMatch(/\.ts|\bat \w+ \(/);
    }
    // An answer that repeats half a character has no canonical bytes, so nobody could verify it.
    const halves = { url: `${SUM.url}?q=\ud800` };
    const half = await client.callTool({ name: "check_grade", arguments: halves });
    expect([half.isError, textOf(half)]).toEqual([true, expect.stringContaining("must be whole Unicode text")]);
    const result = await client.callTool({ name: "check_grade", arguments: { url: "javascript:alert(1)" } });
    expect(ProblemDocument.parse(JSON.parse(textOf(result)))).toMatchObject({
      type: "/docs/api#bad-request",
      errors: [{ pointer: "/url" }],
    });
  });
});

describe("what stock clients send and read", () => {
  let client: Client;
  beforeAll(async () => {
    client = await connected("auto");
  });
  afterAll(() => client.close());
  const asked = async (name: string, input: Record<string, unknown>) => {
    const result = await client.callTool({ name, arguments: input });
    return { wrong: result.isError === true, text: textOf(result) };
  };

  test.each<[string, Record<string, unknown>]>([
    ["check_grade", { url: SUM.url, method: null, pay_to: null }],
    ["check_exposure", { dependencies: [{ url: SUM.url, calls_per_month: null, pay_to: null }] }],
    ["search_capabilities", { q: null, class: null, band: null, max_price: null, limit: null }],
    ["plan_route", { need: "sum", class: null, max_price: null, min_band: null, max_latency_ms: null, method: null }],
    ["evaluate_answer", { status: 200, body: "{}", base64: null, schema: null, mime: null, capability_id: null }],
  ])("%s: an optional argument that is null is absent", async (name, input) => {
    const bare = JSON.parse(JSON.stringify(input), (_, value) => (value === null ? undefined : value));
    expect(await asked(name, input)).toMatchObject({ wrong: false });
    const without = (text: string) => text.replace(/"(?:answered_at|signature)":"[^"]*"/g, "");
    expect(without((await asked(name, input)).text)).toBe(without((await asked(name, bare)).text));
  });

  test("null inside of a schema that is sent is a value", async () => {
    const schema = { type: "object", properties: { a: { enum: [null] } }, required: ["a"] };
    const sent = { status: 200, content_type: "application/json", schema };
    expect((await asked("evaluate_answer", { ...sent, body: '{"a":null}' })).text).toContain('"schema_ok":true');
    expect((await asked("evaluate_answer", { ...sent, body: '{"a":1}' })).text).toContain('"schema_ok":false');
  });

  test.each<[string, Record<string, unknown>, Record<string, string>]>([
    ["check_grade", {}, { "/url": "must be given" }],
    ["check_grade", { url: null }, { "/url": "must be given" }],
    ["check_grade", { url: 5 }, { "/url": "must be a text" }],
    ["check_grade", { url: SUM.url, method: "PUT" }, { "/method": "must be GET or POST" }],
    ["check_exposure", {}, { "/dependencies": "must be an array of urls and objects" }],
    [
      "check_exposure",
      { dependencies: [SUM.url, { url: SUM.url, calls_per_month: "9" }, { url: SUM.url, calls: 9 }] },
      {
        "/dependencies/1/calls_per_month": "must be a number from 0 to 1000000000",
        "/dependencies/2/calls": "is not a member that is accepted here",
      },
    ],
    ["check_grade", { url: SUM.url, payTo: PAYEE }, { "/payTo": "is not a member that is accepted here" }],
    ["search_capabilities", { maxPrice: "0.000001" }, { "/maxPrice": "is not a member that is accepted here" }],
    ["search_capabilities", { q: 1, limit: "3" }, { "/q": "must be a text", "/limit": "must be a number" }],
    ["plan_route", { need: "sum", limit: 2.5 }, { "/limit": "must be a whole number" }],
    [
      "evaluate_answer",
      { status: 200, schema: "{}", extra: 1 },
      {
        "/schema": "must be a JSON Schema: an object, or true or false",
        "/extra": "is not a member that is accepted here",
      },
    ],
  ])("%s of %j says of each argument what is wrong with it", async (name, input, wrong) => {
    const { text } = await asked(name, input);
    const { type, errors = [] } = ProblemDocument.parse(JSON.parse(text));
    expect(type).toBe("/docs/api#bad-request");
    expect(Object.fromEntries(errors.map(({ pointer, detail }) => [pointer, detail]))).toEqual(wrong);
  });

  test("no tool takes an argument that it does not have", async () => {
    for (const { name } of (await client.listTools()).tools) {
      const { text } = await asked(name, { utm_source: "x" });
      const { errors = [] } = ProblemDocument.parse(JSON.parse(text));
      expect([name, errors.map(({ pointer }) => pointer)]).toEqual([name, expect.arrayContaining(["/utm_source"])]);
    }
  });

  test("no schema of a tool has a word that a converter turns away", async () => {
    const { tools } = await client.listTools();
    const found = new Set<string>();
    const walk = (value: unknown, isNames = false): void => {
      if (typeof value !== "object" || value === null) return;
      for (const [name, one] of Object.entries(value)) {
        if (!isNames && !Array.isArray(value)) found.add(name);
        // Under `properties` stand names of ours, and a schema that is `{}` or a boolean says nothing of its member.
        if (isNames) expect([name, typeof one, Object.keys(one as object).length > 0]).toEqual([name, "object", true]);
        walk(one, !isNames && name === "properties");
      }
    };
    for (const { inputSchema, outputSchema } of tools) {
      expect([inputSchema.type, outputSchema?.type]).toEqual(["object", "object"]);
      walk([inputSchema, outputSchema]);
    }
    expect(found).toContain("pattern");
    for (const word of ["additionalProperties", "propertyNames", "not", "$ref", "if", "dependentRequired"])
      expect(found).not.toContain(word);
  });
});

describe("search_capabilities", () => {
  let client: Client;
  beforeAll(async () => {
    client = await connected("auto");
  });
  afterAll(() => client.close());
  const found = async (input: Record<string, unknown>) => {
    const result = await client.callTool({ name: "search_capabilities", arguments: input });
    const { capabilities, more } = SearchAnswer.parse(result.structuredContent);
    return { urls: capabilities.map(({ url }) => url), more, capabilities };
  };

  test("letters first, then the unknown, then what failed", async () => {
    expect((await found({})).urls).toEqual([DEAR.url, SUM.url, NEW.url, FAIL.url]);
    const two = await found({ limit: 2 });
    expect([two.urls, two.more]).toEqual([[DEAR.url, SUM.url], true]);
    expect((await found({ limit: 4 })).more).toBe(false);
  });

  test.each<[string, Record<string, unknown>, string[]]>([
    ["every word has to be there, in any case", { q: "NUMBERS adds" }, [DEAR.url, SUM.url]],
    ["words of the address count", { q: "fail.example" }, [FAIL.url]],
    ["a class", { class: "arithmetic" }, [DEAR.url, SUM.url]],
    ["a letter takes the better ones too", { band: "B" }, [DEAR.url, SUM.url]],
    ["the best one takes no other", { band: "A" }, [DEAR.url]],
    ["UNRATED is no letter", { band: "UNRATED" }, [NEW.url]],
    ["a price leaves out the dear, the other asset and the unpriced", { max_price: "0.05" }, [SUM.url]],
    ["nothing", { q: "no such words" }, []],
  ])("%s", async (_, input, urls) => {
    expect((await found(input)).urls).toEqual(urls);
  });

  test("it says of each what a check says: of a card whose records were withdrawn no letter", async () => {
    const gone = await servingOver(record, { logger });
    await record.live([rowOf(SUM, { withdrawn_since: 120 }), rowOf(DEAR), rowOf(NEW), rowOf(FAIL)]);
    await gone.follower.refresh();
    const ask = { name: "search_capabilities", arguments: { q: "sum" } };
    const message = { jsonrpc: "2.0", id: 1, method: "tools/call", params: ask };
    const [{ result }] = (await answersIn<{ result: { structuredContent: SearchAnswer } }>(
      await post(gone.app, message),
    )) as [{ result: { structuredContent: SearchAnswer } }];
    const sum = result.structuredContent.capabilities.find(({ url }) => url === SUM.url)!;
    expect([sum.band, sum.why]).toEqual(["UNRATED", "UNRATED: every record it stood on was withdrawn."]);
  });
});

const HEADERS = {
  host: "touchstone.test",
  "content-type": "application/json",
  accept: "application/json, text/event-stream",
};
type App = { request(path: string, init: RequestInit): Response | Promise<Response> };
const post = async (app: App, message: unknown, headers: Record<string, string> = {}): Promise<Response> =>
  app.request("/mcp", {
    method: "POST",
    headers: { ...HEADERS, ...headers },
    body: typeof message === "string" ? message : JSON.stringify(message),
  });
/** The answers in a body: JSON, or of the older era events. */
const answersIn = async <T>(response: Response): Promise<T[]> => {
  const text = await response.text();
  const events = text.split("\n").filter((line) => line.startsWith("data: "));
  return events.length > 0 ? events.map((line) => JSON.parse(line.slice(6)) as T) : [JSON.parse(text)].flat();
};
const ping = (id: number) => ({ jsonrpc: "2.0", id, method: "ping" });
const check = (id: number) => ({
  ...{ jsonrpc: "2.0", id, method: "tools/call" },
  params: { name: "check_grade", arguments: { url: SUM.url } },
});

describe("what is refused before it is looked at", () => {
  test.each<[string, Record<string, string>, number]>([
    ["its own name", { host: "touchstone.test" }, 200],
    ["this machine's", { host: "localhost:8402" }, 200],
    ["its own page", { origin: "https://touchstone.test" }, 200],
    ["a name that leads here", { host: "evil.example" }, 403],
    ["another page", { origin: "https://evil.example" }, 403],
    ["a page of nowhere", { origin: "null" }, 403],
  ])("asked by %s", async (_, headers, status) => {
    const { app } = await servingOver(record, { logger });
    const response = await post(app, ping(1), headers);
    expect(response.status).toBe(status);
    if (status === 403) expect(ProblemDocument.parse(await response.json()).type).toBe("/docs/api#forbidden");
  });

  test("over a socket too, where the name is what was sent", async () => {
    const asked = (host: string): Promise<number> =>
      new Promise((resolve, reject) => {
        const { port } = address();
        const sent = request({ port, host: "127.0.0.1", path: "/mcp", method: "POST", headers: { ...HEADERS, host } });
        sent.on("response", (response) => resolve(response.resume().statusCode!)).on("error", reject);
        sent.end(JSON.stringify(ping(1)));
      });
    expect([await asked("evil.example"), await asked("localhost")]).toEqual([403, 200]);
  });

  test.each<[string, unknown, number]>([
    ["no JSON", "{", 400],
    ["more than a megabyte", `"${"x".repeat(1024 * 1024)}"`, 413],
    ["a batch of too many", JSON.stringify(Array.from({ length: 21 }, (_, i) => ping(i))), 400],
  ])("%s", async (_, body, status) => {
    const { app } = await servingOver(record, { logger });
    const response = await app.request("/mcp", { method: "POST", headers: HEADERS, body: String(body) });
    expect(response.status).toBe(status);
    ProblemDocument.parse(await response.json());
  });

  test("no message makes a 5xx, whatever its shape", async () => {
    const { app } = await servingOver(record, { logger, limits: { checks_per_minute: 1e6 } });
    const depths = [500, 400_000].map((n) => "[".repeat(n) + "]".repeat(n));
    const deep = depths.flatMap((one) => [one, JSON.stringify({ ...check(1), params: "HERE" }).replace('"HERE"', one)]);
    const odd = [null, 1, "x", {}, [], [[]], { jsonrpc: "1.0" }, { ...ping(1), method: "nothing" }, ...deep];
    const params = [null, [], { name: 1 }, { name: "__proto__" }, { name: "check_grade", arguments: [] }];
    const calls = params.map((one) => ({ ...check(1), params: one }));
    const listen = { ...ping(1), method: "subscriptions/listen", params: {} };
    for (const message of [...odd, ...calls, listen, [check(1), check(2)]]) {
      const response = await post(app, message);
      await response.text();
      expect(response.status).toBeLessThan(500);
    }
    expect(errors).toEqual([]);
  });

  test("who asks too often is told when to come again; a batch costs what its messages cost", async () => {
    const clock = new ManualClock();
    const { app } = await servingOver(record, { logger, clock, limits: { checks_per_minute: 6 } });
    const batch = await post(app, [1, 2, 3, 4, 5].map(check));
    expect([batch.status, (await answersIn(batch)).length]).toEqual([200, 5]);
    expect((await post(app, check(6))).status).toBe(200);
    const refused = await post(app, check(7));
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "10"]);
    clock.pass(10_000);
    expect((await post(app, check(8))).status).toBe(200);
  });

  test("reports are limited as the operation is, whoever asks by a tool", async () => {
    const { app } = await servingOver(record, { logger, limits: { exposures_per_minute: 1 } });
    const report = { ...check(1), params: { name: "check_exposure", arguments: { dependencies: [SUM.url] } } };
    const said = async () => (await (await post(app, report)).text()).includes("too-many-requests");
    expect([await said(), await said()]).toEqual([false, true]);
  });

  test("evaluations are limited as the operation is, and a plan of a server that sells nothing says so", async () => {
    const { app } = await servingOver(record, { logger, limits: { evaluations_per_minute: 1 } });
    const tool = (name: string, args: object) => ({ ...check(1), params: { name, arguments: args } });
    const said = async (message: object) => (await post(app, message)).text();
    expect(await said(tool("evaluate_answer", { status: 204 }))).not.toContain("too-many-requests");
    expect(await said(tool("evaluate_answer", { status: 204 }))).toContain("at most 1 evaluations in 60 s");
    expect(await said(tool("plan_route", { need: "sum" }))).toContain("/docs/api#unavailable");
  });

  test("before the record was read a tool says so and no more", async () => {
    const { clock } = await servingOver(record);
    const { store, metrics } = record;
    const tree = new PublishedTree(store, record.trust);
    const follower = new Follower({ tree, store, clock, logger, metrics, origin: ORIGIN });
    const unread = await servingOver(record, { follower, logger });
    const [{ result }] = (await answersIn(await post(unread.app, check(1)))) as [
      { result: { isError: boolean; content: { text: string }[] } },
    ];
    expect([result.isError, JSON.parse(textOf(result)).type]).toEqual([true, "/docs/api#not-ready"]);
    expect(unread.log.records).toEqual([]);
  });

  test("our own fault is a result that tells nothing, and is in our log", async () => {
    const answers = {
      ...record.keys.answers,
      sign: () => {
        throw new Error("secret path /etc/keys");
      },
    };
    const broken = await servingOver(record, { logger, answers });
    const text = await (await post(broken.app, check(1))).text();
    expect(text).toContain("internal");
    expect(text).not.toMatch(/secret|\.ts/);
    expect(errors.splice(0)).toHaveLength(1);
  });
});

/** The protocol's own conformance suite, as a process of its own against the live server. */
describe("official conformance", () => {
  const CLI = join(import.meta.dirname, "../../node_modules/.bin/conformance");
  const run = async (url: string, scenario: string): Promise<{ code: number; out: string }> => {
    const dir = await mkdtemp(join(tmpdir(), "conformance-"));
    const args = ["server", "--url", url, "--scenario", scenario, "--output-dir", dir];
    const done = await new Promise<{ code: number; out: string }>((resolve) =>
      execFile(CLI, args, (error, stdout, stderr) =>
        resolve({ code: error ? Number(error.code ?? 1) : 0, out: `${stdout}${stderr}` }),
      ),
    );
    await rm(dir, { recursive: true, force: true });
    return done;
  };

  test.each(["server-initialize", "ping", "tools-list", "dns-rebinding-protection"])("%s", async (scenario) => {
    const { code, out } = await run(address().href, scenario);
    expect([code, out]).toEqual([0, expect.stringMatching(/passed/i)]);
  });

  test("a server that is none fails it", async () => {
    expect((await run(new URL("/livez", live.url).href, "ping")).code).not.toBe(0);
  });
});
