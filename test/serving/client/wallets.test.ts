import { describe, expect, test } from "vitest";
import type { CheckAnswer, Decision, Guard, Offer, Policy } from "../../../serving/client/index.ts";
import { guard } from "../../../serving/client/index.ts";
import { fc } from "../../helpers/histories.ts";
import { type Demand402, OVER_HTTP, OVER_MCP, type Signed, type ToolReply, URL_ASKED } from "../../helpers/wallets.ts";

/**
 * What the real wallets sign is what the guard was asked about and allowed: over demands that are right, and over demands in
 * which something was changed. Whatever a wallet makes of them, it must not sign more, to another, elsewhere or for longer.
 */
const THIEF = "0x2222222222222222222222222222222222222222";
const PAYEE = "0x1111111111111111111111111111111111111111";
const USDC = { "eip155:8453": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" };
const EXTRA = { name: "USD Coin", version: "2" };
const entry = (more: object = {}): Record<string, unknown> => ({
  ...{ scheme: "exact", network: "eip155:8453", amount: "10000", asset: USDC["eip155:8453"], payTo: PAYEE },
  ...{ maxTimeoutSeconds: 60, extra: EXTRA, ...more },
});
const first = (more: object = {}): Record<string, unknown> => {
  const { amount: maxAmountRequired, ...rest } = entry();
  return { ...rest, network: "base", maxAmountRequired, resource: URL_ASKED, description: "", ...more };
};
const termsOf = (accepts: unknown, x402Version: unknown = 2, more: object = {}) => ({
  ...{ x402Version, resource: { url: URL_ASKED }, accepts, ...more },
});
const b64 = (text: string): string => Buffer.from(text).toString("base64");
const inHeader = (terms: unknown): Demand402 => ({
  headers: { "payment-required": b64(JSON.stringify(terms)) },
  body: "{}",
});
const inBody = (terms: unknown): Demand402 => ({ headers: {}, body: JSON.stringify(terms) });

const charge = (more: object = {}): Record<string, unknown> => ({
  ...{ amount: "10000", currency: USDC["eip155:8453"], recipient: PAYEE },
  ...{ methodDetails: { chainId: 8453, credentialTypes: ["authorization"] }, ...more },
});
const request = (more: object = {}): string => Buffer.from(JSON.stringify(charge(more))).toString("base64url");
const DEAR = request({ amount: "9000000", recipient: THIEF });
const challenge = (encoded = request()): string =>
  `Payment id="1", realm="seller", method="evm", intent="charge", request="${encoded}"`;
const challenged = (header: string): Demand402 => ({ headers: { "www-authenticate": header }, body: "" });

/** Nothing is known of the seller, and the buyer does not mind: only what can be read is refused. */
const LAX: Partial<Policy> = { otherAsset: "pay", otherNetwork: "pay", otherScheme: "pay" };

interface Seen {
  asked: number;
  allowed: Offer[];
  decisions: Decision[];
}

/** The true guard, over a service that knows nothing, and what it was asked. */
function watched(policy: Partial<Policy> = LAX): { guard: Guard; seen: Seen } {
  const seen: Seen = { asked: 0, allowed: [], decisions: [] };
  const check = async () =>
    ({
      band: "UNRATED",
      why: "unknown",
      asked: URL_ASKED,
      matched: "none",
      defects: [],
      answered_at: "",
    }) as never as CheckAnswer;
  const real = guard({ check }, policy);
  const spy: Guard = async (demand) => {
    seen.asked++;
    const decision = await real(demand);
    seen.decisions.push(decision);
    if (decision.allow) seen.allowed.push(...demand.offers);
    return decision;
  };
  return { guard: spy, seen };
}

const SLACK_S = 5;

/** Was this asked about, and allowed? */
const isCovered = (signed: Signed, allowed: readonly Offer[], now_s: number): boolean =>
  allowed.some((offer) => {
    const until = offer.validUntil_s ?? now_s + (offer.validFor_s ?? 0);
    return (
      offer.network === signed.network &&
      offer.asset?.toLowerCase() === signed.asset &&
      offer.amount === signed.amount &&
      offer.payTo?.toLowerCase() === signed.payTo &&
      signed.until <= until + SLACK_S
    );
  });

type Run<D> = (demand: D, guard: Guard, signed: Signed[]) => Promise<unknown>;

/** Lets one wallet at one demand. @throws AssertionError for a signature over what was not allowed */
async function judge<D>(name: string, run: Run<D>, demand: D, policy?: Partial<Policy>) {
  const { guard: spy, seen } = watched(policy);
  const signed: Signed[] = [];
  // What a wallet throws is its own business: nothing is signed then, or was before.
  await run(demand, spy, signed).catch(() => {});
  const now_s = Date.now() / 1000;
  const stray = signed.filter((one) => !isCovered(one, seen.allowed, now_s));
  expect(stray, `${name} signed what nobody was asked about`).toEqual([]);
  for (const { until } of signed) expect(until - now_s).toBeLessThanOrEqual(600 + SLACK_S);
  return { seen, signed };
}

async function judgeAll<D>(
  runs: Record<string, Run<D>>,
  demand: D,
): Promise<{ name: string; signed: number; seen: Seen }[]> {
  const all = [];
  for (const [name, run] of Object.entries(runs)) {
    const { seen, signed } = await judge(name, run, demand);
    all.push({ name, signed: signed.length, seen });
  }
  return all;
}

const isUnreadable = ({ decisions }: Seen): boolean => decisions.some(({ reason }) => reason === "unreadable_terms");

describe("demands that are right are read, and signed by those who know them", () => {
  const [guardedX402, hookedX402, guardedMppx, hookedMppx] = Object.keys(OVER_HTTP);
  const latin1 = btoa(JSON.stringify(termsOf([entry({ description: "22 °C, £5" })])));
  test.each<[string, Demand402, (string | undefined)[]]>([
    ["x402 version 2", inHeader(termsOf([entry()])), [guardedX402, hookedX402, guardedMppx, hookedMppx]],
    [
      "with a body of version 1 beside it",
      { ...inHeader(termsOf([entry()])), body: JSON.stringify(termsOf([first()], 1)) },
      [guardedX402, hookedX402, guardedMppx, hookedMppx],
    ],
    ["x402 version 1", inBody(termsOf([first()], 1)), [guardedX402, hookedX402]],
    [
      "permit2",
      inHeader(termsOf([entry({ extra: { ...EXTRA, assetTransferMethod: "permit2" } })])),
      [guardedX402, hookedX402],
    ],
    [
      "Latin-1 through btoa",
      { headers: { "payment-required": latin1 }, body: "" },
      [guardedX402, hookedX402, guardedMppx, hookedMppx],
    ],
    [
      "Latin-1 in a body",
      {
        headers: {},
        body: Uint8Array.from(Buffer.from(JSON.stringify(termsOf([first({ description: "22 °C" })], 1)), "latin1")),
      },
      [guardedX402, hookedX402],
    ],
    [
      "a page for people beside the header",
      { ...inHeader(termsOf([entry()])), body: "<html>{{{[[[" },
      [guardedX402, hookedX402, guardedMppx, hookedMppx],
    ],
    ["mpp", challenged(challenge()), [guardedMppx, hookedMppx]],
    ["mpp in small letters", challenged(challenge().replace("Payment", "payment")), [guardedMppx, hookedMppx]],
    [
      "names in capitals",
      challenged(challenge().replace(/(\w+)=/g, (name) => name.toUpperCase())),
      [guardedMppx, hookedMppx],
    ],
    ["spaces around =", challenged(challenge().replaceAll('="', ' = "')), [guardedMppx, hookedMppx]],
    [
      "quoted text with the word Payment",
      challenged(challenge().replace('"seller"', '"a, Payment id=\\"2\\", request=x"')),
      [guardedMppx, hookedMppx],
    ],
    ["no commas", challenged(challenge().replaceAll('", ', '" ')), [guardedMppx, hookedMppx]],
    [
      "tokens without quotes",
      challenged(challenge().replace(/="(1|seller|evm|charge)"/g, "=$1")),
      [guardedMppx, hookedMppx],
    ],
    [
      "other schemes before and behind it",
      challenged(`Negotiate YII==, Basic realm="x", ${challenge()}, Digest realm="y", request="${DEAR}"`),
      [guardedMppx, hookedMppx],
    ],
    ["empty elements of the list", challenged(`, ,${challenge()},, Bearer`), [guardedMppx, hookedMppx]],
    [
      "an end within ten minutes",
      challenged(`${challenge()}, expires="${new Date(Date.now() + 500_000).toISOString()}"`),
      [guardedMppx, hookedMppx],
    ],
    [
      "two challenges",
      challenged(`${challenge()}, ${challenge(request({ amount: "20000" }))}`),
      [guardedMppx, hookedMppx],
    ],
  ])("%s", async (_, demand, signers) => {
    const all = await judgeAll(OVER_HTTP, demand);
    expect(all.filter(({ seen }) => isUnreadable(seen)).map(({ name }) => name)).toEqual([]);
    expect(all.filter(({ signed }) => signed > 0).map(({ name }) => name)).toEqual(signers);
  });
});

test("another scheme's parameters behind a challenge are not taken for its own: the guard is asked what is signed", async () => {
  const header = `${challenge(DEAR)}, Digest realm="x", method="evm", request="${request()}"`;
  for (const { name, seen, signed } of await judgeAll(OVER_HTTP, challenged(header))) {
    const asked = seen.allowed.map(({ amount, payTo }) => [amount, payTo]);
    if (signed > 0) expect(asked, name).toEqual([[9_000_000n, THIEF]]);
  }
});

/** Below the wallet the whole demand is read, and refused; a hook sees what the wallet chose, and that it is asked about. */
const below = (name: string): boolean => name.endsWith("over guardedFetch");

describe("attacks over HTTP: what wallets may read otherwise is not handed on", () => {
  const year = 31_536_000;
  test.each<[string, Demand402]>([
    ["text behind unescaped quotes", challenged(`${challenge(DEAR)}, description="a" request="${request()}" b"`)],
    [
      "a request in another challenge's quotes",
      challenged(`Basic realm=a"b, ${challenge()}, x="y, ${challenge(DEAR)}`),
    ],
    ["a parameter twice", challenged(`${challenge()}, request="${DEAR}"`)],
    ["a method twice", challenged(`${challenge(DEAR)}, method="evm"`)],
    ["a request in escapes", challenged(challenge(`\\u00${DEAR.charCodeAt(0).toString(16)}${DEAR.slice(1)}`))],
    ["a space that is none", challenged(challenge(DEAR).replace("Payment ", "Payment\u00a0"))],
    ["a word behind the scheme's name", challenged(challenge(DEAR).replace("Payment ", "Payment x "))],
    ["mpp: an amount in hexadecimal", challenged(challenge(request({ amount: "0x895440" })))],
    ["mpp: an amount that is a number", challenged(challenge(request({ amount: 9_000_000 })))],
    [
      "mpp: a chain in hexadecimal",
      challenged(challenge(request({ methodDetails: { chainId: "0x2105", credentialTypes: ["authorization"] } }))),
    ],
    [
      "mpp: an end in a year",
      challenged(`${challenge()}, expires="${new Date(Date.now() + year * 1000).toISOString()}"`),
    ],
    ["an amount in hexadecimal", inHeader(termsOf([entry({ amount: "0x989680" })]))],
    ["an amount between spaces", inHeader(termsOf([entry({ amount: " 10000000 " })]))],
    ["an amount with a sign", inHeader(termsOf([entry({ amount: "+10000000" })]))],
    ["an amount that is a number", inHeader(termsOf([entry({ amount: 10_000_000 })]))],
    ["an amount in a list", inHeader(termsOf([entry({ amount: ["10000000"] })]))],
    ["no amount at all", inHeader(termsOf([entry({ amount: "" })]))],
    ["version 1: an amount in hexadecimal", inBody(termsOf([first({ maxAmountRequired: "0x989680" })], 1))],
    ["two amounts", inHeader(termsOf([entry({ amount: "9000000", maxAmountRequired: "10000" })]))],
    ["version 1: two amounts", inBody(termsOf([first({ maxAmountRequired: "9000000", amount: "10000" })], 1))],
    ["a chain with a zero before it", inHeader(termsOf([entry({ network: "eip155:08453" })]))],
    ["a payee between spaces", inHeader(termsOf([entry({ payTo: ` ${PAYEE}` })]))],
    ["no payee", inHeader(termsOf([entry({ payTo: undefined })]))],
    ["a payee that is no address", inHeader(termsOf([entry({ payTo: "seller.eth" })]))],
    ["nobody as payee", inHeader(termsOf([entry({ payTo: `0x${"0".repeat(40)}` })]))],
    ["a time as text, to which the time is appended", inHeader(termsOf([entry({ maxTimeoutSeconds: "60" })]))],
    ["a year", inHeader(termsOf([entry({ maxTimeoutSeconds: year })]))],
    ["version 1: a year", inBody(termsOf([first({ maxTimeoutSeconds: year })], 1))],
    [
      "a header with what no base64 has",
      { ...inHeader({}), headers: { "payment-required": `${b64(JSON.stringify(termsOf([entry()])))} =` } },
    ],
    [
      "terms nested deeper than is read",
      inBody(termsOf([first()], 1, { pad: JSON.parse("[".repeat(200) + "]".repeat(200)) })),
    ],
    [
      "a dear offer among too many",
      inHeader(termsOf([...Array(64).fill(entry({ scheme: "x" })), entry({ amount: "9000000" })])),
    ],
    ["an entry that is none", inHeader(termsOf([null, entry()]))],
  ])("%s", async (_, demand) => {
    const all = await judgeAll(OVER_HTTP, demand);
    expect(all.filter(({ name, signed }) => below(name) && signed > 0).map(({ name }) => name)).toEqual([]);
  });

  test.each<[string, object]>([
    ["an unknown token", { asset: THIEF, amount: "10000000000000000" }],
    ["a scheme that signs more", { scheme: "batch-settlement" }],
  ])("%s, with the policy as it comes", async (_, more) => {
    for (const [name, run] of Object.entries(OVER_HTTP)) {
      const { signed } = await judge(name, run, inHeader(termsOf([entry(more)])), {});
      expect(signed).toEqual([]);
    }
  });
});

const challenges = (encoded: unknown = charge()) => ({
  challenges: [{ id: "1", realm: "r", method: "evm", intent: "charge", request: encoded }],
});
const error = (code: number, data: unknown): ToolReply => ({ error: { code, message: "Payment required", data } });
const result = (more: object): ToolReply => ({ result: { content: [], ...more } });
const text = (value: unknown) => ({ content: [{ type: "text", text: JSON.stringify(value) }] });

describe("a demand over MCP is asked about wherever it stands", () => {
  const V2 = termsOf([entry()]);
  const MPP = ["mppx around guardTools", "mppx's fetch, JSON", "mppx's fetch, events"];
  const X402 = "x402's MCP transport around guardTools";
  const CLOUDFLARE = "Cloudflare's reading around guardTools";
  const LENIENT = "a lenient reading around guardTools";
  test.each<[string, ToolReply, string[]]>([
    ["structured content", result({ isError: true, structuredContent: V2 }), [X402, LENIENT]],
    ["structured content that is called no error", result({ structuredContent: V2 }), [LENIENT]],
    ["a text", result({ isError: true, ...text(V2) }), [X402, LENIENT]],
    ["_meta of Cloudflare's agents", result({ isError: true, _meta: { "x402/error": V2 } }), [CLOUDFLARE]],
    [
      "the same beside a cheaper text",
      result({ isError: true, _meta: { "x402/error": V2 }, ...text(termsOf([entry({ amount: "1" })])) }),
      [X402, CLOUDFLARE, LENIENT],
    ],
    ["an error 402", error(402, V2), [X402]],
    ["an error -32042 of mpp", error(-32_042, challenges()), MPP],
    ["an error -32043 of mpp", error(-32_043, challenges()), MPP],
    ["_meta of mpp", result({ isError: true, _meta: { "org.paymentauth/payment-required": challenges() } }), MPP],
    [
      "_meta of mpp that is called no error",
      result({ _meta: { "org.paymentauth/payment-required": challenges() } }),
      MPP,
    ],
    [
      "_meta of mpp beside a receipt",
      result({ _meta: { "x402/payment-response": {}, "org.paymentauth/payment-required": challenges() } }),
      MPP,
    ],
  ])("%s", async (_, reply, signers) => {
    const all = await judgeAll(OVER_MCP, reply);
    expect(all.filter(({ signed }) => signed > 0).map(({ name }) => name)).toEqual(signers);
    expect(all.filter(({ seen }) => isUnreadable(seen))).toEqual([]);
    for (const { name, seen } of all) expect(seen.asked, name).toBeGreaterThan(0);
  });

  test.each<[string, ToolReply]>([
    ["x402's extension binding", { result: { resultType: "payment_required", paymentRequired: V2 } }],
    ["another member of _meta", result({ isError: true, _meta: { "x402/payment-required": V2 } })],
    ["an error in a text", result({ isError: true, ...text({ "x402/error": { code: 402, data: V2 } }) })],
    ["an error of another code", error(-32_000, { x402: V2 })],
  ])("%s, which none of these reads", async (_, reply) => {
    for (const { name, seen } of await judgeAll(OVER_MCP, reply)) expect(seen.asked, name).toBeGreaterThan(0);
  });

  test("an answer that asks for nothing is nobody's question, and comes as it is", async () => {
    for (const reply of [
      result(text({ sum: 42 })),
      result({ structuredContent: { items: [V2] } }),
      error(-32_603, { a: 1 }),
    ]) {
      for (const { seen } of await judgeAll(OVER_MCP, reply)) expect(seen.asked).toBe(0);
    }
  });

  test.each<[string, ToolReply]>([
    ["an amount that is a number", error(-32_042, challenges(charge({ amount: 9_000_000 })))],
    [
      "an amount in hexadecimal",
      result({ isError: true, structuredContent: termsOf([entry({ amount: "0x989680" })]) }),
    ],
    [
      "a dear one behind a cheap one that is no challenge",
      error(-32_042, { challenges: [{}, ...challenges().challenges] }),
    ],
    [
      "a text nested deeper than is read",
      result({ isError: true, ...text({ ...V2, pad: JSON.parse("[".repeat(200) + "]".repeat(200)) }) }),
    ],
  ])("attack: %s", async (_, reply) => {
    const all = await judgeAll(OVER_MCP, reply);
    expect(all.filter(({ signed }) => signed > 0)).toEqual([]);
  });
});

/** Values that clients read in different ways. */
const AMOUNTS = [
  "0x989680",
  " 9000000",
  "+9000000",
  "9e6",
  "9000000.0",
  9_000_000,
  1e21,
  true,
  "",
  null,
  ["9000000"],
  "0009000000",
  {},
  "-1",
  "９",
  "9".repeat(80),
  "0b101",
  "1_000",
];
const PAYEES = [
  THIEF,
  THIEF.toUpperCase(),
  ` ${PAYEE}`,
  PAYEE.slice(2),
  "",
  null,
  undefined,
  "seller.eth",
  `0x${"0".repeat(40)}`,
  [PAYEE],
  `${PAYEE}\n`,
];
const NETWORKS = [
  "eip155:08453",
  "EIP155:8453",
  " eip155:8453",
  "eip155:8453 ",
  "base",
  "Base",
  "base-sepolia",
  "eip155:84532",
  8453,
  { chainId: 8453 },
  "eip155:",
  "eip155:0x2105",
  "eip155:8453\n",
  null,
  "eip155:99999999999999999999",
  "eip155:1e3",
];
const ASSETS = [
  THIEF,
  "USDC",
  "",
  null,
  USDC["eip155:8453"].toLowerCase(),
  ` ${USDC["eip155:8453"]}`,
  `eip155:8453/erc20:${USDC["eip155:8453"]}`,
  `0x${"e".repeat(40)}`,
  [USDC["eip155:8453"]],
];
const TIMES = ["60", 60.5, -5, 0, 31_536_000, null, undefined, "1e3", true, [60], 600, 601, 1e300];
const member = (name: string, values: readonly unknown[]) =>
  fc.constantFrom(...values).map((value) => ({ [name]: value }));
const change = fc.oneof(
  ...[
    member("amount", AMOUNTS),
    member("maxAmountRequired", AMOUNTS),
    member("payTo", PAYEES),
    member("network", NETWORKS),
  ],
  ...[
    member("asset", ASSETS),
    member("maxTimeoutSeconds", TIMES),
    member("scheme", ["exact", "upto", "EXACT", " exact", null, 7]),
  ],
  member("extra", [
    EXTRA,
    { ...EXTRA, assetTransferMethod: "permit2" },
    {},
    null,
    { ...EXTRA, assetTransferMethod: "x" },
  ]),
  fc.constant(JSON.parse('{"__proto__": {"amount": "9000000"}}') as object),
);
const changed = (base: () => Record<string, unknown>) =>
  fc
    .array(change, { maxLength: 2, size: "max" })
    .map((changes): unknown => Object.fromEntries([base(), ...changes].flatMap(Object.entries)));
const RIGHT = [
  entry(),
  entry({ amount: "20000", network: "eip155:84532" }),
  entry({ payTo: THIEF, amount: "5" }),
  first(),
];
const entries = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: changed(entry) },
    { weight: 2, arbitrary: changed(first) },
    { weight: 4, arbitrary: fc.constantFrom(...RIGHT) },
    fc.constantFrom<unknown>(null, 7, [entry()], "x"),
  ),
  { minLength: 1, maxLength: 3 },
);
const terms = fc
  .tuple(fc.oneof(entries, changed(entry)), fc.constantFrom<unknown>(2, 1, 2, 1, "2", 3, null, undefined))
  .map(([accepts, version]) => termsOf(accepts, version));
/** Base64 of terms, and what may be done to it. */
const encoded = terms.chain((value) => {
  const text = b64(JSON.stringify(value));
  return fc.constantFrom(
    text,
    text,
    text,
    text.replaceAll("=", ""),
    text.replace(/(.{40})/g, "$1 "),
    `${text}%`,
    `=${text}`,
    JSON.stringify(value),
    text.replaceAll("+", "-"),
  );
});

/** Pieces of challenges, right and wrong, put together anew. */
const REQUESTS = [
  request(),
  DEAR,
  request({ amount: "0x10" }),
  request({ recipient: THIEF }),
  request({ methodDetails: { chainId: "8453", credentialTypes: ["authorization"] } }),
  request({ methodDetails: { chainId: "08453", credentialTypes: ["authorization"] } }),
  request({ methodDetails: { credentialTypes: ["authorization"] } }),
  request({ amount: ["9"] }),
  `${request().slice(0, 8)} ${request().slice(8)}`,
];
const PIECES = [
  "Payment",
  "payment",
  "Digest",
  "Basic",
  "Negotiate YII==",
  "foo",
  'x.y="1"',
  '"stray',
  '"',
  "=",
  ",",
  "\\",
  "Payment\u00a0",
  'id="2"',
  'ID = "3"',
  "id=4",
  'realm="a, Payment id=\\"2\\", "',
  "realm=r",
  'realm=a"b',
  'method="evm"',
  "method=evm",
  'method="tempo"',
  'intent="charge"',
  "intent = charge",
  'expires="2099-01-01T00:00:00Z"',
  `expires="${new Date(Date.now() + 400_000).toISOString()}"`,
  'description="a" b"',
  ...REQUESTS.flatMap((one) => [`request="${one}"`, `request=${one}`, `REQUEST = "${one}"`, `request="\\${one}"`]),
];
const GOOD = challenge().split(/, | (?=id=)/);
const separator = fc.constantFrom(", ", ", ", ", ", ",", " ", " ,\t", "\u00a0");
const header = fc
  .array(fc.oneof({ weight: 9, arbitrary: fc.constant(null) }, fc.constantFrom(...PIECES)), {
    minLength: GOOD.length,
    maxLength: GOOD.length + 5,
  })
  .chain((pieces) =>
    fc.tuple(
      fc.constant(pieces),
      fc.array(separator, { minLength: pieces.length + GOOD.length, maxLength: pieces.length + GOOD.length }),
      fc.boolean(),
    ),
  )
  .map(([pieces, between, keeps]) => {
    const all = pieces.flatMap((piece, i) => {
      const good = i < GOOD.length ? [GOOD[i]!] : [];
      return piece === null ? good : keeps ? [...good, piece] : [piece];
    });
    return all
      .map((piece, i) => (i === 0 ? piece : all[i - 1] === "Payment" ? ` ${piece}` : `${between[i]}${piece}`))
      .join("");
  });

const demand402 = fc
  .record({
    terms: fc.option(encoded, { nil: undefined, freq: 2 }),
    header: fc.option(header, { nil: undefined, freq: 2 }),
    body: fc.oneof(
      terms.map((value) => JSON.stringify(value)),
      fc.constantFrom("", "{}", "<html>"),
    ),
  })
  .map(
    ({ terms: required, header: authenticate, body }): Demand402 => ({
      headers: {
        ...(required === undefined ? {} : { "payment-required": required }),
        ...(authenticate === undefined ? {} : { "www-authenticate": authenticate }),
      },
      body,
    }),
  );

const oneChallenge = fc
  .tuple(
    fc.array(
      fc.oneof(
        member("amount", AMOUNTS),
        member("recipient", PAYEES),
        member("currency", ASSETS),
        member("methodDetails", [
          { chainId: "8453", credentialTypes: ["authorization"] },
          { chainId: 84532, credentialTypes: ["authorization"] },
          {},
          null,
        ]),
      ),
      { maxLength: 2 },
    ),
    fc.array(
      fc.oneof(
        member("id", ["2", ""]),
        member("method", ["EVM", "tempo"]),
        member("intent", ["session", null]),
        member("expires", ["2099-01-01T00:00:00Z", "soon", 7]),
      ),
      { maxLength: 1 },
    ),
  )
  .map(
    ([inside, outside]) =>
      Object.assign({}, challenges(Object.assign(charge(), ...inside)).challenges[0], ...outside) as object,
  );
const anyChallenges = fc.oneof(
  fc.constant(challenges()),
  fc.array(oneChallenge, { minLength: 1, maxLength: 2 }).map((list) => ({ challenges: list })),
);
const anyTerms = fc.oneof(fc.constantFrom(termsOf([entry()]), termsOf([first()], 1)), terms as fc.Arbitrary<object>);
const MPP_META = "org.paymentauth/payment-required";
const X402_PLACES = ["structured", "text", "paymentRequired", "x402/error", "x402/payment-required"];
const placed = fc.oneof(
  { weight: 3, arbitrary: fc.tuple(fc.constantFrom(...X402_PLACES), anyTerms) },
  { weight: 3, arbitrary: fc.tuple(fc.constant(MPP_META), anyChallenges) },
  fc.tuple(fc.constantFrom(...X402_PLACES, MPP_META), fc.oneof(anyTerms, anyChallenges)),
);
const toolResult = fc
  .tuple(fc.constantFrom(true, true, false), fc.array(placed, { minLength: 1, maxLength: 3 }))
  .map(([isError, all]): ToolReply => {
    const said: Record<string, unknown> = { content: [], _meta: {}, ...(isError ? { isError } : {}) };
    for (const [where, value] of all) {
      if (where === "structured") said.structuredContent = value;
      else if (where === "text") Object.assign(said, text(value));
      else if (where === "paymentRequired") said[where] = value;
      else (said._meta as Record<string, unknown>)[where] = value;
    }
    return { result: said };
  });
const toolError = fc
  .oneof(
    fc.tuple(fc.constant(402), anyTerms),
    fc.tuple(fc.constantFrom(-32_042, -32_043), anyChallenges),
    fc.tuple(fc.constantFrom(402, -32_042, -32_000), fc.oneof(anyTerms, anyChallenges)),
  )
  .map(([code, data]) => error(code, data));

describe("whatever the demand, a wallet signs only what the guard was asked about and allowed", () => {
  let signatures = 0;
  const holds = <D>(runs: Record<string, Run<D>>, demands: fc.Arbitrary<D>, numRuns: number) =>
    fc.assert(
      fc.asyncProperty(demands, async (demand) => {
        for (const { signed } of await judgeAll(runs, demand)) signatures += signed;
      }),
      { numRuns },
    );

  test("over HTTP", async () => {
    signatures = 0;
    await holds(OVER_HTTP, demand402, 400);
    // Were nothing signed, nothing would be shown.
    expect(signatures).toBeGreaterThan(50);
  });

  test("over MCP", async () => {
    signatures = 0;
    await holds(OVER_MCP, fc.oneof({ weight: 2, arbitrary: toolResult }, toolError), 250);
    expect(signatures).toBeGreaterThan(50);
  });
});
