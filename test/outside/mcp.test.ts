import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { type LiveService, liveService } from "../helpers/client.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { PYTHON } from "./judges.ts";

/**
 * The tools of /mcp for the official Python client, and for what others make of their schemas: LangChain and OpenAI's agents
 * (strict mode), Google's, and zod.
 */
const SUM = { url: "https://seller.example/sum", class: "arithmetic" };
const CALLS: [string, Record<string, unknown>][] = [
  ["check_grade", { url: SUM.url, method: null, pay_to: null }],
  ["check_exposure", { dependencies: [SUM.url, { url: SUM.url, calls_per_month: null, pay_to: null }] }],
  ["search_capabilities", { q: "sum", class: null, band: null, max_price: null, limit: null }],
  ["evaluate_answer", { status: 200, body: "{}", base64: null, schema: null, class: "arithmetic" }],
  ["check_exposure", { dependencies: [{ url: SUM.url, calls_per_month: "many" }] }],
];
let record: PublicRecord;
let live: LiveService;
let said: { converted: Record<string, Record<string, string>>; answers: [boolean, string][] };

beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM, { band: "B" })], "B."));
  await record.live([rowOf(SUM)]);
  live = await liveService(record);
  const script = join(import.meta.dirname, "python/mcp_tools.py");
  const { stdout } = await promisify(execFile)(PYTHON, [script, `${live.url}/mcp`, JSON.stringify(CALLS)]);
  said = JSON.parse(stdout);
});
afterAll(async () => {
  await live?.close();
  await record?.close();
});

test("every tool is taken by every converter of Python", () => {
  const taken = { "langchain, strict": "converted", "openai-agents, strict": "converted", "google-genai": "converted" };
  const names = ["check_exposure", "check_grade", "evaluate_answer", "plan_route", "search_capabilities"];
  expect(said.converted).toEqual(Object.fromEntries(names.map((name) => [name, taken])));
});

test("the official client of Python has its questions answered, null or not, and its result follows the tool's schema", () => {
  expect(said.answers.slice(0, 4).map(([wrong]) => wrong)).toEqual([false, false, false, false]);
  expect(JSON.parse(said.answers[0]![1])).toMatchObject({ band: "B", matched: "exact" });
});

test("it is told which of its arguments was wrong, and how", () => {
  const [wrong, text] = said.answers[4]!;
  const detail = "must be a number from 0 to 1000000000";
  expect([wrong, JSON.parse(text).errors]).toEqual([true, [{ pointer: "/dependencies/0/calls_per_month", detail }]]);
});

test("zod makes a schema of each tool's schema, which takes what the tool takes", async () => {
  const client = new Client({ name: "test", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", live.url)));
  const { tools } = await client.listTools();
  await client.close();
  const made = new Map(tools.map(({ name, inputSchema, outputSchema }) => [name, [inputSchema, outputSchema]]));
  const read = (name: string, side: 0 | 1) => z.fromJSONSchema(made.get(name)![side] as z.core.JSONSchema.JSONSchema);
  for (const [i, [name, input]] of CALLS.slice(0, 4).entries()) {
    const bare = JSON.parse(JSON.stringify(input), (_, value) => (value === null ? undefined : value));
    expect([name, read(name, 0).safeParse(bare).success]).toEqual([name, true]);
    expect([name, read(name, 1).safeParse(JSON.parse(said.answers[i]![1])).success]).toEqual([name, true]);
  }
  expect(read("check_grade", 0).safeParse({ url: "short" }).success).toBe(false);
});
