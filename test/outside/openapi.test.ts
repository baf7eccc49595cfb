import { execFile } from "node:child_process";
import { cp, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { marketBeside, type Replica, sellingOver } from "../helpers/buying.ts";
import { capOf } from "../helpers/public-record.ts";

/**
 * Clients that generators of others make of /openapi.json: oapi-codegen (Go) and openapi-typescript with openapi-fetch. They
 * compile as they come, and ask a service over the sellers and the chain of the demo.
 */
const HERE = import.meta.dirname;
const TSX = resolve(HERE, "../../node_modules/.bin/tsx");
const run = promisify(execFile);
let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let url: string;
let cap: string;
let dir: string;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "openapi-"));
  world = await marketBeside();
  const { urls, payTo } = world.sellers.find(({ name }) => name === "honest-v2")!;
  url = urls[0]!;
  cap = capOf({ url });
  service = await sellingOver(world, [{ url, payTo, price: "0.010000", class: "arithmetic", description: "a sum" }]);
  await writeFile(join(dir, "openapi.json"), await (await fetch(`${service.url}/openapi.json`)).text());
});
afterAll(async () => {
  await service?.close();
  await world?.close();
  await rm(dir, { recursive: true, force: true });
});

/** What both clients read. */
const answers = () => ({
  check: ["B", "exact", true],
  again: 304,
  bad: "/url",
  index: ["B"],
  feed: expect.stringMatching(/\/v1\/trust\/feed\?cursor=.*rel="next"/),
  trust: cap,
  archive: "svc.archive.list.v1",
  exposure: "lettered",
  evaluate: ["svc.evaluation.v1", true, null],
  plan: cap,
  via: [1, true],
  execute: 402,
});

test("oapi-codegen: the client compiles, vets and asks", async () => {
  const cwd = join(dir, "go");
  await cp(join(HERE, "go/api"), cwd, { recursive: true });
  await run("go", ["tool", "oapi-codegen", "-config", "config.yaml", "../openapi.json"], { cwd });
  await run("go", ["vet", "."], { cwd });
  await run("go", ["build", "-o", "ask", "."], { cwd });
  const { stdout } = await run(join(cwd, "ask"), [service.url, url, cap]);
  expect(JSON.parse(stdout)).toEqual(answers());
});

/** As its reader would write it, with the types as they come: members with a default are required in bodies there. */
const PROGRAM = `
import createClient from "openapi-fetch";
import type { components, paths } from "./api.ts";

declare const process: { argv: string[] };

const [baseUrl, url, id] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl });
const check = await client.GET("/v1/check", { params: { query: { url } } });
const etag = check.response.headers.get("etag")!;
const again = await client.GET("/v1/check", { params: { query: { url }, header: { "If-None-Match": etag } } });
const bad = await client.GET("/v1/check", { params: { query: { url: "seller.example" } } });
const index = await client.GET("/v1/trust/index", { parseAs: "text" });
const lines = index.data!.trim().split("\\n").map((line) => JSON.parse(line) as components["schemas"]["IndexLine"]);
const feed = await client.GET("/v1/trust/feed", { parseAs: "text" });
const trust = await client.GET("/v1/trust/{id}", { params: { path: { id } } });
const archive = await client.GET("/v1/archive", { params: { query: { page: 1 } } });
const exposure = await client.POST("/v1/exposure", { body: { dependencies: [url] } });
const evaluation = await client.POST("/v1/evaluate", { body: { status: 200, body: '{"sum":5}', class: "arithmetic" } });
const plan = await client.POST("/v1/route/plan", { body: { need: "sum", limit: 5 } });
const header = { "Touchstone-Publish": "true" } as const;
const via = await client.GET("/v1/via/{capability_id}", { params: { path: { capability_id: id }, header } });
const execute = await client.POST("/v1/route/execute", { body: { need: "arithmetic", max_total: "1.00", deadline_s: 30 } });
const terms = via.error as components["schemas"]["PaymentTerms"];
console.log(
  JSON.stringify({
    check: [check.data!.band, check.data!.matched, check.response.headers.has("ratelimit")],
    again: again.response.status,
    bad: (bad.error as components["schemas"]["Problem"]).errors![0]!.pointer,
    index: lines.map(({ band }) => band),
    feed: feed.response.headers.get("link"),
    trust: trust.data!.scorecards[0]!.capability_id,
    archive: archive.data!.schema,
    exposure: exposure.data!.lines[0]!.standing,
    evaluate: [evaluation.data!.schema, evaluation.data!.pass, evaluation.data!.schema_ok],
    plan: plan.data!.candidates[0]!.capability_id,
    via: [terms.x402Version, via.response.headers.has("payment-required")],
    execute: execute.response.status,
  }),
);
`;

test("openapi-typescript: the types compile under strict, and a client with them asks", async () => {
  const js = join(HERE, "js/node_modules");
  await symlink(js, join(dir, "node_modules"));
  await writeFile(join(dir, "package.json"), '{"type":"module"}');
  await writeFile(join(dir, "ask.ts"), PROGRAM);
  await run(join(js, ".bin/openapi-typescript"), ["openapi.json", "-o", "api.ts"], { cwd: dir });
  const how = ["--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler"];
  const checked = run(join(js, ".bin/tsc"), [...how, "--allowImportingTsExtensions", "--skipLibCheck", "ask.ts"], {
    cwd: dir,
  });
  await checked.catch((error: { stdout: string }) => expect(error.stdout).toBe(""));
  const { stdout } = await run(TSX, ["ask.ts", service.url, url, cap], { cwd: dir });
  expect(JSON.parse(stdout)).toEqual(answers());
});
