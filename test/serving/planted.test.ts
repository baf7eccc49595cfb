import { afterAll, beforeAll, expect, test } from "vitest";
import { factsOf, plantedPage, plantedToken } from "../../pipelines/record/classes/planted.ts";
import { variantOf } from "../../pipelines/record/classes.ts";
import { NOW, PublicRecord } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";

const PAGES = Buffer.alloc(32, 9);
const at = new Date(NOW);
const token = plantedToken(PAGES, Buffer.alloc(32, 1), at);
let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  serving = await servingOver(record, { plantedPageSecret: PAGES });
});
afterAll(() => record.close());

test("the page of a token: its facts, to be kept by nobody and found by nobody", async () => {
  const response = await serving.get(`/p/${token}`);
  const { headers } = response;
  expect([response.status, headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
  expect([headers.get("cache-control"), headers.get("etag")]).toEqual(["no-store", null]);
  expect(headers.get("x-robots-tag")).toMatch(/noindex.*noarchive/);
  const text = await response.text();
  const facts = factsOf(plantedPage(PAGES, token, at)!);
  expect(facts).toHaveLength(5);
  expect(variantOf({ class: "planted-page", variant: "read" })!.score(text, facts)).toBe(1);
  expect(text).not.toMatch(/cap_|rec_|touchstone/i);
});

test("no page for a token that is not ours, of another day, or where there is no secret", async () => {
  const wrong = token.slice(0, -1) + (token.endsWith("0") ? "1" : "0");
  for (const path of [`/p/${wrong}`, "/p/", "/p/x", `/p/${token}0`, `/p/${token.toUpperCase()}x`]) {
    expect([path, (await serving.get(path)).status]).toEqual([path, 404]);
  }
  const old = plantedToken(PAGES, Buffer.alloc(32, 1), new Date(at.getTime() - 3 * 86_400_000));
  expect((await serving.get(`/p/${old}`)).status).toBe(404);
  const without = await servingOver(record);
  expect((await without.get(`/p/${token}`)).status).toBe(404);
});

test("it stands in no list: not in the description, not in what is said to models", async () => {
  for (const path of ["/openapi.json", "/llms.txt", "/.well-known/x402", "/.well-known/agent-card.json"]) {
    expect(await (await serving.get(path)).text(), path).not.toContain("/p/");
  }
});
