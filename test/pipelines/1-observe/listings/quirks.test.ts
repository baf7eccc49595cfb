import { describe, expect, test } from "vitest";
import { createEgress } from "../../../../infra/egress/create.ts";
import type { ListedClaim, Source } from "../../../../pipelines/1-observe/listings/claims.ts";
import { parseListing, readUpdatedAt } from "../../../../pipelines/1-observe/listings/documents.ts";
import { splitMethods } from "../../../../pipelines/1-observe/listings/intake.ts";
import { compareWithListing } from "../../../../pipelines/1-observe/probe/probe.ts";
import { capId } from "../../../../pipelines/record/ids.ts";
import { isTemplate } from "../../../../pipelines/record/template.ts";
import { looksLikeAddress, readNetwork } from "../../../../pipelines/record/terms/networks.ts";
import { registrableDomain } from "../../../../pipelines/record/url.ts";
import { claimOf, readTerms } from "../readings.ts";
import { ASSET, entry, FakeRail, NETWORK, PAY_TO } from "../world.ts";

/** A test for every row of the corpus's tables of quirks, under the quirk's name. Values are made up here. */
const rail = new FakeRail();
const b64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64");
type Read = ReturnType<typeof readTerms>;
const codes = (read: Read): string[] => read.terms.defects.map((one) => one.defect);
const header = (value: unknown, body = "{}", url?: string): Read =>
  readTerms({ headers: { "payment-required": b64(value) }, body: Buffer.from(body) }, rail, url);
const body = (value: unknown, url?: string): Read =>
  readTerms({ headers: {}, body: Buffer.from(typeof value === "string" ? value : JSON.stringify(value)) }, rail, url);
const v2 = (...accepts: unknown[]): Read => header({ x402Version: 2, accepts });
const v1Entry = (change: Record<string, unknown> = {}) => {
  const { amount, ...rest } = entry();
  return {
    ...rest,
    network: "base-sepolia",
    maxAmountRequired: amount,
    resource: "https://seller.example/x",
    ...change,
  };
};
const MAINNET = { network: "eip155:8453", asset: "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913" };

describe("terms", () => {
  const rows: [string, () => Read, string[], Record<string, unknown>][] = [
    [
      "v2 row with v1's maxAmountRequired and fields",
      () => v2(entry({ amount: undefined, maxAmountRequired: "10000", outputSchema: null })),
      [],
      { price: "0.010000" },
    ],
    [
      "both amounts stand there and differ: amount counts in v2",
      () => v2(entry({ maxAmountRequired: "99" })),
      ["both_amounts"],
      { price: "0.010000" },
    ],
    [
      "header-only 402 with body {}",
      () => header({ x402Version: 2, accepts: [entry()] }, "{}"),
      [],
      { readable: true },
    ],
    [
      "v1 entry with a CAIP-2 network",
      () => body({ x402Version: 1, accepts: [v1Entry({ network: NETWORK })] }),
      ["network_form"],
      { readable: true, price: "0.010000" },
    ],
    [
      "v1 list that mixes names and CAIP-2",
      () => body({ x402Version: 1, accepts: [v1Entry(), v1Entry({ network: NETWORK })] }),
      ["network_form"],
      { readable: true },
    ],
    [
      "one bad entry beside good ones",
      () => v2(entry(), entry({ network: "hyperliquid:mainnet", amount: "0.111", payTo: "hl1abcdefgh" })),
      ["bad_amount"],
      { readable: true, price: "0.010000" },
    ],
    ["decimal amount", () => v2(entry({ amount: "0.001" })), ["no_payable_entry", "bad_amount"], { price: null }],
    ["dollar amount", () => v2(entry({ amount: "$0.01" })), ["no_payable_entry", "bad_amount"], { price: null }],
    [
      "amount as a JSON number",
      () => v2(entry({ amount: 40000 })),
      ["no_payable_entry", "bad_amount"],
      { price: null },
    ],
    [
      "empty amount is missing, not zero",
      () => v2(entry({ amount: "" })),
      ["no_payable_entry", "missing_amount"],
      { price: null },
    ],
    [
      "amount 0: readable, and nothing our rail would sign",
      () => v2(entry({ amount: "0" })),
      [],
      { readable: true, price: null, payable: null },
    ],
    ["huge amount is a price", () => v2(entry({ amount: "100000000000" })), [], { price: "100000.000000" }],
    ["78 digits", () => v2(entry({ amount: "9".repeat(78) })), [], { readable: true, price: null }],
    [
      "asset is a symbol: the contract is not guessed",
      () => v2(entry({ asset: "usdc" })),
      ["bad_asset"],
      { price: null, payable: null },
    ],
    ["asset as CAIP-19", () => v2(entry({ asset: `${NETWORK}/erc20:${ASSET}` })), ["bad_asset"], { price: "0.010000" }],
    ["asset of another network", () => v2(entry({ asset: MAINNET.asset })), ["bad_asset"], { price: null }],
    [
      "asset is not USDC: price and decimals unknown",
      () => v2(entry({ asset: `0x${"ab".repeat(20)}` })),
      [],
      { price: null, readable: true },
    ],
    [
      "exact on EVM without extra.name and version",
      () => v2(entry({ extra: {} })),
      ["missing_domain"],
      { readable: true },
    ],
    [
      "Solana without extra.feePayer: no client can build the transaction (scheme_exact_svm.md)",
      () =>
        v2(
          entry({
            network: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
            asset: "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
            payTo: "4HVvnhyXTkMnPbMBo9r3kfvYhzW4JSbLGdXg9SkUcVSe",
            extra: {},
          }),
        ),
      ["no_payable_entry", "missing_fee_payer"],
      { readable: false, price: null },
    ],
    [
      "several offers: one endpoint, the cheapest we sign",
      () => v2(...Array.from({ length: 23 }, (_, i) => entry({ amount: String(20_000 - i) }))),
      [],
      { price: "0.019978", terms: { offers: { length: 23 } } },
    ],
    ...["batch-settlement", "upto", "auth-capture", "authCapture", "deferred", "x402+eip712"].map(
      (scheme): [string, () => Read, string[], Record<string, unknown>] => [
        `scheme ${scheme} is kept as data`,
        () => v2(entry({ scheme })),
        [],
        { readable: true, payable: null, terms: { offers: [{ scheme }] } },
      ],
    ),
    ["bare requirement as header", () => header(entry()), ["bad_version"], { readable: true, price: "0.010000" }],
    [
      "real terms under paymentRequirements, a summary in accepts",
      () => body({ x402Version: 1, accepts: [{ price: "$0.01" }], paymentRequirements: [v1Entry()] }),
      ["no_payable_entry", "missing_amount", "bad_asset", "bad_timeout", "bad_entry", "bad_pay_to"],
      { readable: false },
    ],
    [
      "error is an object",
      () => body({ x402Version: 1, error: { code: 402 }, accepts: [v1Entry()] }),
      [],
      { readable: true },
    ],
    [
      "error is empty, outputSchema null",
      () => body({ x402Version: 1, error: "", accepts: [v1Entry({ outputSchema: null })] }),
      [],
      { readable: true },
    ],
    ["x402Version is missing", () => body({ accepts: [v1Entry()] }), ["bad_version"], { terms: { x402_version: 1 } }],
    [
      "x402Version is a string",
      () => header({ x402Version: "2", accepts: [entry()] }),
      ["bad_version"],
      { terms: { x402_version: 2 } },
    ],
    ...["walletaddress", "0x...", "", "<wallet>", "0xYourAddress"].map(
      (payTo): [string, () => Read, string[], Record<string, unknown>] => [
        `placeholder payTo ${JSON.stringify(payTo)}`,
        () => v2(entry({ payTo })),
        ["no_payable_entry", "bad_pay_to"],
        { readable: false },
      ],
    ),
    ...[0, -5, 1_781_582_577, 345_600].map((n): [string, () => Read, string[], Record<string, unknown>] => [
      `maxTimeoutSeconds ${n} is bounded`,
      () => v2(entry({ maxTimeoutSeconds: n })),
      ["bad_timeout"],
      { payable: { maxTimeoutSeconds: 60 } },
    ]),
    [
      "maxTimeoutSeconds 30000 is long, and no defect",
      () => v2(entry({ maxTimeoutSeconds: 30_000 })),
      [],
      { readable: true },
    ],
    [
      "recipient and currency beside payTo and asset are ignored",
      () => v2(entry({ recipient: `0x${"cd".repeat(20)}`, currency: "USDC" })),
      [],
      { payTo: PAY_TO },
    ],
    [
      "entry resource differs from the url that was asked",
      () =>
        body(
          { x402Version: 1, accepts: [v1Entry({ resource: "https://seller.example" })] },
          "https://api.seller.example/pay",
        ),
      ["resource_differs"],
      { readable: true },
    ],
    [
      "resource is http behind TLS",
      () =>
        body(
          { x402Version: 1, accepts: [v1Entry({ resource: "http://seller.example/x" })] },
          "https://seller.example/x",
        ),
      ["resource_scheme_differs"],
      { readable: true },
    ],
    ["accepts: []", () => body({ x402Version: 1, accepts: [] }), ["no_terms"], { readable: false }],
    [
      "testnet only",
      () => v2(entry({ network: "eip155:80002", asset: `0x${"ab".repeat(20)}` })),
      ["testnet_only"],
      { price: null },
    ],
    [
      "HTML paywall: no terms, not malformed",
      () => body("<!doctype html><script>window.x402 = {}</script>"),
      ["no_terms"],
      { readable: false },
    ],
    [
      "v2 in the body",
      () => body({ x402Version: 2, accepts: [entry()] }),
      ["terms_in_body"],
      { readable: true, price: "0.010000" },
    ],
    [
      "bare entries without an envelope",
      () => body([v1Entry(), v1Entry()]),
      ["bad_version"],
      { terms: { offers: { length: 2 } } },
    ],
    [
      "accepts is one object",
      () => header({ x402Version: 2, accepts: entry() }),
      ["malformed_terms"],
      { readable: true },
    ],
  ];
  test.each(rows)("%s", (_name, read, defects, want) => {
    const got = read();
    expect(codes(got)).toEqual(defects);
    expect(got).toMatchObject(want);
  });

  test("the same 402 names other prices and payees over time: only the seller's own listing makes that a lie", () => {
    const quoted = v2(entry({ amount: "20000", payTo: `0x${"cd".repeat(20)}` }));
    expect(compareWithListing(null, quoted)).toEqual([]);
    const listed = taken({ url: "https://s.example/a", x402Version: 2, accepts: [entry()] }).body.claims;
    expect(
      compareWithListing(listed, quoted)
        .map((one) => one.defect)
        .sort(),
    ).toEqual(["pay_to_differs", "price_differs"]);
  });
});

describe("networks that a CAIP-2 grammar gets wrong stay as they were written", () => {
  test.each([
    "hyperliquid:mainnet",
    "lightning:bitcoin",
    "cloudflare:402",
    "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147wwSaGf",
    "algorand:SGO1GKSzyE7IEPItTxCByw9x8FmnrCDexi9/cOUJOiI=",
    "eip155:interwoven-1",
    "base_sepolia",
    "arc-testnet",
    "keeta:main",
    "tron:728126428",
    "stripe:live",
    "aws:base",
    "mpp:tempo",
  ])("%s", (network) => {
    expect(readNetwork(network)).toMatchObject({ id: network, raw: network });
    const read = v2(entry({ network, payTo: looksLikeAddress(network, PAY_TO) ? PAY_TO : "plainaddr1234" }), entry());
    expect(read.terms.offers.map((one) => one.network)).toEqual([network, NETWORK]);
    expect(read.price).toBe("0.010000");
  });
  test.each([
    ["base-mainnet", "eip155:8453"],
    ["Base", "eip155:8453"],
    ["Solana", "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"],
  ])("%s is a known name", (name, id) => expect(readNetwork(name)).toMatchObject({ id, raw: name, form: "name" }));
  test("a network object, and none at all", () => {
    expect(readNetwork({ chainId: 8453, name: "base" })).toMatchObject({ form: "unknown" });
    expect(readNetwork(null)).toBeNull();
    expect(v2(entry({ network: null })).readable).toBe(false);
  });
});

describe("mpp", () => {
  const request = (change: Record<string, unknown> = {}): string =>
    b64({ amount: "5000", currency: ASSET, recipient: PAY_TO, methodDetails: { chainId: 84532 }, ...change });
  const challenge = (params = "", ask = request()): string =>
    `Payment id="a", realm="r", method="evm", intent="charge", request="${ask}"${params}`;
  const MINT = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
  const HEDERA = { currency: "0.0.456858", recipient: "0.0.12345" };
  const read = (line: string): Read =>
    readTerms({ headers: { "www-authenticate": line }, body: Buffer.from("") }, rail);
  const offers = (line: string) => read(line).terms.offers;

  test.each<[string, string, Record<string, unknown>[]]>([
    ["chainId is optional and never guessed", challenge("", request({ methodDetails: {} })), [{ network: "unknown" }]],
    [
      "evm/charge on Base is eip155",
      challenge("", request({ methodDetails: { chainId: 8453, decimals: 6 } })),
      [{ scheme: "evm/charge", network: "eip155:8453" }],
    ],
    [
      "several challenges folded into one line",
      `${challenge()}, ${challenge("", request({ amount: "7" }))}`,
      [{ amount_atomic: "5000" }, { amount_atomic: "7" }],
    ],
    ["Bearer first", `Bearer realm="x", error="e", ${challenge()}`, [{ amount_atomic: "5000" }]],
    ["L402 first", `L402 macaroon="m", invoice="lnbc", ${challenge()}`, [{ amount_atomic: "5000" }]],
    ["missing commas", challenge().replaceAll(",", ""), [{ amount_atomic: "5000" }]],
    ["extra parameters", challenge(', header="h", description="two, words"'), [{ amount_atomic: "5000" }]],
    [
      "currency is an ISO code",
      challenge("", b64({ amount: "100", currency: "usd" })),
      [{ asset: "usd", price: null }],
    ],
    ["currency is sat", challenge("", b64({ amount: "10", currency: "sat" })), [{ asset: "sat", price: null }]],
    ["amount is a number", challenge("", b64({ amount: 100, currency: "usd" })), [{ amount_atomic: null }]],
    ...["8453", "eip155:8453"].map((chainId): [string, string, Record<string, unknown>[]] => [
      `chainId as text: ${chainId}`,
      challenge("", request({ methodDetails: { chainId } })),
      [{ network: "eip155:8453", network_raw: chainId }],
    ]),
    [
      "chainId under evm",
      challenge("", request({ methodDetails: { evm: { chainId: 8453 } } })),
      [{ network: "eip155:8453" }],
    ],
    [
      "chainId that is no number",
      challenge("", request({ methodDetails: { chainId: "interwoven-1" } })),
      [{ network: "unknown", network_raw: "interwoven-1" }],
    ],
    [
      "Solana's own name of its cluster",
      challenge("", request({ currency: "SOL", methodDetails: { network: "mainnet-beta" } })).replace("evm", "solana"),
      [{ network: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", network_raw: "mainnet-beta" }],
    ],
    ...(
      [
        [{ network: "mainnet" }, { network: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", price: "0.005000" }],
        [{}, { network: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", network_raw: "", price: "0.005000" }],
        [{ network: "devnet" }, { network: "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1" }],
        [{ network: "localnet" }, { network: "unknown", network_raw: "localnet", price: null }],
        [{ network: { name: "mainnet" } }, { network: "unknown", price: null }],
      ] as const
    ).map(([methodDetails, want]): [string, string, Record<string, unknown>[]] => [
      `Solana's draft: ${JSON.stringify(methodDetails)}`,
      challenge(
        "",
        request({ currency: MINT, recipient: "4HVvnhyXTkMnPbMBo9r3kfvYhzW4JSbLGdXg9SkUcVSe", methodDetails }),
      ).replace("evm", "solana"),
      [want],
    ]),
    [
      "Hedera's numbers are no EVM chains",
      challenge("", request({ ...HEDERA, methodDetails: { chainId: 295 } })).replace("evm", "hedera"),
      [{ network: "hedera:mainnet", network_raw: "295", asset: "0.0.456858", pay_to: "0.0.12345" }],
    ],
    [
      "a number that Hedera does not have",
      challenge("", request({ ...HEDERA, methodDetails: { chainId: 8453 } })).replace("evm", "hedera"),
      [{ network: "unknown", network_raw: "8453" }],
    ],
  ])("%s", (_name, line, want) => expect(offers(line)).toMatchObject(want));

  test.each<[string, Record<string, unknown>, string, string[]]>([
    ["no currency", { currency: undefined }, "evm", ["no_payable_entry", "bad_asset"]],
    ["the zero address as currency", { currency: `0x${"0".repeat(40)}` }, "evm", ["no_payable_entry", "bad_asset"]],
    ["a recipient that is no address", { recipient: "acct_1" }, "evm", ["no_payable_entry", "bad_pay_to"]],
    ["no recipient", { recipient: undefined }, "tempo", ["no_payable_entry", "bad_pay_to"]],
    ["an ISO code and an account", { currency: "usd", recipient: "acct_1", methodDetails: {} }, "stripe", []],
    ["Hedera's token and account", { ...HEDERA, methodDetails: { chainId: 295 } }, "hedera", []],
    ["the word of USDC's gateway", { currency: "usdc", methodDetails: {} }, "usdc", []],
    ["satoshis", { currency: "sat", recipient: undefined, methodDetails: {} }, "lightning", []],
  ])("%s", (_name, change, method, want) =>
    expect(codes(read(challenge("", request(change)).replace("evm", method)))).toEqual(want),
  );

  test.each([
    ["null", b64(null)],
    ["an array", b64([1])],
    ["not JSON", "bm90IGpzb24"],
    ["not base64", "%%%"],
    ["missing", ""],
  ])("request decodes to %s: a defect, never an exception", (_name, ask) => {
    const got = read(challenge("", ask));
    expect(got).toMatchObject({ readable: false, terms: { protocols: ["mpp"] } });
    expect(codes(got)).toContain("malformed_terms");
  });

  test("both protocols on one url", () => {
    const headers = {
      "www-authenticate": challenge(),
      "payment-required": b64({ x402Version: 2, accepts: [entry()] }),
    };
    const both = readTerms({ headers, body: Buffer.from("{}") }, rail);
    expect(both.terms).toMatchObject({ protocols: ["x402", "mpp"], offers: { length: 2 } });
  });
});

/** The one claim of an item, or the reason why there is none. */
function take(item: Record<string, unknown>, source: Partial<Source> = {}): ListedClaim | string {
  const got = claimOf(item, { name: "test", ...source }, rail);
  return "claim" in got ? got.claim : got.rejected.reason;
}
function taken(item: Record<string, unknown>, source: Partial<Source> = {}): ListedClaim {
  const got = take(item, source);
  if (typeof got === "string") throw new Error(got);
  return got;
}

describe("discovery", () => {
  const own = { ownOrigin: "https://s.example" };
  const urls = (document: unknown, source: Partial<Source> = own): unknown[] => {
    const read = parseListing(document);
    const from = read.base ? { base: read.base, ...source } : source;
    return read.items.flatMap(splitMethods).map((item) => {
      const got = take(item as Record<string, unknown>, from);
      return typeof got === "string" ? got : `${got.body.claims.method ?? "-"} ${got.body.normalised_url}`;
    });
  };
  test.each<[string, unknown, unknown[]]>([
    ["list of objects", { resources: [{ resource: "/a", method: "POST" }] }, ["POST https://s.example/a"]],
    [
      "METHOD /path strings",
      { version: 1, resources: ["POST /a", "GET /b"] },
      ["POST https://s.example/a", "GET https://s.example/b"],
    ],
    ["object map", { endpoints: { "GET /a": { price: "0.1" } } }, ["GET https://s.example/a"]],
    ["absolute urls", { resources: ["https://s.example/a?x=1"] }, ["- https://s.example/a?x=1"]],
    ["empty", { resources: [] }, []],
    ["relative paths", { endpoints: ["/a", "/b"] }, ["- https://s.example/a", "- https://s.example/b"]],
    ["a number", 7, []],
    ["no list", { name: "shop", payment: {} }, []],
    ["a list of apis", { apis: [{ url: "/a", method: "GET" }] }, ["GET https://s.example/a"]],
    [
      "apis with endpoints of their own",
      { apis: [{ name: "n", endpoints: ["POST /a", "GET /b"] }] },
      ["POST https://s.example/a", "GET https://s.example/b"],
    ],
    ["routes under route", { routes: [{ route: "POST /a", price: "$0.015" }] }, ["POST https://s.example/a"]],
    [
      "groups with a base of their own",
      { resources: [{ baseUrl: "https://g.example/v", endpoints: [{ method: "GET", path: "/a" }] }] },
      ["GET https://g.example/v/a"],
    ],
    [
      "several methods are several endpoints",
      { items: [{ url: "/a", methods: ["GET", "POST"] }] },
      ["GET https://s.example/a", "POST https://s.example/a"],
    ],
  ])("/.well-known/x402: %s", (_name, document, want) => expect(urls(document)).toEqual(want));

  test("relative without any base is rejected, with a base of the document's own it is not", () => {
    expect(urls({ resources: ["/a"] }, {})).toEqual(["relative"]);
    expect(urls({ baseUrl: "https://b.example/api", resources: ["/a"] }, {})).toEqual(["- https://b.example/a"]);
  });

  const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
  const [evm, sol] = [PAY_TO, "4HVvnhyXTkMnPbMBo9r3kfvYhzW4JSbLGdXg9SkUcVSe"];
  test.each<[string, Record<string, unknown>, unknown[]]>([
    [
      "lists beside each other",
      { networks: ["base", "solana"], amounts: ["10000", "20000"], assets: ["usdc", "usdc"], payTos: [evm, sol] },
      [
        ["eip155:8453", "10000", evm],
        [SOLANA, "20000", sol],
      ],
    ],
    [
      "one price for several networks, as a table holds them",
      { networks: "base|solana", price: "10000", price_unit: "atomic", payTos: `${evm}|${sol}` },
      [
        ["eip155:8453", "10000", evm],
        [SOLANA, "10000", sol],
      ],
    ],
    [
      "offers of which one names no price",
      {
        offers: [
          { network: "base", asset: "usdc", payTo: evm },
          { network: "solana", payTo: sol, price: "7", unit: "atomic" },
        ],
      },
      [
        ["eip155:8453", null, evm],
        [SOLANA, "7", sol],
      ],
    ],
    ["a price in other words is only said", { network: "base", payTo: evm, price: "$0.05" }, []],
    ["networks and no more", { networks: ["base", "solana"], price: "$0.05" }, []],
  ])("every offer of a flat row is kept: %s", (_name, row, want) => {
    const { claims, defects } = taken({ url: "https://s.example/a", ...row }).body;
    expect(claims.offers.map((one) => [one.network, one.amount_atomic, one.pay_to])).toEqual(want);
    expect(defects).toEqual([]);
  });

  const price = (info: unknown) => {
    const operation = { "x-payment-info": info };
    const document = {
      openapi: "3.1.0",
      servers: [{ url: "https://s.example/v1" }],
      paths: { "/a": { get: operation } },
    };
    const [item] = parseListing(document).items;
    return taken(item!).body;
  };
  test.each<[string, unknown, string[]]>([
    ["an object", { price: { mode: "fixed", currency: "USD", amount: "0.01" } }, ["fixed", "USD", "0.01"]],
    ["plain decimals", { price: "0.10" }, ["0.10"]],
    ["dollars", { price: "$0.05" }, ["$0.05"]],
    ["dollars with six decimals", { price: "$0.020000" }, ["$0.020000"]],
    ["a range", { price: "$0.002-$0.004" }, ["$0.002-$0.004"]],
    ["nothing, by a protocol", { protocols: ["x402"], price: "$0" }, ["$0"]],
    ["limits", { pricingMode: "range", minPrice: "0.50", maxPrice: "1.30" }, ["range", "0.50", "1.30"]],
    ["offers", { offers: [{ method: "x402", advisoryPriceUsd: 0.25 }] }, ["x402", "0.25"]],
    ["amount and units", { amount: "0.01", amountUnits: "10000" }, ["0.01", "10000"]],
    ["protocols as one-key objects", { price: "1", protocols: [{ x402: {} }, { mpp: { method: "tempo" } }] }, ["1"]],
  ])("x-payment-info price as %s is kept in its own words and never an amount", (_name, info, said) => {
    const { claims, normalised_url } = price(info);
    expect(normalised_url).toBe("https://s.example/v1/a");
    expect(claims).toMatchObject({ offers: [], fixed_price: false });
    expect((claims.prices_said as { said: string }[]).map((one) => one.said)).toEqual(said);
  });
  test.each<[string, Record<string, unknown>]>([
    ["null", { "x-payment-info": null }],
    ["a mode", { "x-payment-info": { authMode: "free" } }],
    ["false, in two extensions", { "x-payment-required": false, "x-402": false }],
    ["a price of nothing", { "x-payment-info": { price: { amount: "0.00" } } }],
    ["a word", { "x-pricing": "free" }],
  ])("an operation that says that it is free is no listing: %s", (_name, said) => {
    const document = { openapi: "3.1.0", paths: { "/a": { "x-payment-info": { price: "1" }, get: { ...said } } } };
    const own = { openapi: "3.1.0", paths: { "/a": { get: said } } };
    expect(parseListing(own).items).toEqual([]);
    if ("x-payment-info" in said) expect(parseListing(document).items).toEqual([]);
  });
  test("x-payment-info without any price", () => expect(price({ protocols: ["x402"] }).claims.offers).toEqual([]));

  test("lastUpdated: ISO string, Unix number, missing", () => {
    expect(readUpdatedAt({ lastUpdated: "2026-01-04T21:07:46.910Z" })).toBe(Date.parse("2026-01-04T21:07:46.910Z"));
    expect(readUpdatedAt({ lastUpdated: 1_766_504_095 })).toBe(1_766_504_095_000);
    expect(readUpdatedAt({ lastUpdated: 1_766_504_095_000 })).toBe(1_766_504_095_000);
    expect([readUpdatedAt({}), readUpdatedAt({ lastUpdated: "soon" })]).toEqual([null, null]);
  });
  test.each([
    ["resource", { resource: "https://s.example/a" }],
    ["url", { url: "https://s.example/a" }],
    ["resource as an object", { resource: { url: "https://s.example/a", description: "d" } }],
  ])("address under %s", (_name, item) => expect(taken(item).body.normalised_url).toBe("https://s.example/a"));
  test.each(["monopoly://game/agent", "solana-transfer://a.../b", "mock://x402/y", "mcp://tool/x"])(
    "%s is no http resource",
    (resource) => expect(take({ resource })).toBe("not_http"),
  );
  test("one path under both schemes is two endpoints", () => {
    expect(taken({ url: "http://s.example/a" }).cap).not.toBe(taken({ url: "https://s.example/a" }).cap);
  });
  test("accepts: [] is a listing without terms", () => {
    expect(taken({ url: "https://s.example/a", accepts: [] }).body).toMatchObject({
      claims: { offers: [] },
      defects: [],
    });
  });
});

describe("urls", () => {
  const normal = (url: string): string => taken({ url }).body.normalised_url;
  test.each([
    ["/:id", "https://s.example/a/:id", true],
    ["{id} in the path", "https://s.example/a/{id}", true],
    ["a template in the query", "https://s.example/a?years={years}", true],
    ["*", "https://s.example/a/*", true],
    [":rest*", "https://s.example/a/:rest*", true],
    ["a colon inside a segment", "https://s.example/videos:lookupVideo", false],
    ["colons inside a segment", "https://s.example/qrn:copilot:tars", false],
    ["an escaped colon", "https://s.example/claude-fable-5%3Abatch", false],
    ["an EVM address in the path", `https://s.example/${PAY_TO}/x`, false],
    ["a uuid in the path", "https://s.example/0b0d3c6e-5a0e-4b6c-8b0e-5b7f0f6f8b5a", false],
    ["a bare origin", "https://s.example", false],
  ])("%s", (_name, url, template) => expect(isTemplate(normal(url))).toBe(template));

  test.each([
    ["an escape that must not be decoded stays", "https://s.example/x%3Abatch", "https://s.example/x%3Abatch"],
    ["a slash at the end stays in the identity", "https://s.example/a/", "https://s.example/a/"],
    ["a fragment is dropped", "https://s.example/a#pay", "https://s.example/a"],
    ["an explicit default port is dropped", "https://s.example:443/a", "https://s.example/a"],
    ["a query is kept, sorted", "https://s.example/a?b=2&a=1", "https://s.example/a?a=1&b=2"],
    ["an upper-case host", "https://S.Example/A", "https://s.example/A"],
    ["userinfo is dropped", "https://u:p@s.example/a", "https://s.example/a"],
  ])("%s", (_name, url, want) => expect(normal(url)).toBe(want));

  test.each([
    ["vercel.app", "https://a.vercel.app/x", "a.vercel.app"],
    ["workers.dev", "https://a.b.workers.dev/x", "b.workers.dev"],
    ["onrender.com", "https://a.onrender.com", "a.onrender.com"],
    ["up.railway.app", "https://a.up.railway.app/", "a.up.railway.app"],
    ["run.app", "https://svc-1.a.run.app/", "svc-1.a.run.app"],
    ["ngrok-free.app", "https://t.ngrok-free.app/", "t.ngrok-free.app"],
  ])("shared hosting %s: the host is not the operator", (_name, url, domain) =>
    expect(registrableDomain(url)).toBe(domain),
  );

  test.each([
    ["DELETE", "DELETE"],
    ["patch", "PATCH"],
    ["PUT", "PUT"],
  ])("method %s", (method, want) =>
    expect(taken({ url: "https://s.example/a", method }).body.claims.method).toBe(want),
  );
  test("a method that is not stated is not read as GET", () => {
    const { cap, body: listing } = taken({ url: "https://s.example/a" });
    expect(listing.claims.method).toBeNull();
    expect(cap).toBe(capId("GET", "https://s.example/a"));
  });
  test("WEBSOCKET is never sent", () => expect(take({ url: "https://s.example/a", method: "WEBSOCKET" })).toBe("verb"));
  test("over 2,048 characters", () => expect(take({ url: `https://s.example/${"x".repeat(2_100)}` })).toBe("bad_url"));
  test("staging hosts are like any other; hosts that are not of the internet are not listed", async () => {
    const egress = createEgress({ allowLoopback: false, userAgent: "test" });
    const validate = (url: string) => egress.validate(url);
    expect(taken({ url: "https://staging.s.example/a" }, { validate })).toBeDefined();
    expect(taken({ url: "https://s.example:8443/a" }, { validate })).toBeDefined();
    for (const host of ["localhost:3000", "x.localhost", "10.0.0.1", "service.internal", "box"]) {
      expect(take({ url: `http://${host}/a` }, { validate }), host).toBe("not_public");
    }
    await egress.close();
  });
});
