import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BANDS } from "../../pipelines/record/vocabulary.ts";
import { badgeSvg } from "../../serving/pages/badge.ts";
import { capOf, cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver, type TestServing } from "../helpers/serving.ts";

const GOOD = { url: "https://good.example/x" };
const WITHDRAWN = { url: "https://withdrawn.example/x" };
const LISTED = { url: "https://listed.example/x" };
const UNKNOWN = `cap_${"0".repeat(26)}`;

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    ...[GOOD, WITHDRAWN, LISTED].map((spec) => [listingDraft(spec)]),
    record.grades([cardOf(GOOD)], "B on OUTCOME_VERIFIED."),
    record.grades([cardOf(WITHDRAWN, { band: "A", sample_count: 10 })], "A on OUTCOME_VERIFIED."),
  );
  await record.live([rowOf(GOOD), rowOf(WITHDRAWN, { withdrawn_since: 2 })]);
  serving = await servingOver(record);
});
afterAll(() => record.close());

const badgeOf = (cap: string, init?: RequestInit): Promise<Response> => serving.get(`/badge/${cap}.svg`, init);
const titleIn = (svg: string): string => /<title>([^<]*)<\/title>/.exec(svg)![1]!;

describe("a badge", () => {
  test.each([
    ["a letter, with what measured it", capOf(GOOD), "touchstone: B (outcome)"],
    ["a card whose records were withdrawn, as a check answers it", capOf(WITHDRAWN), "touchstone: unrated"],
    ["an endpoint without a card", capOf(LISTED), "touchstone: unrated"],
    ["an id that the record never met", UNKNOWN, "touchstone: unrated"],
  ])("says %s", async (_what, cap, words) => {
    const response = await badgeOf(cap);
    const svg = await response.text();
    expect([response.status, titleIn(svg)]).toEqual([200, words]);
    expect(svg).toMatch(new RegExp(`^<svg [^>]*role="img" aria-label="${words.replace(/[()]/g, "\\$&")}"`));
    // The letter is drawn as text, whatever its colour.
    expect(svg).toContain(`>${words.slice("touchstone: ".length)}</text>`);
    const answer = (await (await serving.get(checkPath({ url: cap }))).json()) as { band: string };
    expect(words).toContain(answer.band === "UNRATED" ? "unrated" : answer.band);
  });

  test("stands for five minutes, runs nothing, and is told apart by its bytes", async () => {
    const response = await badgeOf(capOf(GOOD));
    const headers = Object.fromEntries(response.headers);
    expect(headers).toMatchObject({
      "content-type": "image/svg+xml; charset=utf-8",
      "cache-control": "public, max-age=300",
      "x-content-type-options": "nosniff",
      "cross-origin-resource-policy": "cross-origin",
    });
    expect(headers["content-security-policy"]).toMatch(/^default-src 'none';.*sandbox$/);
    expect(await response.text()).not.toMatch(/<script|<foreignObject|<image|href=|style=| on[a-z]+=/i);
    const again = await badgeOf(capOf(GOOD), { headers: { "if-none-match": headers.etag! } });
    expect(again.status).toBe(304);
    expect((await badgeOf(UNKNOWN)).headers.get("etag")).not.toBe(headers.etag);
  });

  test.each([
    ["/badge/nonsense.svg", 400],
    [`/badge/${capOf(GOOD).toLowerCase()}.svg`, 400],
    [`/badge/${capOf(GOOD)}`, 404],
    [`/badge/${capOf(GOOD)}.png`, 404],
  ])("%s is a problem document with status %i", async (path, status) => {
    const response = await serving.get(path);
    expect([response.status, response.headers.get("content-type")]).toEqual([status, "application/problem+json"]);
  });

  test("no two letters look or read the same", () => {
    const all = [...BANDS, "UNRATED" as const].map((band) => badgeSvg({ band, tier: "DELIVERY_VERIFIED" }));
    expect(new Set(all).size).toBe(6);
    expect(new Set(all.map((svg) => /<rect x="\d+" [^>]*fill="([^"]+)"/.exec(svg)![1])).size).toBe(6);
    expect(all.map(titleIn)).toEqual([...BANDS.map((band) => `touchstone: ${band} (delivery)`), "touchstone: unrated"]);
  });

  test("an endpoint's page has it to copy, as Markdown and as HTML", async () => {
    const html = await (await serving.get(`/endpoint/${capOf(GOOD)}`)).text();
    const [at, to] = [
      `https://touchstone.test/badge/${capOf(GOOD)}.svg`,
      `https://touchstone.test/endpoint/${capOf(GOOD)}`,
    ];
    expect(html).toContain(`[![Touchstone: the record of this endpoint](${at})](${to})`);
    expect(html).toContain(`&lt;a href=&quot;${to}&quot;&gt;&lt;img src=&quot;${at}&quot;`);
  });
});
