import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TextIndex } from "../../infra/text-index.ts";
import { OrderTable } from "../../pipelines/orders/order-table.ts";
import { CHECKERS } from "../../pipelines/record/classes.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import { readQuestion } from "../../serving/answers/question.ts";
import { findEndpoints } from "../../serving/answers/search.ts";
import type { Sales } from "../../serving/buy/checkout.ts";
import { SALE_POLICY } from "../../serving/buy/eligible.ts";
import { PlanAnswer } from "../../serving/schemas/route.ts";
import { SearchAnswer } from "../../serving/schemas/search.ts";
import { View } from "../../serving/tables/view.ts";
import { CLASS_WORDS, WordIndex } from "../../serving/tables/words.ts";
import {
  capOf,
  cardOf,
  componentsOf,
  type EndpointSpec,
  listingDraft,
  PAYEE,
  PublicRecord,
  rowOf,
} from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";

interface Spec extends EndpointSpec {
  band?: "A" | "B" | "C" | "D" | "F";
  composite?: number;
  p95_ms?: number;
  row?: Partial<VolatileRow>;
}
const at = (name: string, description: string, more: Partial<Spec> = {}): Spec => {
  return { url: `https://${name}.example/v1`, description, ...more };
};
const BASE = { row: { networks: ["eip155:8453"] } };
const SPECS: Spec[] = [
  at("good", "Translates a text into German", { band: "A", composite: 0.95, p95_ms: 900, row: { price: "0.050000" } }),
  at("cheap", "Translates a text into German", { band: "C", composite: 0.6, p95_ms: 300, row: { price: "0.002000" } }),
  at("new", "Translates a text into German", { row: { price: "0.001000" } }),
  at("bad", "Translates a text into German", { band: "F", composite: 0.1, p95_ms: 10, row: { price: "0.000100" } }),
  at("long", `Weather, sport and ${"many other things ".repeat(9)}, and also a text into German that it translates`, {
    ...{ band: "A", composite: 0.99 },
  }),
  at("rain", "The weather at a place", { band: "B", ...BASE, method: "POST" }),
  at("storm", "Storm warnings", { band: "F", composite: 0.1 }),
  at("digest", "SHA-256", {
    class: "encodings",
    band: "B",
    row: { request: '{"body":"{\\"text\\":\\"abc\\",\\"n\\":2}"}' },
  }),
];
const SALES = {
  policy: { ...SALE_POLICY, leastPrice: 100n },
  receivingAccount: { network: "eip155:84532" },
  buying: { orders: { table: new OrderTable() }, cancelling: {} },
} as unknown as Sales;

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  const groups = SPECS.flatMap((spec) => {
    const parts = componentsOf(43);
    const latency_p95 = { ...parts.latency_p95, method: `lines4/1;a=0.05;p95_ms=${spec.p95_ms};p95_ms_hi=9999` };
    const { band, composite = 0.5 } = spec;
    const components = { ...parts, ...(spec.p95_ms ? { latency_p95 } : {}) };
    const graded = band ? [record.grades([cardOf(spec, { band, composite, components })], `${band}.`)] : [];
    return [[listingDraft(spec)], ...graded];
  });
  await record.publish(...groups);
  await record.live(SPECS.map((spec) => rowOf(spec, spec.row)));
  serving = await servingOver(record, { sales: SALES });
});
afterAll(() => record.close());

async function search(query: Record<string, string>): Promise<SearchAnswer> {
  const answer = await serving.get(`/v1/search?${new URLSearchParams(query)}`);
  expect(answer.status).toBe(200);
  return SearchAnswer.parse(await answer.json());
}
const nameOf = (url: string): string => new URL(url).hostname.split(".")[0]!;
const namesOf = ({ capabilities }: SearchAnswer): string[] => capabilities.map(({ url }) => nameOf(url));

describe("the rule", () => {
  test.each<[string, Record<string, string>, string[]]>([
    [
      "close texts by letter, then loose ones, then F",
      { q: "translate texts to German" },
      ["good", "cheap", "new", "long", "bad"],
    ],
    ["the cheapest first, F last", { q: "translate a text", order: "price" }, ["new", "cheap", "long", "good", "bad"]],
    [
      "so is a question that says it",
      { q: "cheapest translation, translate" },
      ["new", "cheap", "long", "good", "bad"],
    ],
    [
      "the fastest first, an unknown latency after all known ones",
      { q: "translate", order: "latency" },
      ["cheap", "good", "new", "long", "bad"],
    ],
    ["by letter alone", { q: "translate", order: "letter" }, ["good", "long", "cheap", "new", "bad"]],
    ["what may cost so much", { q: "translate for at most 0.002 USDC" }, ["cheap", "new", "bad"]],
    [
      "a parameter counts more than words",
      { q: "translate under one cent", max_price: "1.00" },
      ["good", "cheap", "new", "long", "bad"],
    ],
    ["a network by its name", { network: "base", q: "weather" }, ["rain", "long"]],
    ["by its id that one alone", { network: "eip155:8453" }, ["rain"]],
    ["a network that nobody knows", { network: "nowhere" }, []],
    ["the best of a class", { class: "encodings" }, ["digest"]],
    ["words of the class", { q: "checksum" }, ["digest"]],
  ])("%s", async (_, query, names) => {
    expect(namesOf(await search(query))).toEqual(names);
  });

  test("what lacks words is found where nothing holds all, the nearest first, and says what it lacks", async () => {
    const answer = await search({ q: "weather forecast for a place" });
    expect(answer.capabilities.map(({ url, lacks }) => [nameOf(url), lacks])).toEqual([
      ["rain", ["forecast"]],
      ["long", ["forecast", "place"]],
    ]);
    expect(answer.says).toMatch(/^Nothing that did not fail holds all of these words/);
    expect((await search({ q: "weather" })).says).toBeNull();
    expect(await search({ q: "helicopter" })).toMatchObject({
      capabilities: [],
      says: expect.stringMatching(/^Nothing/),
    });
  });

  test("where only what failed holds every word, it stands behind the nearest that did not", async () => {
    const only = await search({ q: "storm warnings" });
    expect([namesOf(only), only.says]).toEqual([["storm"], expect.stringMatching(/^Only endpoints that failed/)]);
    const { capabilities } = await search({ q: "storm weather place" });
    expect(capabilities.map(({ url, lacks }) => [nameOf(url), lacks])[0]).toEqual(["rain", ["storm"]]);
  });
});

describe("a result", () => {
  test("names price, network, an example call, flags, and how to buy it", async () => {
    const [digest] = (await search({ q: "sha 256" })).capabilities;
    expect(digest).toMatchObject({
      ...{ price: "0.020000", unit: "USD", networks: ["eip155:84532"], method: "GET", flags: [], lacks: [] },
      input: {
        in: "body",
        ...{ declared: false, example: { text: "abc", n: 2 } },
        schema: { type: "object", properties: { text: { type: "string" }, n: { type: "integer" } } },
      },
      buy: { total: "0.022000", seller_price: "0.020000" },
      not_bought: null,
    });
  });

  test("or why it is not bought", async () => {
    const why = async (q: string) =>
      (await search({ q })).capabilities.map(({ buy, not_bought }) => [buy, not_bought])[0];
    expect(await why("storm")).toEqual([null, "Its letter is F: its calls are not sold by this service."]);
    const elsewhere = "Sellers are paid on eip155:84532 here, and its newest 402 has no offer there that we can pay.";
    expect(await why("place")).toEqual([null, elsewhere]);
    const other = await servingOver(record);
    const answer = SearchAnswer.parse(await (await other.get("/v1/search?q=sha256")).json());
    expect(answer.capabilities[0]).toMatchObject({ buy: null, not_bought: "Nothing is sold here." });
  });

  test("is bounded by the limit, and bad parameters are refused", async () => {
    const two = await search({ limit: "2" });
    expect([two.capabilities.length, two.more]).toEqual([2, true]);
    for (const [name, value] of Object.entries({ limit: "51", max_price: "1", order: "worst", q: "x".repeat(201) })) {
      const answer = await serving.get(`/v1/search?${new URLSearchParams({ [name]: value })}`);
      expect(await answer.json()).toMatchObject({ status: 400, errors: [{ pointer: `/${name}` }] });
    }
  });
});

describe("a question is read for", () => {
  test.each<[string, string[], string | null, string | null, string | null]>([
    ["what can I buy under one cent on base", [], null, "0.009999", "base"],
    ["cheapest hash, at most $0.005, on Base Sepolia network", ["hash"], "price", "0.005000", "base-sepolia"],
    ["lowest latency llm below 2 cents", ["llm"], "latency", "0.019999", null],
    ["best weather up to 1.5 usd", ["weather"], "best", "1.500000", null],
    ["images under 5 MB", ["images", "5", "mb"], null, null, null],
    ["Was ist günstig?", [], "price", null, null],
    ["under construction", ["construction"], null, null, null],
  ])("%s", (q, words, order, maxPrice, network) => {
    const read = readQuestion(q);
    expect([read.words.map(({ word }) => word), read.order, read.maxPrice, read.network]).toEqual([
      words,
      order,
      maxPrice,
      network,
    ]);
  });

  test("every class has words under which people look for it", () => {
    const names = CHECKERS.map(({ name }) => name).filter((name) => name !== "any");
    expect(Object.keys(CLASS_WORDS).sort()).toEqual(names.sort());
  });
});

test("a plan names the nearest with what they lack; words that say nothing do not mean everything", async () => {
  const plan = async (need: string) => {
    const answer = await serving.get("/v1/route/plan", { method: "POST", body: JSON.stringify({ need }) });
    return PlanAnswer.parse(await answer.json());
  };
  const candidates = async (need: string) =>
    (await plan(need)).candidates.map(({ url, lacks }) => [nameOf(url), lacks]);
  expect(await candidates("SHA256 of an image")).toEqual([["digest", ["image"]]]);
  expect(await candidates("translate under one cent")).toEqual([["cheap", []]]);
  expect([await candidates("the"), await candidates("???")]).toEqual([[], []]);
});

test("a letter that is not shown any more ranks nobody, and the payee does not have it", async () => {
  const grades = { a: "A", b: "B", f: "F", g: "F" } as const;
  const letters = Object.entries(grades).map(([name, band]) => at(name, "Adds sums", { band }));
  const unrated = at("u", "Adds sums");
  const withdrawals = { a: 60, f: 60, b: 19 } as Record<string, number>;
  const rows = [...letters, unrated].map((spec) =>
    rowOf(spec, { withdrawn_since: withdrawals[nameOf(spec.url)] ?? 0 }),
  );
  const own = await PublicRecord.open();
  const composites = { a: 0.9, b: 0.8, f: 0.1, g: 0.2 } as Record<string, number>;
  const cards = letters.map((spec) =>
    own.grades([cardOf(spec, { band: spec.band!, composite: composites[nameOf(spec.url)]!, sample_count: 100 })], "x"),
  );
  await own.publish(
    [...letters, unrated].map((spec) => listingDraft(spec)),
    ...cards,
  );
  await own.live(rows.map((row) => ({ ...row, withdrawn_since: 0 })));
  const over = await servingOver(own, { sales: SALES });
  const asked = async (query: Record<string, string>) => {
    const answer = await over.get(`/v1/search?${new URLSearchParams({ q: "adds sums", ...query })}`);
    const found = SearchAnswer.parse(await answer.json());
    return found.capabilities.map(({ url, band }) => `${nameOf(url)} ${band}`);
  };
  /** The endpoints of a page's table in its order, each with the letter that the page shows. */
  const ofPage = async (path: string): Promise<string[]> => {
    const html = await (await over.get(path)).text();
    return [
      ...html.matchAll(/class="grade [^"]*">([^<]+)<\/span><\/td>\s*<th[^>]*><a href="\/endpoint\/(cap_\w+)/g),
    ].map(([, letter, cap]) => `${nameOf([...letters, unrated].find((spec) => capOf(spec) === cap)!.url)} ${letter}`);
  };
  expect(await asked({})).toEqual(["a A", "b B", "u UNRATED", "g F", "f F"]);
  expect(await ofPage("/")).toEqual(["a A", "b B", "g F", "f F", "u unrated"]);
  expect(await ofPage("/leaderboard")).toEqual(["a A", "b B", "g F", "f F"]);
  await own.live(rows);
  await over.follower.refresh();
  const shown = ["b B", "a UNRATED", "f UNRATED", "u UNRATED", "g F"];
  expect([await asked({}), await asked({ order: "letter" }), await asked({ q: "" })]).toEqual([shown, shown, shown]);
  expect(await ofPage("/")).toEqual(["b B", "g F", "a unrated", "f unrated", "u unrated"]);
  expect(await ofPage("/leaderboard")).toEqual(["b B", "g F"]);
  expect(await (await over.get("/")).text()).toContain("60 of the 100 records it stood on were withdrawn");
  expect(await asked({ limit: "1" })).toEqual(["b B"]);
  expect(await asked({ band: "B" })).toEqual(["b B"]);
  expect(await asked({ band: "UNRATED" })).toEqual(["a UNRATED", "f UNRATED", "u UNRATED"]);
  const check = await over.get(`/v1/check?${new URLSearchParams({ url: letters[0]!.url, pay_to: PAYEE })}`);
  expect(((await check.json()) as { payee: unknown }).payee).toMatchObject({ listed: 5, graded: 2, bestBand: "B" });
  // Nothing measured is left of `a`: its composite, which was the highest, counts neither here nor in the market.
  await own.live(
    rows.map((row) => (row.capability_id === capOf(letters[0]!) ? { ...row, withdrawn_since: 100 } : row)),
  );
  await over.follower.refresh();
  expect(await asked({})).toEqual(["b B", "f UNRATED", "a UNRATED", "u UNRATED", "g F"]);
  expect(await ofPage("/")).toEqual(["b B", "g F", "f unrated", "a unrated", "u unrated"]);
  await own.close();
});

test("follows the record, and a thread that lost its index or refused a batch is told everything again", async () => {
  let index = new TextIndex({});
  let batches = 0;
  let isFull = false;
  const thread = {
    // biome-ignore lint/suspicious/noExplicitAny: the thread's messages are its own
    async ask({ sent, put, match }: any): Promise<any> {
      if (isFull) throw new Error("more than 200 questions wait");
      if (put && sent === 0) [index, batches] = [new TextIndex({}), 0];
      if (match) return sent <= batches ? { matched: index.match(match, true) } : {};
      if (sent !== batches) return {};
      index.put(put);
      batches++;
      return {};
    },
  };
  const words = new WordIndex(thread);
  const viewOf = (view: View): View => new View({ ...view, wordIndex: words });
  const found = async (q: string): Promise<string[]> => {
    const { hits } = await findEndpoints(viewOf(serving.follower.view), readQuestion(q));
    return [...hits].map(({ entry }) => nameOf(entry.listing.url));
  };
  isFull = true;
  await expect(found("translate")).rejects.toThrow("more than 200");
  isFull = false;
  expect(await found("translate")).toHaveLength(5);
  // It died, and another was begun that holds nothing.
  [index, batches] = [new TextIndex({}), 0];
  expect(await Promise.all([found("translate"), found("storm")])).toEqual([
    expect.arrayContaining(["good"]),
    ["storm"],
  ]);
  const spec = at("late", "Translates speech");
  await record.publish([listingDraft(spec)], [listingDraft(at("storm", "Calm"))]);
  await serving.follower.refresh();
  isFull = true;
  await expect(found("calm")).rejects.toThrow("more than 200");
  isFull = false;
  expect([await found("translate"), await found("calm"), await found("warnings")]).toEqual([
    expect.arrayContaining(["late"]),
    ["storm"],
    [],
  ]);
});
