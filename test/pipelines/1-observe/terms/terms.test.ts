import { EVM_NETWORK_CHAIN_ID_MAP } from "@x402/evm/v1";
import { Challenge } from "mppx";
import { describe, expect, test } from "vitest";
import { Terms } from "../../../../pipelines/record/bodies.ts";
import { readNetwork, sameAsset } from "../../../../pipelines/record/terms/networks.ts";
import { defect } from "../../../../pipelines/record/vocabulary.ts";
import { fc } from "../../../helpers/histories.ts";
import { readTerms } from "../readings.ts";
import { ASSET, entry, FakeRail, NETWORK, PAY_TO } from "../world.ts";

const rail = new FakeRail();
const URL_ASKED = "https://seller.example/sum";
const b64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64");
const inBody = (value: unknown, url?: string) =>
  readTerms({ headers: {}, body: Buffer.from(typeof value === "string" ? value : JSON.stringify(value)) }, rail, url);
const inHeader = (value: unknown, body = "{}", url?: string) =>
  readTerms({ headers: { "payment-required": b64(value) }, body: Buffer.from(body) }, rail, url);
const codes = (read: ReturnType<typeof readTerms>): string[] => read.terms.defects.map((one) => one.defect);

const v1 = (change: Record<string, unknown> = {}) => {
  const { amount, ...rest } = entry();
  return {
    ...rest,
    network: "base-sepolia",
    maxAmountRequired: amount,
    resource: URL_ASKED,
    description: "",
    ...change,
  };
};

describe("forms that sellers send", () => {
  test("version 1 in the body", () => {
    const read = inBody({ x402Version: 1, accepts: [v1()] }, URL_ASKED);
    expect(codes(read)).toEqual([]);
    expect(read.terms).toMatchObject({ x402_version: 1, protocols: ["x402"] });
    expect(read.payable).toMatchObject({ x402Version: 1, network: NETWORK, amountAtomic: 10_000n, payTo: PAY_TO });
    expect(read.terms.offers[0]).toMatchObject({ network_raw: "base-sepolia", price: "0.010000", payable: true });
  });

  test("version 2 in the header, whatever the body is", () => {
    for (const body of ["{}", "", "<html>pay</html>", '{"error":"payment required"}']) {
      const read = inHeader({ x402Version: 2, accepts: [entry()] }, body);
      expect(read).toMatchObject({ readable: true, price: "0.010000", payTo: PAY_TO });
      expect(codes(read)).toEqual([]);
    }
  });

  test("version 2 in the body is read, and is a defect", () => {
    expect(codes(inBody({ x402Version: 2, accepts: [entry()] }))).toEqual(["terms_in_body"]);
  });

  test("both places: the header speaks; a header nobody can read leaves it to the body", () => {
    const both = inHeader({ x402Version: 2, accepts: [entry()] }, JSON.stringify({ x402Version: 1, accepts: [v1()] }));
    expect(both.terms).toMatchObject({ x402_version: 2, offers: [{ network_raw: NETWORK }] });
    const body = Buffer.from(JSON.stringify({ x402Version: 1, accepts: [v1()] }));
    const broken = readTerms({ headers: { "payment-required": "%%%" }, body }, rail);
    expect(broken).toMatchObject({ readable: true, terms: { x402_version: 1 } });
    expect(codes(broken)).toEqual(["malformed_terms"]);
  });

  test("a bare entry, a bare list, and a version that must be inferred", () => {
    expect(inHeader(entry())).toMatchObject({ readable: true, terms: { x402_version: 2 } });
    expect(inBody(v1())).toMatchObject({ readable: true, terms: { x402_version: 1 } });
    expect(codes(inBody([v1()]))).toEqual(["bad_version"]);
    expect(codes(inBody({ x402Version: "1", accepts: [v1()] }))).toEqual(["bad_version"]);
    expect(inBody({ accepts: [v1()] }).terms.x402_version).toBe(1);
  });

  test.each([3, 99, 0, -1, 1.5, "3"])(
    "version %s is none that anybody can pay by, and is written down as it is",
    (x402Version) => {
      const said = Number.isInteger(Number(x402Version)) ? Number(x402Version) : null;
      for (const read of [inHeader({ x402Version, accepts: [entry()] }), inBody({ x402Version, accepts: [v1()] })]) {
        expect(read).toMatchObject({
          readable: false,
          payable: null,
          terms: { x402_version: said, offers: { length: 1 } },
        });
        expect(codes(read).slice(0, 2)).toEqual(["bad_version", "no_payable_entry"]);
      }
    },
  );

  test("x402 and mpp on one url", () => {
    const request = b64({ amount: "5000", currency: ASSET, recipient: PAY_TO, methodDetails: { chainId: 84532 } });
    const challenge = `Bearer realm="x", Payment id="a", realm="Payment b=c", method="evm" intent="charge", request="${request}"`;
    const headers = { "www-authenticate": challenge, "payment-required": b64({ x402Version: 2, accepts: [entry()] }) };
    const read = readTerms({ headers, body: Buffer.from("{}") }, rail);
    expect(read.terms.protocols).toEqual(["x402", "mpp"]);
    expect(read.terms.offers[1]).toMatchObject({ scheme: "evm/charge", network: NETWORK, price: "0.005000" });
    // The mpp offer is cheaper, and x402 goes before mpp where a url speaks both.
    expect(read.price).toBe("0.010000");
    const only = readTerms({ headers: { "www-authenticate": challenge }, body: Buffer.from("") }, rail);
    expect(only).toMatchObject({ readable: true, payable: { challenge: { id: "a" } }, price: "0.005000" });
  });

  test("JSON that `btoa` made of Latin-1 text is read as the official client reads it, in header and body", () => {
    const terms = JSON.stringify({ x402Version: 2, resource: { description: "22 °C, £5" }, accepts: [entry()] });
    const read = readTerms({ headers: { "payment-required": btoa(terms) }, body: Buffer.from("{}") }, rail);
    expect(read).toMatchObject({ readable: true, price: "0.010000" });
    expect(codes(read)).toEqual([]);
    const first = JSON.stringify({ x402Version: 1, accepts: [v1({ description: "22 °C" })] });
    expect(readTerms({ headers: {}, body: Buffer.from(first, "latin1") }, rail).readable).toBe(true);
  });

  test.each(["id", "request", "expires", "realm"])("mpp: a challenge that names %s twice is none", (name) => {
    const request = b64({ amount: "5000", currency: ASSET, recipient: PAY_TO, methodDetails: { chainId: 84532 } });
    const challenge = `Payment id="a", realm="r", method="evm", intent="charge", request="${request}", expires="2099-01-01T00:00:00Z"`;
    const of = (header: string) => readTerms({ headers: { "www-authenticate": header }, body: Buffer.from("") }, rail);
    expect(of(challenge).readable).toBe(true);
    const twice = of(`${challenge}, ${name.toUpperCase()}="x"`);
    expect(twice).toMatchObject({ readable: false, payable: null, terms: { offers: { length: 1 } } });
    expect(codes(twice)).toContain("malformed_terms");
    expect(() => Challenge.deserializeList(`${challenge}, ${name}="x"`)).toThrow(`Duplicate parameter: ${name}`);
  });

  test("mpp on Tempo: USDC.e is a dollar with six decimals, also where no rail of ours pays it", () => {
    const currency = "0x20C000000000000000000000b9537d11c60E8b50";
    const request = b64({ amount: "5000", currency, recipient: PAY_TO, methodDetails: { chainId: 4217 } });
    const challenge = `Payment id="a", realm="r", method="tempo", intent="charge", request="${request}"`;
    const read = readTerms({ headers: { "www-authenticate": challenge }, body: Buffer.from("") }, rail);
    expect(read.terms.offers).toMatchObject([
      { scheme: "tempo/charge", network: "eip155:4217", price: "0.005000", decimals: 6, payable: false },
    ]);
    expect(sameAsset("eip155:4217", currency, "usdc")).toBe(true);
  });

  test("mpp: a chain that is not named is not guessed", () => {
    const request = b64({ amount: "5000", currency: "usd", recipient: "acct_1" });
    const headers = {
      "www-authenticate": `Payment id="a", realm="r", method="tempo", intent="charge", request="${request}"`,
    };
    expect(readTerms({ headers, body: Buffer.from("") }, rail).terms.offers[0]?.network).toBe("unknown");
  });
});

/** The USDC of Solana, to an account that is 32 bytes. */
const SOLANA = {
  network: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
  asset: "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
  payTo: "4HVvnhyXTkMnPbMBo9r3kfvYhzW4JSbLGdXg9SkUcVSe",
  extra: { feePayer: "EGBQqKn968sVv5cQh5Cr72pSTHfxsuzq7o7asqYB5uEV" },
};

/** A currency that was issued on the XRP Ledger (scheme_exact_xrpl.md). */
const IOU = {
  network: "xrpl:0",
  asset: "524C555344000000000000000000000000000000",
  amount: "10.5",
  payTo: "rN7n3473SaZBCG4dFL83w7a1RXtXtbk2D9",
};

describe("entry by entry", () => {
  const one = (change: Record<string, unknown>) => inHeader({ x402Version: 2, accepts: [entry(change)] });
  test.each<[string, Record<string, unknown>, string[], boolean]>([
    ["decimal amount", { amount: "0.001" }, ["no_payable_entry", "bad_amount"], false],
    ["dollar amount", { amount: "$0.01" }, ["no_payable_entry", "bad_amount"], false],
    ["number amount", { amount: 40000 }, ["no_payable_entry", "bad_amount"], false],
    ["empty amount", { amount: "" }, ["no_payable_entry", "missing_amount"], false],
    ["negative amount", { amount: "-1" }, ["no_payable_entry", "bad_amount"], false],
    ["79 digits", { amount: "9".repeat(79) }, ["no_payable_entry", "bad_amount"], false],
    ["two amounts that agree", { maxAmountRequired: "10000" }, [], true],
    ["two amounts that differ", { maxAmountRequired: "20000" }, ["both_amounts"], true],
    ["version 1's name for the amount", { amount: undefined, maxAmountRequired: "10000" }, [], true],
    ["placeholder payTo", { payTo: "walletaddress" }, ["no_payable_entry", "bad_pay_to"], false],
    ["no payTo", { payTo: undefined }, ["no_payable_entry", "bad_pay_to"], false],
    ["zero payTo", { payTo: `0x${"0".repeat(40)}` }, ["no_payable_entry", "bad_pay_to"], false],
    ["network by name", { network: "base-sepolia" }, ["network_form"], true],
    ["network object", { network: { chainId: 84532 } }, ["bad_network"], true],
    ["network of another chain", { network: "hyperliquid:mainnet", payTo: "hl1abcdefgh" }, [], true],
    ["asset by symbol", { asset: "USDC" }, ["bad_asset"], true],
    ["asset by an ISO 4217 code, where assets have contracts", { asset: "USD" }, ["bad_asset"], true],
    ["asset by a word nobody knows", { asset: "coolcoin" }, ["no_payable_entry", "bad_asset"], false],
    ["no asset", { asset: undefined }, ["no_payable_entry", "bad_asset"], false],
    ["placeholder asset", { asset: "0x..." }, ["no_payable_entry", "bad_asset"], false],
    ["the zero address as asset", { asset: `0x${"0".repeat(40)}` }, ["no_payable_entry", "bad_asset"], false],
    [
      "what some write for a chain's own coin",
      { asset: `0x${"Ee".repeat(20)}` },
      ["no_payable_entry", "bad_asset"],
      false,
    ],
    ["ISO 4217 code elsewhere", { network: "stripe:live", asset: "usd", payTo: "acct_12345" }, [], true],
    ["known symbol of its network", { network: "keeta:main", asset: "USDC", payTo: "keeta_aabcdef" }, [], true],
    ["a decimal number of an issued currency of XRPL", IOU, [], true],
    ["drops of XRP in decimals", { ...IOU, asset: "XRP" }, ["no_payable_entry", "bad_amount"], false],
    ["a number of an issued currency", { ...IOU, amount: 10.5 }, ["no_payable_entry", "bad_amount"], false],
    ["none of an issued currency", { ...IOU, amount: "0.00" }, ["no_payable_entry", "bad_amount"], false],
    ["an issued currency by its symbol", { ...IOU, asset: "RLUSD" }, [], true],
    ...(
      [
        ["stacks:1", "STX"],
        ["stacks:1", "sBTC"],
        ["nano:mainnet", "XNO"],
        ["cardano:mainnet", "lovelace"],
        ["kaspa:mainnet", "KAS"],
        ["casper:casper", "CSPR"],
        ["near:mainnet", "usdc.near"],
      ] as const
    ).map(([network, asset]): [string, Record<string, unknown>, string[], boolean] => [
      `a symbol of a network that we do not know: ${asset}`,
      { network, asset, payTo: network.startsWith("near") ? "ab.near" : "plainaddr1234" },
      [],
      true,
    ]),
    [
      "a symbol on a network that is none",
      { network: "our-chain", asset: "ABC", payTo: "plainaddr1234" },
      ["no_payable_entry", "bad_asset", "bad_network"],
      false,
    ],
    [
      "a placeholder on a network that we do not know",
      { network: "stacks:1", asset: "yourtoken", payTo: "plainaddr1234" },
      ["no_payable_entry", "bad_asset"],
      false,
    ],
    [
      "a sentence as asset",
      { network: "keeta:main", asset: "the best coin there is", payTo: "keeta_aabcdef" },
      ["no_payable_entry", "bad_asset"],
      false,
    ],
    ["mint and payee of Solana", SOLANA, [], true],
    [
      "mint in other capitals",
      { ...SOLANA, asset: SOLANA.asset.toLowerCase() },
      ["no_payable_entry", "bad_asset"],
      false,
    ],
    ["31 bytes of base58 as payee", { ...SOLANA, payTo: "3".repeat(42) }, ["no_payable_entry", "bad_pay_to"], false],
    ["an EVM address as payee on Solana", { ...SOLANA, payTo: PAY_TO }, ["no_payable_entry", "bad_pay_to"], false],
    ["a payee of Solana on EVM", { payTo: SOLANA.payTo }, ["no_payable_entry", "bad_pay_to"], false],
    [
      "Solana's system program as payee",
      { ...SOLANA, payTo: "1".repeat(32) },
      ["no_payable_entry", "bad_pay_to"],
      false,
    ],
    ["asset as CAIP-19", { asset: `${NETWORK}/erc20:${ASSET}` }, ["bad_asset"], true],
    ["no domain", { extra: {} }, ["missing_domain"], true],
    // x402#2044: the payer signs the domain of Permit2, and the stock server leaves the token's out.
    ["no domain, by Permit2", { extra: { assetTransferMethod: "permit2" } }, [], true],
    ["no domain, by ERC-7710", { extra: { assetTransferMethod: "erc7710" } }, [], true],
    ["no domain, by name of the usual way", { extra: { assetTransferMethod: "eip3009" } }, ["missing_domain"], true],
    // `scheme_exact_svm.md` requires it: the facilitator's account signs as fee payer.
    ["no fee payer on Solana", { ...SOLANA, extra: null }, ["no_payable_entry", "missing_fee_payer"], false],
    [
      "a fee payer on Solana that is no account",
      { ...SOLANA, extra: { feePayer: "you" } },
      ["no_payable_entry", "missing_fee_payer"],
      false,
    ],
    ["timeout of a unix time", { maxTimeoutSeconds: 1781582577 }, ["bad_timeout"], true],
    ["timeout below zero", { maxTimeoutSeconds: -1 }, ["bad_timeout"], true],
    ["no timeout", { maxTimeoutSeconds: undefined }, ["bad_timeout"], true],
    ["scheme of another kind", { scheme: "batch-settlement" }, [], true],
    ["no scheme", { scheme: undefined }, ["no_payable_entry", "bad_entry"], false],
  ])("%s", (_name, change, defects, readable) => {
    const read = one(change);
    expect(codes(read)).toEqual(defects);
    expect(read.readable).toBe(readable);
  });

  test("amounts are never converted: what is no atomic amount stays unknown", () => {
    for (const amount of ["0.001", "$1", 40000, "1e6", " 1", "0x10"]) {
      expect(one({ amount })).toMatchObject({
        price: null,
        payable: null,
        terms: { offers: [{ amount_atomic: null }] },
      });
    }
  });

  test("a decimal number of an issued currency has no atomic amount and no price, and is never signed", () => {
    const read = readTerms(
      { headers: {}, body: Buffer.from(JSON.stringify({ x402Version: 2, accepts: [entry(IOU)] })) },
      Object.assign(new FakeRail(), { canPay: () => true }),
    );
    expect(read).toMatchObject({ readable: true, price: null, payable: null });
    expect(read.terms.offers).toMatchObject([{ asset: IOU.asset, amount_atomic: null, price: null, payable: false }]);
  });

  test("a bad entry beside a good one costs only itself; the cheapest that we sign is chosen", () => {
    const cheap = entry({ amount: "9000" });
    const read = inHeader({ x402Version: 2, accepts: [null, 7, entry({ amount: "0.1" }), entry(), cheap, cheap] });
    expect(read.payable?.amountAtomic).toBe(9_000n);
    expect(read.payable?.raw).toEqual(cheap);
    expect(read.terms.offers).toHaveLength(6);
    expect(codes(read)).toEqual(["bad_entry", "bad_amount"]);
  });

  test.each([
    [18, "10000000000000000", "90000", "0.010000"],
    [2, "9", "10000", "0.010000"],
    // Not a whole number of millionths: its price is unknown, and any other is chosen before it.
    [18, "10000000000000001", "90000", "0.090000"],
  ])("a token of %i decimals beside one of 6: the cheaper price is chosen", (decimals, amount, usdc, price) => {
    const token = "0x000000000000000000000000000000000000dead";
    const decimalsOf = ({ asset }: { asset: string }) => (asset === token ? decimals : 6);
    const ours = Object.assign(new FakeRail(), { canPay: () => true, decimalsOf });
    for (const accepts of [
      [entry({ asset: token, amount }), entry({ amount: usdc })],
      [entry({ amount: usdc }), entry({ asset: token, amount })],
    ]) {
      const headers = { "payment-required": b64({ x402Version: 2, accepts }) };
      expect(readTerms({ headers, body: Buffer.from("{}") }, ours).price).toBe(price);
    }
  });

  test("the USDC of Solana is money by its mint as it is written, and by the network's long name too", () => {
    const long = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147wwSaGf";
    for (const network of [SOLANA.network, long, "solana"]) {
      expect(one({ ...SOLANA, network }).terms.offers[0]).toMatchObject({ price: "0.010000", decimals: 6 });
    }
    expect(one({ ...SOLANA, asset: SOLANA.asset.toLowerCase() }).terms.offers[0]).toMatchObject({ price: null });
  });

  test("a network object is a defect in both versions, and never more", () => {
    for (const network of [{ chainId: 8453, name: "base" }, 8453, [], true]) {
      expect(codes(one({ network }))).toContain("bad_network");
      expect(codes(inBody({ x402Version: 1, accepts: [v1({ network })] }))).toContain("bad_network");
    }
  });

  test("what is wrong with an offer on another network is said of that offer alone", () => {
    const aside = entry({ network: "ninth", amount: "0.1" });
    const read = inHeader({ x402Version: 2, accepts: [entry(), entry(SOLANA), aside] });
    expect(read.terms.defects.map(({ defect, says }) => `${defect}: ${says}`)).toEqual([
      expect.stringMatching(/^bad_amount: .*\(said of offer 3 of 3 alone\)$/),
      expect.stringMatching(/^bad_network: .*\(said of offer 3 of 3 alone\)$/),
    ]);
    // Of the whole, where a buyer of the first one meets it as well.
    const both = inHeader({
      x402Version: 2,
      accepts: [entry({ maxTimeoutSeconds: 0 }), { ...aside, maxTimeoutSeconds: 0 }],
    });
    expect(both.terms.defects[0]).toEqual(defect("bad_timeout"));
  });

  test("every name of x402's own table of version 1 is the chain that it says", () => {
    expect(Object.keys(EVM_NETWORK_CHAIN_ID_MAP).length).toBeGreaterThan(20);
    for (const [name, chainId] of Object.entries(EVM_NETWORK_CHAIN_ID_MAP)) {
      expect(readNetwork(name)).toMatchObject({ id: `eip155:${chainId}`, form: "name" });
    }
    for (const name of ["solana", "solana-devnet", "solana-testnet"]) {
      expect(readNetwork(name)).toMatchObject({ id: expect.stringMatching(/^solana:\w{32}$/), form: "name" });
    }
  });

  test("a missing timeout is bounded for the payment, and stays missing in the record", () => {
    expect(one({ maxTimeoutSeconds: 0 })).toMatchObject({
      payable: { maxTimeoutSeconds: 60 },
      terms: { offers: [{ max_timeout_s: 0 }] },
    });
  });
});

describe("what is no terms", () => {
  test.each<[string, string, string[]]>([
    ["empty object", "{}", ["no_terms"]],
    ["html", "<!doctype html><p>pay", ["no_terms"]],
    ["accepts is empty", '{"x402Version":1,"accepts":[]}', ["no_terms"]],
    ["broken off", '{"x402Version":1,"accepts":[{"scheme":"exact"', ["malformed_terms"]],
    ["a number", "7", ["no_terms"]],
    ["nothing", "", ["no_terms"]],
    ["accepts is text", '{"x402Version":1,"accepts":"usdc"}', ["malformed_terms", "no_terms"]],
  ])("%s", (_name, body, defects) => {
    const read = inBody(body);
    expect(read).toMatchObject({ readable: false, payable: null });
    expect(codes(read)).toEqual(defects);
  });

  test("terms of another resource, and of play money", () => {
    const read = inBody({ x402Version: 1, accepts: [v1({ resource: "https://other.example/x" })] }, URL_ASKED);
    expect(codes(read)).toEqual(["resource_differs"]);
    expect(codes(inBody({ x402Version: 1, accepts: [v1({ resource: `${URL_ASKED}?a=1` })] }, URL_ASKED))).toEqual([]);
    const named = (resource: string, asked = URL_ASKED) =>
      codes(inHeader({ x402Version: 2, resource: { url: resource }, accepts: [entry()] }, "{}", asked));
    const plain = URL_ASKED.replace("https", "http");
    expect(named(plain)).toEqual(["resource_scheme_differs"]);
    expect(named(`${plain}?a=1`)).toEqual(["resource_scheme_differs"]);
    for (const other of [`${plain}2`, "http://other.example/sum", "http://seller.example:8080/sum"]) {
      expect(named(other)).toEqual(["resource_differs"]);
    }
    // The other way round it is not the same: whoever asks over http was not asked to.
    expect(named(URL_ASKED, plain)).toEqual(["resource_differs"]);
    const play = entry({ network: "eip155:80002" });
    expect(codes(inHeader({ x402Version: 2, accepts: [play] }))).toEqual(["testnet_only"]);
  });

  test("more offers than the record takes, and a body past the limit", () => {
    const many = Array.from({ length: 1_000 }, () => entry());
    expect(inHeader({ x402Version: 2, accepts: many }).terms.offers).toHaveLength(64);
    const big = readTerms({ headers: {}, body: Buffer.alloc(1024 * 1024 + 1, 32) }, rail);
    expect(codes(big)).toEqual(["malformed_terms"]);
  });
});

describe("what a 402 declares of itself", () => {
  test("version 2, as the stock server library writes it", () => {
    const schema = { properties: { sum: { type: "number" } }, type: "object", required: ["sum"] };
    const bazaar = {
      info: {
        input: { type: "http", method: "GET", queryParams: { a: "1", b: 2 } },
        output: { type: "json", example: { sum: 3 } },
      },
      schema: { properties: { input: {}, output: { properties: { type: {}, example: schema } } } },
      class: "arithmetic",
    };
    const read = inHeader({ x402Version: 2, accepts: [entry()], extensions: { bazaar } });
    expect(read.declared).toMatchObject({
      method: "GET",
      example: { query: { a: "1", b: "2" } },
      className: "arithmetic",
    });
    expect(read.declared.outputSchema).toEqual(schema);
    expect(read.terms.schema_sha256).toMatch(/^[0-9a-f]{64}$/);
    expect(read.context.extensions).toEqual({ bazaar });
  });

  test("version 1: field maps are schemas, example values are examples, neither is taken for the other", () => {
    const of = (outputSchema: unknown) => inBody({ x402Version: 1, accepts: [v1({ outputSchema })] }).declared;
    const fields = of({
      input: { type: "http", method: "post", bodyFields: { q: { type: "string", required: true } } },
      output: { n: { type: "number" } },
    });
    expect(fields).toMatchObject({
      method: "POST",
      example: null,
      inputIn: "body",
      inputSchema: { type: "object", properties: { q: { type: "string" } }, required: ["q"] },
      outputSchema: { type: "object", properties: { n: { type: "number" } } },
    });
    const example = of({ input: { type: "http", method: "GET", queryParams: { q: "x" } }, output: { type: "json" } });
    expect(example).toMatchObject({ example: { query: { q: "x" } }, inputSchema: undefined, outputSchema: undefined });
    expect(of({ input: { type: "http", method: "GET" }, output: null })).toMatchObject({
      example: null,
      outputSchema: undefined,
    });
    expect(of({ output: { type: "object" } }).outputSchema).toBeUndefined();
  });
});

describe("whatever they send", () => {
  const json = fc.jsonValue({ maxDepth: 3 });
  const like = fc.oneof(
    json,
    fc.record({ x402Version: json, accepts: fc.oneof(json, fc.array(fc.oneof(json, fc.constant(entry())))) }),
    fc.record({
      x402Version: fc.constant(2),
      accepts: fc.array(fc.dictionary(fc.constantFrom(...Object.keys(entry()), "outputSchema"), json)),
      extensions: fc.record({ bazaar: json }),
    }),
  );
  test("it reads, and the record takes it", () => {
    fc.assert(
      fc.property(like, fc.boolean(), fc.string({ unit: "binary" }), (value, header, challenge) => {
        const raw = JSON.stringify(value);
        const headers: Record<string, string> = { "www-authenticate": challenge };
        if (header) headers["payment-required"] = Buffer.from(raw).toString("base64");
        const read = readTerms({ headers, body: Buffer.from(raw) }, rail, URL_ASKED);
        expect(() => Terms.parse(read.terms)).not.toThrow();
      }),
      { numRuns: 80 },
    );
  });

  test("bytes that are no JSON", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.string(), (body, header) => {
        expect(readTerms({ headers: { "payment-required": header }, body }, rail).readable).toBe(false);
      }),
    );
  });

  test("nesting without end, and texts that have no canonical form", () => {
    const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
    expect(inBody(`{"x402Version":1,"accepts":[{"scheme":"exact","network":${deep}}]}`).readable).toBe(false);
    const odd = inBody(
      `{"x402Version":1,"accepts":[{"scheme":"\\ud800","network":"\\udfff","payTo":"${"\\ud83d\\ude00".repeat(150)}"}]}`,
    );
    expect(odd.terms.offers[0]?.scheme).toBe("\ufffd");
  });
});
