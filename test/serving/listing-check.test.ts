import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Limits } from "../../infra/config.ts";
import { createEgress } from "../../infra/egress/create.ts";
import type { EgressResult } from "../../infra/egress/egress.ts";
import { ControlCalls } from "../../pipelines/1-observe/probe/exchange.ts";
import type { ProbeDeps } from "../../pipelines/1-observe/probe/probe.ts";
import { processReader } from "../../pipelines/1-observe/reading/reader.ts";
import { DEFECTS } from "../../pipelines/record/vocabulary.ts";
import { adviceOf, DEFECT_ADVICE } from "../../serving/answers/listing-look.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { ListingAnswer } from "../../serving/schemas/listing.ts";
import { capOf, cardOf, listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";
import { STEADY_LOOP } from "../helpers/steady-loop.ts";
import { realSeller } from "../pipelines/1-observe/real-seller.ts";
import {
  ASSET,
  answer,
  entry,
  FakeEgress,
  FakeRail,
  type Handler,
  honest,
  item,
  NETWORK,
  PAY_TO,
  SELLER,
  terms402,
  timeout,
  wellKnown,
} from "../pipelines/1-observe/world.ts";

const SUM = { url: `${SELLER}/sum` };
const rail = new FakeRail();

let record: PublicRecord;
let serving: TestServing;
let egress: FakeEgress;
let tools: ProbeDeps;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM)], "B on OUTCOME_VERIFIED."));
});
afterAll(() => record.close());
beforeEach(async () => {
  egress = new FakeEgress();
  egress.sellers.set(SELLER, honest(rail));
  tools = { egress, reader: processReader, loop: STEADY_LOOP, rail, control: new ControlCalls(egress, []) };
  serving = await servingOver(record, {
    looks: tools,
    limits: { looks_per_hour: 1000, looks_per_domain_minute: 100 },
  });
});

const post = (body: unknown, path = "/v1/listings/validate"): Promise<Response> =>
  serving.get(path, { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body) });
async function look(handler?: Handler, url = SUM.url, method?: string): Promise<ListingAnswer> {
  if (handler) egress.sellers.set(SELLER, handler);
  const response = await post({ url, ...(method ? { method } : {}) });
  expect(response.status).toBe(200);
  return ListingAnswer.parse(await response.json());
}
/** A seller that lists nothing and answers every call so. */
const bare =
  (handler: Handler): Handler =>
  (asked, n) =>
    /\.json$|x402$/.test(new URL(asked.url).pathname) ? answer(404, {}) : handler(asked, n);
const cutOff = (code: string): EgressResult => ({
  ...{ outcome: "cut", says: `the body broke off: ${code}`, totalMs: 12, sent: true },
  ...{ status: 402, headers: { "content-encoding": "gzip" }, body: new Uint8Array(), headersMs: 10 },
});
const codes = ({ defects }: ListingAnswer) => defects.map(({ defect }) => defect);

describe("a look at a listing", () => {
  test("of an honest seller: what was read, no defect, a signature of the stock client, and not a word of a letter", async () => {
    const seen = await look();
    expect(seen).toMatchObject({
      url: SUM.url,
      method: "GET",
      state: "asked",
      mend: null,
      status: 402,
      protocols: ["x402"],
      x402_version: 2,
      offers: [
        { scheme: "exact", network: NETWORK, asset: ASSET, pay_to: PAY_TO, amount_atomic: "10000", price: "0.010000" },
      ],
      defects: [],
      stock_client: { verdict: "signs", offer: 0 },
      listing: { document: `${SELLER}/.well-known/x402`, differs: [] },
      capability_id: capOf(SUM),
      kept: "nothing",
    });
    expect(JSON.stringify(seen)).not.toMatch(/band|letter|composite/);
    // The listed example was sent, as the record's own handshakes send it; nothing was paid, nothing was appended.
    expect(egress.asked.map(({ url }) => url)).toEqual([`${SELLER}/.well-known/x402`, `${SUM.url}?a=1&b=2`]);
    expect(egress.asked.every(({ profile }) => profile === "handshake")).toBe(true);
    expect([egress.paid(), serving.log.records]).toEqual([[], []]);
  });

  test("holds the 402 against the seller's own document of today", async () => {
    const dear = honest(rail, { accepts: [entry({ amount: "20000", payTo: `0x${"3".repeat(40)}` })] });
    const seen = await look(dear);
    expect(seen.listing!.differs).toEqual(["pay_to_differs", "price_differs"]);
    expect(seen.defects).toEqual([
      { defect: "pay_to_differs", says: DEFECTS.pay_to_differs, mend: DEFECT_ADVICE.pay_to_differs },
      { defect: "price_differs", says: DEFECTS.price_differs, mend: DEFECT_ADVICE.price_differs },
    ]);
  });

  test("tells what the seller's own document gets wrong, also where the 402 is right", async () => {
    const seen = await look(honest(rail, { item: { accepts: [entry({ maxTimeoutSeconds: "soon" })] } }));
    expect([codes(seen), seen.listing!.differs]).toEqual([["bad_timeout"], []]);
  });

  test.each<[string, Handler, Partial<ListingAnswer>, string[], string]>([
    [
      "without the token's domain",
      () => terms402([entry({ extra: {} })]),
      { state: "asked" },
      ["missing_domain"],
      "refuses",
    ],
    [
      "with terms of version 2 in the body",
      () => answer(402, { x402Version: 2, resource: { url: SUM.url }, accepts: [entry()] }),
      { state: "asked" },
      ["terms_in_body"],
      "refuses",
    ],
    [
      "at a price past the stock client's limit",
      () => terms402([entry({ amount: "900000000" })]),
      { state: "asked" },
      [],
      "signs_without_spend_limits",
    ],
    [
      "on Solana alone",
      () =>
        terms402([
          entry({
            network: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
            payTo: "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin",
            asset: "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
            extra: { feePayer: "EGBQqKn968sVv5cQh5Cr72pSTHfxsuzq7o7asqYB5uEV" },
          }),
        ]),
      { state: "asked" },
      [],
      "cannot_be_told",
    ],
    ["with a 402 of nothing", () => answer(402, "{}"), { state: "malformed" }, ["no_terms"], "refuses"],
    ["for nothing", () => answer(200, { sum: 3 }), { state: "free", mend: DEFECT_ADVICE.no_402 }, [], "cannot_be_told"],
    ["behind a wall", () => answer(403, "no"), { state: "wall" }, [], "cannot_be_told"],
    [
      "elsewhere",
      () => answer(302, "", { location: "https://victim.example/" }),
      { state: "status", status: 302 },
      [],
      "cannot_be_told",
    ],
    ["never", () => timeout(), { state: "silent" }, [], "cannot_be_told"],
  ])("of one that answers %s", async (_how, handler, expected, defects, verdict) => {
    const seen = await look(bare(handler));
    expect(seen).toMatchObject({ ...expected, listing: null });
    expect([codes(seen), seen.stock_client.verdict]).toEqual([defects, verdict]);
    if (seen.state !== "asked") expect(seen.mend).toMatch(/.{20}/);
    for (const { mend } of seen.defects) expect(mend).toMatch(/^[A-Z].{20,}\.$/);
    expect(egress.asked.some(({ url }) => url.includes("victim"))).toBe(false);
  });

  describe("the EIP-712 domain of USDC, which differs by network", () => {
    const base = { network: "eip155:8453", asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" };
    const mends = {
      base: "For USDC on base: `USD Coin` and `2`.",
      sepolia: "For USDC on base-sepolia: `USDC` and `2`.",
    };
    const wrong = ({ defects }: ListingAnswer) => defects.find(({ defect }) => defect === "wrong_domain");
    const v1 = { ...entry({ network: "base", asset: base.asset }), maxAmountRequired: "10000", amount: undefined };

    test.each<[string, Handler, RegExp | null, string]>([
      [
        "on Base, with the name of Base Sepolia",
        () => terms402([entry(base)]),
        /"USDC" and "2" in offer 1\)/,
        mends.base,
      ],
      [
        "on Base Sepolia, with the name of Base",
        () => terms402([entry({ extra: { name: "USD Coin", version: "2" } })]),
        /"USD Coin" and "2" in offer 1\)/,
        mends.sepolia,
      ],
      [
        "with another version",
        () => terms402([entry({ extra: { name: "USDC", version: "1" } })]),
        /"USDC" and "1"/,
        mends.sepolia,
      ],
      ["in version 1", () => answer(402, { x402Version: 1, accepts: [v1] }), /"USDC" and "2" in offer 1\)/, mends.base],
      ["in one of two offers", () => terms402([entry(), entry(base)]), /\("USDC" and "2" in offer 2\)/, mends.base],
      ["right", () => terms402([entry(), entry({ ...base, extra: { name: "USD Coin", version: "2" } })]), null, ""],
      [
        "of a contract that is in no table",
        () => terms402([entry({ asset: `0x${"5".repeat(40)}`, extra: { name: "Any", version: "9" } })]),
        null,
        "",
      ],
      [
        "of another method, in which the payer does not sign for the token's domain",
        () => terms402([entry({ extra: { name: "x", version: "y", assetTransferMethod: "permit2" } })]),
        null,
        "",
      ],
    ])("%s", async (_how, handler, says, mend) => {
      const found = wrong(await look(bare(handler)));
      if (says === null) return expect(found).toBeUndefined();
      expect(found?.says).toMatch(says);
      expect(found?.mend).toMatch(/^Write `extra.name` and `extra.version` as the token's contract has them\. /);
      expect(found?.mend.endsWith(mend)).toBe(true);
    });

    test("is named for the networks of the offers that lack it", async () => {
      const lacking = (...offers: Record<string, unknown>[]) => look(bare(() => terms402(offers)));
      const mendOf = ({ defects }: ListingAnswer) => defects.find(({ defect }) => defect === "missing_domain")?.mend;
      const advice = DEFECT_ADVICE.missing_domain;
      expect(mendOf(await lacking(entry({ extra: {} })))).toBe(`${advice} ${mends.sepolia}`);
      serving.clock.pass(61_000);
      expect(mendOf(await lacking(entry({ ...base, extra: {} })))).toBe(`${advice} ${mends.base}`);
      serving.clock.pass(61_000);
      expect(mendOf(await lacking(entry({ asset: `0x${"5".repeat(40)}`, extra: {} })))).toBe(advice);
    });
  });

  test.each<[string, EgressResult, RegExp]>([
    ["a body whose coding is broken", cutOff("Z_DATA_ERROR"), /^Encode the body as `content-encoding` names it/],
    ["a brotli body that is none", cutOff("ERR__ERROR_FORMAT_CL_SPACE"), /^Encode the body/],
    ["a body that breaks off", cutOff("ECONNRESET"), /^Send the body whole/],
    ["no answer in time", timeout(), /within 10 seconds/],
  ])("says what to change about %s", async (_what, result, expected) => {
    const seen = await look(bare(() => result));
    expect([seen.state, seen.mend]).toEqual(["silent", expect.stringMatching(expected)]);
  });

  test("does not say that nobody could pay what the stock client signs", async () => {
    const seen = await look(bare(() => terms402([entry({ amount: 10_000 })])));
    expect(seen).toMatchObject({ state: "malformed", stock_client: { verdict: "signs" } });
    expect(seen.says).toMatch(/break the specification: the stock client signs them/);
    serving.clock.pass(61_000);
    expect((await look(bare(() => answer(402, "{}")))).says).toMatch(/nobody could pay/);
  });

  test.each([
    ["https://elsewhere.example/sum?a=1", "https://elsewhere.example/sum?a=1"],
    ["/v2/sum", `${SELLER}/v2/sum`],
    ["", null],
  ])("names the target of a redirect to '%s'", async (location, target) => {
    const seen = await look(bare(() => answer(308, "", location ? { location } : {})));
    expect(seen.says).toBe(`It answered with status 308${target === null ? "" : `, a redirect to ${target}`}.`);
  });

  test("names the target of the redirect whose status it tells, also after looks with other methods", async () => {
    const seen = await look(
      bare(({ method }) => {
        if (method === "GET") return answer(308, "", { location: "/v2/sum" });
        return method === "OPTIONS" ? answer(204, "", { allow: "POST" }) : answer(404, {});
      }),
    );
    expect(seen.says).toBe(`It answered with status 308, a redirect to ${SELLER}/v2/sum.`);
  });

  test("says which of several offers the stock client takes", async () => {
    const seen = await look(bare(() => terms402([entry({ scheme: "later" }), entry({ amount: "30000" }), entry()])));
    expect(seen.stock_client).toMatchObject({ verdict: "signs", offer: 1 });
  });

  test("asks with the listed method, else with the one that was asked for", async () => {
    const listed = (asked: Parameters<Handler>[0]) =>
      asked.url.endsWith("x402")
        ? answer(200, wellKnown(item({ method: "POST", example: { body: { a: 1 } } })))
        : terms402();
    expect((await look(listed)).method).toBe("POST");
    expect(egress.asked.at(-1)).toMatchObject({ method: "POST", json: { a: 1 } });
    serving.clock.pass(61_000);
    expect((await look(bare(() => answer(405, {})))).mend).toMatch(/does not serve GET/);
    expect(
      (
        await look(
          bare(() => terms402()),
          SUM.url,
          "POST",
        )
      ).method,
    ).toBe("POST");
  });

  test("does not end of a seller's text that is made to keep a reader busy", async () => {
    const deep = `{"x402Version":1,"accepts":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
    const seen = await look(bare(() => answer(402, deep)));
    expect([seen.state, seen.stock_client.verdict]).toEqual(["malformed", "refuses"]);
  });

  test("follows no redirect over real sockets, and pays nobody", async () => {
    const victim = await realSeller(() => answer(200, {}));
    const seller = await realSeller(() => answer(307, "", { location: `http://127.0.0.1:${victim.port}/` }));
    const real = createEgress({ allowLoopback: true, userAgent: "test" });
    try {
      const control = new ControlCalls(real, []);
      const looks = { ...tools, egress: real, control };
      serving = await servingOver(record, { looks, validateUrl: (url) => real.validate(url) });
      const response = await post({ url: `http://127.0.0.1:${seller.port}/x` });
      expect(await response.json()).toMatchObject({
        state: "status",
        status: 307,
        mend: expect.stringMatching(/Redirects/),
      });
      expect([seller.legs.length > 0, victim.legs]).toEqual([true, []]);
      expect(seller.legs.flatMap(({ headers }) => headers).filter(([name]) => /payment/i.test(name))).toEqual([]);
    } finally {
      await real.close();
      await Promise.all([victim.close(), seller.close()]);
    }
  });
});

test("every defect says how it is mended", () => {
  for (const defect of Object.keys(DEFECTS)) expect(adviceOf(defect)).toMatch(/^[A-Z].{20,}\.$/);
  expect(new Set(Object.values(DEFECT_ADVICE)).size).toBe(Object.keys(DEFECTS).length);
  expect(adviceOf("toString")).toMatch(/specification/);
});

describe("the limits of looks", () => {
  test("the same question within a minute gets the same answer, and no second probe", async () => {
    const [first, second] = await Promise.all([look(), look()]);
    const third = await look(undefined, `${SUM.url}#part`);
    expect([second, third]).toEqual([first, first]);
    expect(egress.asked).toHaveLength(2);
    serving.clock.pass(61_000);
    await look();
    expect(egress.asked).toHaveLength(4);
  });

  const limited = async (limits: Partial<Limits>) => {
    serving = await servingOver(record, { looks: tools, limits });
  };
  const statusOf = async (url: string): Promise<[number, string | null]> => {
    const response = await post({ url });
    if (response.status !== 200) ProblemDocument.parse(await response.json());
    return [response.status, response.headers.get("retry-after")];
  };

  test("one domain is looked at so often in a minute, whatever its hosts and paths", async () => {
    await limited({ looks_per_domain_minute: 2 });
    expect(await statusOf("https://a.many.example/1")).toEqual([200, null]);
    expect(await statusOf("https://b.many.example/2")).toEqual([200, null]);
    expect(await statusOf("https://c.many.example/3")).toEqual([429, "30"]);
    expect((await statusOf("https://other.example/3"))[0]).toBe(200);
  });

  test("looks that one domain's limit refuses leave those of its platform to its other names", async () => {
    await limited({ looks_per_hour: 1_000, looks_per_domain_minute: 1 });
    const statuses = [];
    for (let i = 0; i < 10; i++) statuses.push((await statusOf(`https://flood.vercel.app/${i}`))[0]);
    expect(statuses).toEqual([200, ...Array(9).fill(429)]);
    expect((await statusOf("https://other.vercel.app/"))[0]).toBe(200);
  });

  test("one client asks so often in an hour", async () => {
    await limited({ looks_per_hour: 1 });
    expect((await statusOf(SUM.url))[0]).toBe(200);
    expect(await statusOf(SUM.url)).toEqual([429, "3600"]);
  });

  test("one look at a domain at a time, and of all places one client has its share", async () => {
    await limited({ looks_at_once: 3 });
    let go = () => {};
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    let begun = 0;
    const slow: Handler = async () => {
      begun++;
      await held;
      return answer(404, {});
    };
    for (const host of ["one", "two"]) egress.sellers.set(`https://${host}.example`, slow);
    const under = [post({ url: "https://one.example/a" }), post({ url: "https://two.example/a" })];
    await expect.poll(() => begun).toBe(2);
    expect(await statusOf("https://one.example/b")).toEqual([429, "10"]);
    expect(await statusOf("https://three.example/b")).toEqual([503, "10"]);
    go();
    expect((await Promise.all(under)).map(({ status }) => status)).toEqual([200, 200]);
    expect((await statusOf("https://three.example/b"))[0]).toBe(200);
  });

  test.each<[string, unknown, string]>([
    ["our own address", { url: "https://touchstone.test/v1/check" }, "/url"],
    ["another host of our domain", { url: "http://www.touchstone.test/" }, "/url"],
    ["another address of ours", { url: "https://replica.example/x" }, "/url"],
    ["an address of this machine", { url: "http://127.0.0.1/" }, "/url"],
    ["an odd port", { url: "https://seller.example:22/" }, "/url"],
    ["another scheme", { url: "ftp://seller.example/x" }, "/url"],
    ["half a character", { url: "https://seller.example/\ud800" }, "/url"],
    ["no url", {}, "/url"],
    ["a number", { url: 7 }, "/url"],
    ["too long a url", { url: `https://seller.example/${"x".repeat(2048)}` }, "/url"],
    ["a verb that changes things", { url: SUM.url, method: "DELETE" }, "/method"],
    ["a member that is none", { url: SUM.url, letter: "A" }, "/letter"],
    ["no JSON", "{", ""],
  ])("%s is refused with its pointer, and nobody is asked", async (_what, body, pointer) => {
    serving = await servingOver(record, { looks: tools, ownAddresses: ["http://replica.example:8402"] });
    const response = await post(body);
    const problem = ProblemDocument.parse(await response.json());
    expect([response.status, problem.errors![0]!.pointer]).toEqual([400, pointer]);
    expect(egress.asked).toEqual([]);
  });

  test("a body past its bound is a 413, a GET a 405, and a server that probes nothing says so", async () => {
    expect((await post(JSON.stringify({ url: "x".repeat(9_000) }))).status).toBe(413);
    const got = await serving.get("/v1/listings/validate");
    expect([got.status, got.headers.get("allow")]).toEqual([405, "POST"]);
    serving = await servingOver(record);
    expect((await post({ url: SUM.url })).status).toBe(503);
  });
});

describe("the page that looks at a listing", () => {
  const send = (fields: Record<string, string>, headers: Record<string, string> = {}) =>
    serving.get("/check-my-listing/answer", {
      method: "POST",
      body: new URLSearchParams(fields).toString(),
      headers: { "content-type": "application/x-www-form-urlencoded", ...headers },
    });

  test("says what to change about what the stock client refuses", async () => {
    egress.sellers.set(
      SELLER,
      bare(() => terms402([entry({ amount: "900000000" })])),
    );
    const shown = await (await send({ url: SUM.url, method: "" })).text();
    expect(shown).toContain("<strong>To change:</strong> Nothing is broken: at this price");
  });

  test("has a form that needs no script, and shows what a look saw", async () => {
    const form = await (await serving.get("/check-my-listing")).text();
    expect(form).toContain('<form method="post" action="/check-my-listing/answer">');
    egress.sellers.set(
      SELLER,
      bare(() => terms402([entry({ extra: { name: "<script>" } }), entry({ payTo: "<script>" })])),
    );
    const response = await send({ url: SUM.url, method: "" });
    const html = await response.text();
    expect([response.status, response.headers.get("cache-control")]).toEqual([200, "no-store"]);
    expect(html).not.toContain("<script");
    for (const part of [DEFECT_ADVICE.missing_domain, DEFECT_ADVICE.bad_pay_to]) {
      const shown = part.replaceAll("'", "&#39;").replace(/`([^`]+)`/g, "<code>$1</code>");
      expect(html).toContain(shown);
    }
    expect(html).toMatch(/Would a stock client sign\?<\/dt><dd><strong>no</);
    expect(html).toContain(`href="/endpoint/${capOf(SUM)}"`);
  });

  test("says on the form why there was no look, with the status of the problem", async () => {
    const response = await send({ url: "http://127.0.0.1/<b>", method: "GET" });
    const html = await response.text();
    expect([response.status, html.includes('role="alert"')]).toEqual([400, true]);
    expect(html).toContain('value="http://127.0.0.1/&lt;b&gt;"');
  });

  test("takes nothing from another site's page", async () => {
    const response = await send({ url: SUM.url }, { "sec-fetch-site": "cross-site" });
    expect([response.status, egress.asked]).toEqual([400, []]);
    expect((await send({ url: SUM.url }, { "sec-fetch-site": "same-origin" })).status).toBe(200);
  });
});
