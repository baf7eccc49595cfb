import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import { CheckAnswer } from "../../serving/schemas/check.ts";
import { cardOf, type EndpointSpec, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver, type TestServing } from "../helpers/serving.ts";

/** What a check says of an endpoint that asks for no payment, and of a url that is nearly one of the record's. */
const NEVER = { asked_for_payment: 0, paid_calls: 0, probes: 3, answered: 3, price: null, networks: [] };
interface Seen {
  row: Partial<VolatileRow>;
  /** Sentence of its card; without one it has none. */
  card?: string;
  why: string;
}
const SILENT = "UNRATED: it never answered in 3 probes since 1 November 2026, so nobody has paid it.";
const WELL = "B: it delivers, its answers are right, and it keeps to its listing.";
const SEEN: Record<string, Seen> = {
  "missing.example": {
    ...{ row: { ...NEVER, last_state: "status", last_status: 404 }, card: SILENT },
    why: "UNRATED: it answers 404 and asks for no payment, so nobody has paid it.",
  },
  "new.example": {
    row: { ...NEVER, last_state: "status", last_status: 405 },
    why: "UNRATED: it answers 405 and asks for no payment, so nobody has paid it.",
  },
  "free.example": {
    ...{
      row: { ...NEVER, last_state: "free", last_status: 200 },
      card: "UNRATED: 0 of 30 paid calls so far; unknown, not bad.",
    },
    why: "UNRATED: it answers 200 and asks for no payment, so nobody has paid it.",
  },
  "walled.example": {
    row: { ...NEVER, last_state: "wall", last_status: 403 },
    why: "UNRATED: it turns our handshakes away with 403, so nobody has paid it.",
  },
  "garbled.example": {
    row: { ...NEVER, asked_for_payment: 3, last_state: "malformed", last_status: 402 },
    why: "UNRATED: 0 of 30 paid calls so far; unknown, not bad. Newest handshake: it answers 402 with terms that cannot be read.",
  },
  "silent.example": { row: { ...NEVER, answered: 0, last_state: "silent" }, card: SILENT, why: SILENT },
  "gone.example": {
    ...{ row: { last_state: "status", last_status: 410 }, card: WELL },
    why: `${WELL} Newest handshake: it answers 410 and asks for no payment.`,
  },
  "well.example": { row: { last_state: "asked", last_status: 402 }, card: WELL, why: WELL },
};
const specOf = (host: string): EndpointSpec => ({ url: `https://${host}/x` });

const POST: EndpointSpec = { url: "https://near.example/sum", method: "POST" };
const QUERY: EndpointSpec = { url: "https://near.example/add?a=1" };
const USERS: EndpointSpec = { url: "https://near.example/users/:id" };
const MANY = Array.from({ length: 8 }, (_, i) => ({ url: `https://many.example/${i}` }));

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  const near = [POST, QUERY, USERS, ...MANY];
  await record.publish(
    ...[...Object.keys(SEEN).map(specOf), ...near].map((spec) => [listingDraft(spec)]),
    ...Object.entries(SEEN).flatMap(([host, { card }]) => {
      const band = card?.startsWith("B") ? "B" : "UNRATED";
      return card === undefined ? [] : [record.grades([cardOf(specOf(host), { band })], card)];
    }),
  );
  await record.live([
    ...Object.entries(SEEN).map(([host, { row }]) => rowOf(specOf(host), row)),
    ...near.map((spec) => rowOf(spec)),
    rowOf(USERS, { request: JSON.stringify({ url: "https://near.example/users/7" }) }),
  ]);
  serving = await servingOver(record);
});
afterAll(() => record.close());

const ask = async (query: Record<string, string>): Promise<CheckAnswer> =>
  CheckAnswer.parse(await (await serving.get(checkPath(query))).json());

test.each(Object.entries(SEEN))("%s: why says what its handshake saw", async (host, { why }) => {
  expect((await ask({ url: specOf(host).url })).why).toBe(why);
});

describe("next names what the record holds", () => {
  test.each<[string, Record<string, string>, string, string]>([
    ...[
      [
        "another method",
        { url: POST.url, method: "GET" },
        "none",
        "The record holds this url with POST: ask with method=POST.",
      ] as const,
      [
        "a query",
        { url: "https://near.example/add?b=2" },
        "path",
        "This is about GET https://near.example/add?a=1: the url asked differs from it by its query.",
      ] as const,
      [
        "a slash",
        { url: "https://near.example/sum/" },
        "path",
        "This is about POST https://near.example/sum: the url asked differs from it by its trailing slash.",
      ] as const,
      [
        "another method and a slash",
        { url: "https://near.example/sum/", method: "GET" },
        "none",
        "The record holds POST https://near.example/sum, which differs by its method and its trailing slash.",
      ] as const,
      [
        "under a template",
        { url: "https://near.example/users/9" },
        "path",
        "This is about GET https://near.example/users/:id, a template that the url falls under. Our calls of this template went to https://near.example/users/7.",
      ] as const,
      [
        "the template",
        { url: USERS.url },
        "exact",
        "Our calls of this template went to https://near.example/users/7.",
      ] as const,
      [
        "another path",
        { url: "https://near.example/other" },
        "none",
        "The record holds other paths of this host: POST https://near.example/sum, GET https://near.example/add?a=1, GET https://near.example/users/:id.",
      ] as const,
      ["one of many", { url: "https://many.example/x" }, "none", "GET https://many.example/4, and 3 more."] as const,
    ].map((row) => [...row] as [string, Record<string, string>, string, string]),
  ])("%s", async (_, query, matched, next) => {
    const answer = await ask(query);
    expect([answer.matched, answer.next]).toEqual([matched, expect.stringContaining(next)]);
    // A url that is not in the record is in line all the same.
    if (matched === "none") expect(answer.next).toContain("In line for a free handshake.");
  });

  test("and nothing where the url is the record's own, or nobody knows its host", async () => {
    expect((await ask({ url: specOf("well.example").url })).next).toBeUndefined();
    expect((await ask({ url: "https://nobody.example/x" })).next).toMatch(/^In line for a free handshake\./);
  });
});
