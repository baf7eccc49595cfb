import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { guard as clientGuard, Service } from "../../serving/client/index.ts";
import { type Serving, serve } from "../../serving/main.ts";
import type { CheckAnswer } from "../../serving/schemas/check.ts";
import { RULED, ruled } from "../agent-rules.ts";
import { now } from "../helpers/client.ts";
import { capOf, cardOf, listingDraft, PAYEE, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver } from "../helpers/serving.ts";

/** Every snippet of the pages for integrators, and the README's, does what its page says, against a live server. */
const SUM = { url: "https://seller.example/sum" };
const FAIL = { url: "https://fail.example/x" };
const NEW = { url: "https://new.example/x" };
/** It delivers well enough for a letter, and took the money of a few calls: only its flag tells. */
const THIEF = { url: "https://thief.example/x" };
/** Another endpoint that pays the thief's address; and one that asks for something other than its listing. */
const FRONT = { url: "https://front.example/x" };
const OTHER = { url: "https://other.example/x" };
const THIEF_PAYEE = `0x${"2".repeat(40)}`;
const ALL = [SUM, FAIL, NEW, THIEF, FRONT, OTHER];
let record: PublicRecord;
let live: Serving;
let dir: string;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    ALL.map((one) => listingDraft(one)),
    record.grades([cardOf(THIEF, { band: "C", flags: ["took_the_money"] })], "C: it took 0.02 in 1 of 40 paid calls."),
    record.grades([cardOf(FRONT)], "B: it delivers."),
    record.grades([cardOf(OTHER, { flags: ["listing_mismatch"] })], "B: it delivers."),
    record.grades([cardOf(SUM)], "B: it delivers."),
    record.grades([cardOf(FAIL, { band: "F" })], "F: it took the money."),
  );
  const thefts = JSON.stringify([{ pay_to: THIEF_PAYEE, days: [Date.parse("2026-11-19T08:00:00.000Z")] }]);
  await record.live([
    ...[SUM, FAIL, NEW, OTHER].map((one) => rowOf(one)),
    rowOf(THIEF, { pay_to: THIEF_PAYEE, thefts, unserved: 1, unserved_since: Date.parse("2026-11-19T08:00:00.000Z") }),
    rowOf(FRONT, { pay_to: THIEF_PAYEE }),
  ]);
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
    const answering = (body: string) => guard(SUM.url, payTo, { host: `data:application/json,${body}#` });
    expect((await answering('{"band":"D"}')).band).toBe("D");
    for (const body of ["{}", '{"status":"ok"}', "[]", '{"band":""}', '{"band":"A+"}', '{"band":null}'])
      await expect(answering(body), body).rejects.toThrow("refused: ");
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
    `GET ${FRONT.url} B OUTCOME_VERIFIED 120`,
    `GET ${NEW.url} UNRATED null 0`,
    `GET ${OTHER.url} B OUTCOME_VERIFIED 120`,
    `GET ${SUM.url} B OUTCOME_VERIFIED 120`,
    `GET ${THIEF.url} C OUTCOME_VERIFIED 120`,
  ]);
});

test("reports: what is new since the cursor, and then nothing", async () => {
  const first = await printed("reports");
  expect(first).toContain(`${capOf(FAIL)} F OUTCOME_VERIFIED: F: it took the money.`);
  const [, cursor] = /^next: (\S+)$/m.exec(first)!;
  expect(await printed("reports", [cursor!])).toBe(`next: ${cursor}\n`);
  await expect(printed("reports", ["0123456789abcdef:0"])).rejects.toThrow("this log is");
});

/** What a text for agents comes to: is this payment made? */
type Decides = (url: string, payTo: string) => Promise<boolean>;
const paid = (made: Promise<unknown>): Promise<boolean> =>
  made.then(
    () => true,
    (error: Error) => {
      expect(error.message).toMatch(/^(?:refused: |at most 0 a call: )/);
      return false;
    },
  );
const moduleOf = async (page: string): Promise<Record<string, (...args: never[]) => Promise<unknown>>> =>
  (await import(`data:text/javascript,${encodeURIComponent((await blocksOf(page, "js"))[0]!)}`)) as never;

/** An agent that does what the words say, and nothing more: the flags are read out of the text. */
async function orderText(page: string): Promise<Decides> {
  const [file] = await blocksOf(page, "markdown");
  const [, named] = /Whatever the letter, never pay where `flags` has ((?:`\w+`(?:, | or )?)+)/.exec(file!)!;
  const never = named!.match(/\w+_\w+/g)!;
  expect(file).toMatch(/F: it was paid and failed\. Do not pay|`band` F is refused/);
  return async (url, pay_to) => {
    const answer = (await (await fetch(new URL(checkPath({ url, pay_to }), live.url))).json()) as CheckAnswer;
    return answer.band !== "F" && !answer.flags?.some((flag) => never.includes(flag));
  };
}

const DECIDES: Record<keyof typeof RULED, () => Promise<Decides>> = {
  "README.md": async () => {
    const { mayPay } = await moduleOf("../README");
    return (url, payTo) => paid(mayPay!({ url, payTo, price: 0.01 } as never));
  },
  "docs/integrations.md": async () => {
    const { guard } = await moduleOf("integrations");
    return (url, payTo) => paid(guard!(...([url, payTo] as never[])));
  },
  "docs/skill.md": () => orderText("skill"),
  "docs/cursor-rule.md": () => orderText("cursor-rule"),
};

describe.each(Object.keys(RULED) as (keyof typeof RULED)[])("%s decides as the client's policy does", (page) => {
  let decides: Decides;
  beforeAll(async () => {
    decides = await DECIDES[page]();
  });

  test("its flags are those of the policy (npx tsx test/agent-rules.ts writes them)", () => {
    const { is, should } = ruled(page);
    expect(is).toBe(should);
  });

  test.each<[string, { url: string }, string, boolean]>([
    ["what is good", SUM, PAYEE, true],
    ["a url that nobody has seen", { url: "https://unseen.example/x" }, PAYEE, true],
    ["one without a letter", NEW, PAYEE, true],
    ["a thief with a letter", THIEF, THIEF_PAYEE, false],
    ["what failed", FAIL, PAYEE, false],
    ["a swapped payee", SUM, `0x${"9".repeat(40)}`, false],
    ["a thief's other endpoint", FRONT, THIEF_PAYEE, false],
    ["a url that nobody has seen, paid to the thief", { url: "https://unseen.example/y" }, THIEF_PAYEE, false],
    ["another price than its listing's", OTHER, PAYEE, false],
  ])("%s", async (_, { url }, payTo, pays) => {
    expect(await decides(url, payTo)).toBe(pays);
    // As the library decides with no setting at all.
    const asset = "0x036cbd53842c5426634e7929541ec2318f3dcf7e";
    const offer = { scheme: "exact", network: "eip155:84532", asset, amount: 10_000n, payTo, validFor_s: 60 };
    const decision = await clientGuard(new Service({ base: live.url, now }))({ url, method: "GET", offers: [offer] });
    expect([decision.outcome === "allowed", decision.says]).toEqual([pays, decision.says]);
  });
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

test.each(["verify-a-check.mjs", "verify-evidence.mjs", "sign-a-dispute.mjs", "receive-notices.mjs"])(
  "%s without arguments prints its usage, and no stack",
  async (script) => {
    const { code, stderr } = await promisify(execFile)(process.execPath, [`docs/${script}`], { env: {} }).then(
      (ran) => ({ code: 0, ...ran }),
      (error: { code: number; stderr: string }) => error,
    );
    expect([code, stderr.split("\n")]).toEqual([2, [expect.stringContaining(`node ${script} `), ""]]);
  },
);
