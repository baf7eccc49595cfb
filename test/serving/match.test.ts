import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { normaliseUrl } from "../../pipelines/record/url.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import { SERVING_PROJECTION } from "../../serving/tables/entry.ts";
import { matchUrl } from "../../serving/tables/match.ts";
import { View } from "../../serving/tables/view.ts";
import { leastProcessorMs } from "../helpers/processor.ts";
import { capOf, type EndpointSpec, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";

/** What is listed, and what was seen of it. */
const LISTED: Record<string, EndpointSpec & { row?: Partial<VolatileRow> }> = {
  plain: { url: "https://h.example/a" },
  sorted: { url: "https://h.example/q?b=2&a=1" },
  http: { url: "http://h.example/a" },
  postOnly: { url: "https://h.example/post", method: "POST" },
  both_get: { url: "https://h.example/both" },
  both_post: { url: "https://h.example/both", method: "POST", row: { paid_calls: 900 } },
  put: { url: "https://h.example/put", method: "PUT" },
  query_few: { url: "https://h.example/many?x=1", row: { paid_calls: 3, probes: 900 } },
  query_paid: { url: "https://h.example/many?x=2", row: { paid_calls: 40, probes: 10 } },
  query_tie_1: { url: "https://h.example/tie?x=1", row: { paid_calls: 5, probes: 10 } },
  query_tie_2: { url: "https://h.example/tie?x=2", row: { paid_calls: 5, probes: 11 } },
  template: { url: "https://h.example/users/:id" },
  template_long: { url: "https://h.example/users/:id/orders/{order}" },
  template_rest: { url: "https://h.example/*" },
  literal_in_template: { url: "https://h.example/users/me" },
  template_query: { url: "https://h.example/search?q={text}" },
  colon: { url: "https://h.example/videos:lookup" },
  tool: { url: "https://mcp.example/mcp", method: "POST", tool: "search" },
  slash: { url: "https://h.example/dir/" },
  equal_1: { url: "https://t.example/x/:a" },
  equal_2: { url: "https://t.example/x/{b}", row: { paid_calls: 99 } },
};

let record: PublicRecord;
let view: View;
beforeAll(async () => {
  record = await PublicRecord.open();
  const specs = Object.values(LISTED);
  await record.publish(...specs.map((spec) => [listingDraft(spec)]));
  const unlisted = rowOf({ url: "https://h.example/both", method: "PUT" as const }, { paid_calls: 5000 });
  await record.live([...specs.map((spec) => rowOf(spec, spec.row ?? { paid_calls: 1 })), unlisted]);
  ({ view } = (await servingOver(record)).follower);
});
afterAll(() => record.close());

describe("which endpoint a url means", () => {
  test.each<[string, string, string | undefined, string | null, string]>([
    ["the same", "https://h.example/a", "GET", "plain", "exact"],
    ["written otherwise", "HTTPS://user@H.Example:443/%61#part", undefined, "plain", "exact"],
    ["query in another order", "https://h.example/q?a=1&b=2", "GET", "sorted", "exact"],
    ["http is not https", "http://h.example/a", "GET", "http", "exact"],
    ["another method", "https://h.example/a", "POST", null, "none"],
    ["no method: the listed one", "https://h.example/post", undefined, "postOnly", "exact"],
    ["no method: GET before POST, and before one only seen", "https://h.example/both", undefined, "both_get", "exact"],
    ["the method asked", "https://h.example/both", "POST", "both_post", "exact"],
    ["no method: any that is listed", "https://h.example/put", undefined, "put", "exact"],
    ["query aside", "https://h.example/a?n=1", "GET", "plain", "path"],
    ["query missing", "https://h.example/q", "GET", "sorted", "path"],
    ["one trailing slash", "https://h.example/a/", "GET", "plain", "path"],
    ["a listed trailing slash", "https://h.example/dir", "GET", "slash", "path"],
    ["two trailing slashes are another path", "https://g.example/dir//", "GET", null, "none"],
    ["candidates: most paid first", "https://h.example/many?x=3", "GET", "query_paid", "path"],
    ["candidates: then most handshakes", "https://h.example/tie", "GET", "query_tie_2", "path"],
    ["exact before better paid", "https://h.example/many?x=1", "GET", "query_few", "exact"],
    ["a template", "https://h.example/users/77?full=1", "GET", "template", "path"],
    ["a longer template first", "https://h.example/users/77/orders/5", "GET", "template_long", "path"],
    ["a literal before a template", "https://h.example/users/me?x=1", "GET", "literal_in_template", "path"],
    ["the template as it is written", "https://h.example/users/:id", "GET", "template", "exact"],
    ["the rest", "https://h.example/anything/else", "GET", "template_rest", "path"],
    ["a template in the query", "https://h.example/search?q=hats", "GET", "template_query", "path"],
    ["a colon inside a segment is literal", "https://h.example/videos:lookup?x=1", "GET", "colon", "path"],
    ["templates equally long: most paid", "https://t.example/x/9", "GET", "equal_2", "path"],
    ["another host", "https://i.example/a", "GET", null, "none"],
    ["another port", "https://h.example:8443/a", "GET", null, "none"],
    ["a tool's endpoint by its url", "https://mcp.example/mcp", "POST", "tool", "exact"],
  ])("%s: %s %s", (_, url, method, name, matched) => {
    const match = matchUrl(view, normaliseUrl(url), method);
    expect(match?.matched ?? "none").toBe(matched);
    expect(match?.cap ?? null).toBe(name === null ? null : capOf(LISTED[name]!));
  });

  test("candidates that are equal in everything: smallest id", async () => {
    const pair = [{ url: "https://even.example/p?x=1" }, { url: "https://even.example/p?x=2" }];
    await record.publish(...pair.map((spec) => [listingDraft(spec)]));
    const { follower } = await servingOver(record);
    const match = matchUrl(follower.view, "https://even.example/p");
    expect(match?.cap).toBe(pair.map(capOf).sort()[0]);
  });

  test("an old view does not see what was listed after it", async () => {
    const { follower } = await servingOver(record);
    const old = follower.view;
    await record.publish([listingDraft({ url: "https://late.example/x" })]);
    await follower.refresh();
    expect(matchUrl(follower.view, "https://late.example/x")?.matched).toBe("exact");
    expect(matchUrl(old, "https://late.example/x")).toBeNull();
  });
});

/** A view in which these urls are listed, without a store. */
function viewOf(urls: readonly string[]): View {
  const view = View.empty("touchstone.test");
  const about = { method: "GET", tool: null, class: "any", description: null, seller_controlled: true, defects: [] };
  const entries = urls.map((url) => {
    const cap = capOf({ url });
    view.urlIndex.add({ cap, url, method: "GET" });
    return { ...SERVING_PROJECTION.createEndpoint(cap), listing: { capability_id: cap, url, ...about }, listed: true };
  });
  return new View({ ...view, entries: view.entries.with(new Map(entries.map((entry) => [entry.cap, entry]))) });
}

const HOST = "https://h.example";
const filled = (unit: string, length: number): string => unit.repeat(Math.floor(length / unit.length));

describe("templates of a hostile seller: a question costs less than 5 ms", () => {
  const hostile: Record<string, (i: number) => string> = {
    "braces that never close": (i) => `${HOST}/:a${i}/${filled("{", 660)}`,
    "braces before braces": (i) => `${HOST}/${filled("{", 600)}${i}/{b}`,
    "as many placeholders as fit": (i) => `${HOST}/${filled("{a}/", 900)}:a${i}`,
    "as many names as fit": (i) => `${HOST}/${filled(":a/", 1980)}:a${i}`,
    "stars before literals": (i) => `${HOST}/${filled("*a*", 1950)}/:a${i}`,
    "one letter apart at the end": (i) => `${HOST}/${filled("a/", 1980)}a${i}/:a`,
    "a head and a tail that overlap": (i) => `${HOST}/${filled("a", 900)}{a}${filled("a", 900)}${i}`,
  };
  const questions = [filled("a/", 2000), filled("a", 2000), filled("{", 660), filled("aaa/", 2000), "users/7"];

  test.each(Object.entries(hostile))("%s", (_, template) => {
    const urls = Array.from({ length: 200 }, (_, i) => normaliseUrl(template(i)));
    const view = viewOf([...urls, `${HOST}/users/:id`]);
    for (const question of questions) {
      const url = normaliseUrl(`${HOST}/${question}`);
      expect(url.length).toBeLessThanOrEqual(2048);
      const costMs = leastProcessorMs(20, () => matchUrl(view, url));
      expect(costMs, question.slice(0, 10)).toBeLessThan(5);
    }
    expect(matchUrl(view, `${HOST}/users/7`)).toEqual({ cap: capOf({ url: `${HOST}/users/:id` }), matched: "path" });
  });

  test("thousands of templates under other prefixes are not looked at, and hide none", () => {
    const urls = Array.from({ length: 5_000 }, (_, i) => `${HOST}/a-long-prefix/${i}/:id`);
    const view = viewOf([...urls, `${HOST}/users/:id`]);
    expect(matchUrl(view, `${HOST}/users/7`)?.cap).toBe(capOf({ url: `${HOST}/users/:id` }));
    let looked = 0;
    for (const templates of view.urlIndex.templatesFor(`${HOST}/users/7`)) looked += templates.length;
    expect(looked).toBe(1);
  });

  test("a template that was met first is not hidden by a flood of later ones beside it", () => {
    const urls = Array.from({ length: 2_000 }, (_, i) => `${HOST}/users/{x}-${i}-y`.replace("{x}", "%7Bx%7D"));
    const view = viewOf([`${HOST}/users/:id`, ...urls]);
    expect(matchUrl(view, `${HOST}/users/7`)?.cap).toBe(capOf({ url: `${HOST}/users/:id` }));
  });
});
