import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { type Serving, serve } from "../../serving/main.ts";
import { capOf, cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver } from "../helpers/serving.ts";

/** Every snippet of the pages for integrators does what its page says, against a live server. */
const SUM = { url: "https://seller.example/sum" };
const FAIL = { url: "https://fail.example/x" };
const NEW = { url: "https://new.example/x" };
let record: PublicRecord;
let live: Serving;
let dir: string;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    [SUM, FAIL, NEW].map((one) => listingDraft(one)),
    record.grades([cardOf(SUM)], "B: it delivers."),
    record.grades([cardOf(FAIL, { band: "F" })], "F: it took the money."),
  );
  await record.live([SUM, FAIL, NEW].map((one) => rowOf(one)));
  live = await serve({ app: (await servingOver(record)).app, port: 0, host: "127.0.0.1", graceMs: 200 });
  dir = await mkdtemp(join(tmpdir(), "snippets-"));
});
afterAll(async () => {
  await live.close();
  await record.close();
  await rm(dir, { recursive: true, force: true });
});

/** The blocks of a page in one language, with the live server where HOST stands. */
async function blocksOf(page: string, language: string): Promise<string[]> {
  const text = await readFile(join(import.meta.dirname, `../../docs/${page}.md`), "utf8");
  const blocks = [...text.matchAll(/^```(\w+)\n(.*?)\n```$/gms)].filter(([, kind]) => kind === language);
  return blocks.map(([, , block]) => block!.replaceAll("https://HOST", live.url));
}

const run = promisify(execFile);
async function printed(page: string, args: string[] = []): Promise<string> {
  const [script] = await blocksOf(page, "js");
  const file = join(dir, `${page}.mjs`);
  await writeFile(file, script!);
  return (await run(process.execPath, [file, ...args])).stdout;
}

describe("integrations", () => {
  test("the guard lets pay what is good enough or unknown, and refuses what failed or is below the letter", async () => {
    const [script] = await blocksOf("integrations", "js");
    const { guard } = (await import(`data:text/javascript,${encodeURIComponent(script!)}`)) as {
      guard(url: string, payTo?: string, options?: { atLeast?: string; host?: string }): Promise<{ band: string }>;
    };
    const payTo = "0x1111111111111111111111111111111111111111";
    expect((await guard(SUM.url, payTo)).band).toBe("B");
    expect((await guard(NEW.url)).band).toBe("UNRATED");
    await expect(guard(FAIL.url, payTo)).rejects.toThrow("refused: F: it took the money.");
    await expect(guard(SUM.url, payTo, { atLeast: "A" })).rejects.toThrow("refused");
    await expect(guard("javascript:1", payTo)).rejects.toThrow("not checked");
    await expect(guard(SUM.url, payTo, { host: "http://127.0.0.1:1" })).rejects.toThrow();
  });

  test("the MCP configuration leads to the server", async () => {
    const [config] = await blocksOf("integrations", "json");
    const { mcpServers } = JSON.parse(config!) as { mcpServers: { touchstone: { url: string } } };
    const client = new Client({ name: "test", version: "1.0.0" });
    await client.connect(new StreamableHTTPClientTransport(new URL(mcpServers.touchstone.url)));
    expect((await client.listTools()).tools.length).toBeGreaterThan(1);
    await client.close();
  });
});

test("facilitator: letters by method and url from one read", async () => {
  const lines = (await printed("facilitator")).trim().split("\n");
  expect(lines.sort()).toEqual([
    `GET ${FAIL.url} F OUTCOME_VERIFIED 120`,
    `GET ${NEW.url} UNRATED null 0`,
    `GET ${SUM.url} B OUTCOME_VERIFIED 120`,
  ]);
});

test("reports: what is new since the cursor, and then nothing", async () => {
  const first = await printed("reports");
  expect(first).toContain(`${capOf(FAIL)} F OUTCOME_VERIFIED: F: it took the money.`);
  const [, cursor] = /^next: (\S+)$/m.exec(first)!;
  expect(await printed("reports", [cursor!])).toBe(`next: ${cursor}\n`);
  await expect(printed("reports", ["0123456789abcdef:0"])).rejects.toThrow("this log is");
});

describe.each([
  ["skill", ["name", "description"]],
  ["cursor-rule", ["description", "globs", "alwaysApply"]],
])("%s", (page, members) => {
  test("is a file with its head, and what it asks is there", async () => {
    const [file] = await blocksOf(page, "markdown");
    const [, head] = /^---\n(.*?)\n---\n/s.exec(file!)!;
    expect(Object.keys(parse(head!) as object)).toEqual(members);
    const addresses = file!.match(/http:\/\/127[^\s`?),]+/g)!;
    expect(addresses.length).toBeGreaterThan(0);
    for (const address of addresses) {
      const path = new URL(address).pathname;
      const asked = path === "/v1/check" ? checkPath({ url: SUM.url, method: "GET" }) : path;
      expect([path, (await fetch(new URL(asked, live.url))).status]).toEqual([path, 200]);
    }
  });

  test("names only members that an answer has", async () => {
    const [file] = await blocksOf(page, "markdown");
    const answer = (await (await fetch(new URL(checkPath({ url: SUM.url }), live.url))).json()) as object;
    const words = ["band", "why", "defects", "payee"].filter((word) => file!.includes(`\`${word}\``));
    expect(words.length).toBeGreaterThan(1);
    for (const word of words) expect(answer).toHaveProperty(word);
  });
});

test.each(["integrations", "facilitator", "skill", "cursor-rule", "reports"])(
  "/docs/%s is a page, linked from the list of all",
  async (page) => {
    const response = await fetch(new URL(`/docs/${page}`, live.url));
    expect([response.status, response.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
    const html = await (await fetch(new URL("/docs", live.url))).text();
    expect(html).toContain(`href="/docs/${page}"`);
  },
);
