import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Serving, serve } from "../../serving/main.ts";
import type { CheckAnswer } from "../../serving/schemas/check.ts";
import type { ExposureReport } from "../../serving/schemas/exposure.ts";
import type { SearchAnswer } from "../../serving/schemas/search.ts";
import { capOf, cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver } from "../helpers/serving.ts";

/** One sentence, wherever somebody reads of an endpoint: the leaf's own. */
const SUM = { url: "https://seller.example/sum", description: "Adds two numbers" };
const WHY =
  'F: it took 0.35 in 28 paid calls and answered nothing, last on 14 November 2026; "so" & <so>. Composite 0.412.';

let record: PublicRecord;
let live: Serving;
let client: Client;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM, { band: "F" })], WHY));
  await record.live([rowOf(SUM)]);
  live = await serve({ app: (await servingOver(record)).app, port: 0, host: "127.0.0.1", graceMs: 200 });
  client = new Client({ name: "test", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", live.url)));
});
afterAll(async () => {
  await client.close();
  await live.close();
  await record.close();
});

const get = (path: string): Promise<Response> => fetch(new URL(path, live.url));
/** Texts of a page between its tags, as a reader sees them. */
const seen = (html: string): string =>
  html
    .replace(/<[^>]+>/g, "\n")
    .replaceAll("&quot;", '"')
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&amp;", "&");

test("the check, the index, an exposure line and the feed", async () => {
  const check = (await (await get(checkPath({ url: SUM.url }))).json()) as CheckAnswer;
  expect(check.why).toBe(WHY);
  expect(JSON.parse((await (await get("/v1/trust/index")).text()).split("\n")[0]!)).toMatchObject({ why: WHY });
  const feed = (await (await get("/v1/trust/feed")).text()).trim().split("\n");
  expect(feed.map((line) => (JSON.parse(line) as { why: string }).why)).toContain(WHY);
  const body = JSON.stringify({ dependencies: [SUM.url] });
  const headers = { "content-type": "application/json" };
  const report = await fetch(new URL("/v1/exposure", live.url), { method: "POST", body, headers });
  expect(((await report.json()) as ExposureReport).lines[0]!.why).toBe(WHY);
});

test.each(["/", `/endpoint/${capOf(SUM)}`])("the page %s", async (path) => {
  expect(seen(await (await get(path)).text())).toContain(WHY);
});

test("both tools of the MCP server", async () => {
  const checked = await client.callTool({ name: "check_grade", arguments: { url: SUM.url } });
  expect((checked.structuredContent as CheckAnswer).why).toBe(WHY);
  const found = await client.callTool({ name: "search_capabilities", arguments: { q: "numbers" } });
  expect((found.structuredContent as SearchAnswer).capabilities[0]!.why).toBe(WHY);
});
