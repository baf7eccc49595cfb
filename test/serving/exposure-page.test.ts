import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { parseLines } from "../../serving/pages/exposure.ts";
import { capOf, cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";

const GOOD = { url: "https://good.example/x" };
const PAYEE = "0x1111111111111111111111111111111111111111";
const STRANGER = "0x2222222222222222222222222222222222222222";

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(GOOD)], record.grades([cardOf(GOOD)], "B on OUTCOME_VERIFIED."));
  await record.live([rowOf(GOOD)]);
});
afterAll(() => record.close());
beforeEach(async () => {
  serving = await servingOver(record, { limits: { exposures_per_minute: 100 } });
});

const send = (text: string, headers: Record<string, string> = {}): Promise<Response> =>
  serving.get("/exposure/report", {
    method: "POST",
    body: new URLSearchParams({ dependencies: text }).toString(),
    headers: { "content-type": "application/x-www-form-urlencoded", ...headers },
  });
const plain = (html: string): string =>
  html
    .replace(/<style>[\s\S]*?<\/style>/, "")
    .replace(/<[^>]+>/g, " ")
    .replace(/\s+/g, " ");

describe("the lines of the field", () => {
  test("are a url each, with calls, a price and an address after it in any order", () => {
    const text = `# mine\r\n${GOOD.url} 1000 ${PAYEE}\n\n  ${GOOD.url}\t${PAYEE} 2.5  \rcap_x $0.015 3\rcap_y $2`;
    expect(parseLines(text)).toEqual({
      dependencies: [
        { url: GOOD.url, calls_per_month: 1000, pay_to: PAYEE },
        { url: GOOD.url, calls_per_month: 2.5, pay_to: PAYEE },
        { url: "cap_x", calls_per_month: 3, price: "0.015" },
        { url: "cap_y", price: "2.0" },
      ],
      lines: [2, 4, 5, 6],
      errors: [],
    });
  });

  test.each(["a 1 2", `a ${PAYEE} ${PAYEE}`, "a -1 x", "a $1 $2"])("%j is told to be wrong, by its number", (line) => {
    expect(parseLines(`b\n${line}`).errors).toEqual([expect.stringMatching(/^Line 2: /)]);
  });
});

describe("the page of an exposure", () => {
  test("has a form that needs no script, and shows sums, payees and lines", async () => {
    expect(await (await serving.get("/exposure")).text()).toContain('<form method="post" action="/exposure/report">');
    const response = await send(`${GOOD.url} 1000\n${GOOD.url} 10 ${STRANGER}\nhttps://nobody.example/<script>`);
    const html = await response.text();
    expect([response.status, response.headers.get("cache-control")]).toEqual([200, "no-store"]);
    expect(html).not.toContain("<script");
    const text = plain(html);
    expect(text).toContain("Dependencies 3, paid at 2 known addresses Spend a month");
    expect(text).toContain("Address never seen there 1");
    expect(text).toContain(`${PAYEE} 1 1 20.00 0.00 0.00`);
    expect(html).toContain(`<a href="/endpoint/${capOf(GOOD)}">`);
    expect(text).toContain("B has a letter 0.02 1000 20.00 B on OUTCOME_VERIFIED.");
    expect(text).toContain("B has a letter address never seen there 0.02 10");
    expect(text).toContain("unrated not in the record: unknown – – – In line for a free handshake.");
    // What was asked stands in the field still.
    expect(html).toContain(`&lt;script&gt;</textarea>`);
  });

  test.each<[string, string, number, RegExp]>([
    ["nothing", "\n# only a remark\n", 400, /The field names no url/],
    ["no url", `${GOOD.url}\n\nnonsense`, 400, /Line 3: url /],
    ["a bad address", `${GOOD.url} 0x12`, 400, /Line 1: pay_to must be 0x and 40 hex digits/],
    ["two addresses", `${GOOD.url} ${PAYEE} ${PAYEE}`, 400, /Line 1: a url, calls a month, a price and one address/],
    ["too many", `${GOOD.url}\n`.repeat(201), 400, /must be at most 200/],
  ])("says of %s what is wrong, on the form", async (_what, text, status, says) => {
    const response = await send(text);
    const html = await response.text();
    expect([response.status, html.includes('role="alert"')]).toEqual([status, true]);
    expect(plain(html)).toMatch(says);
    expect(serving.log.records).toEqual([]);
  });

  test("takes nothing from another site's page, and no body past its bound", async () => {
    expect((await send("https://nobody.example/a", { "sec-fetch-site": "cross-site" })).status).toBe(400);
    expect((await send("x".repeat(600_000))).status).toBe(413);
    expect(serving.log.records).toEqual([]);
  });

  test("is limited as the operation is", async () => {
    serving = await servingOver(record, { limits: { exposures_per_minute: 1 } });
    expect((await send(GOOD.url)).status).toBe(200);
    expect((await send(GOOD.url)).status).toBe(429);
    serving = await servingOver(record, { limits: { dependencies_per_minute: 1 } });
    await send(GOOD.url);
    const response = await send(GOOD.url);
    expect([response.status, response.headers.get("retry-after")]).toEqual([429, "60"]);
    expect(await response.text()).toContain('role="alert"');
  });
});
