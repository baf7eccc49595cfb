import { createPrivateKey, createPublicKey, sign } from "node:crypto";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";
import { canonicalText } from "../../../infra/canonical-text.ts";
import { type PublicJwk, toBase64url } from "../../../infra/keys/jwk.ts";
import { thumbprint } from "../../../infra/keys/portable.ts";
import { NETWORK_NAMES, OTHER_DOLLAR_TOKENS, USDC } from "../../../pipelines/record/networks.ts";
import { type Offer, readOffer } from "../../../pipelines/record/terms/offers.ts";
import { DEFECTS, FLAGS } from "../../../pipelines/record/vocabulary.ts";
import type { CheckAnswer, Policy } from "../../../serving/client/index.ts";
import { DEFAULT_POLICY, decide, verifyCard, verifyCheck } from "../../../serving/client/index.ts";
import { capabilityId, isOfMethod } from "../../../serving/client/method.ts";

/**
 * What the client for JavaScript makes of a table of cases, kept in files that the client for Python is held to: each case
 * is decided by both (test/python/test_cases.py). `npx vitest run FILE --update` writes them anew.
 */
const TABLES = resolve(import.meta.dirname, "../../../serving/client-python/touchstone_client/tables.json");
const CASES = join(import.meta.dirname, "shared-cases.golden.json");

const AT = "2026-11-21T12:00:00.000Z";
const NOW_S = Date.parse(AT) / 1000;
const PAYEE = "0x1111111111111111111111111111111111111111";
const OTHER = "0x2222222222222222222222222222222222222222";
const SEPOLIA = "eip155:84532";
const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";

const print = (value: unknown): string =>
  `${JSON.stringify(value, (_, one) => (typeof one === "bigint" ? String(one) : one), 1)}\n`;

test("networks, tokens and the default policy of both clients come from one source", async () => {
  const tables = { network_names: NETWORK_NAMES, usdc: USDC, dollars: OTHER_DOLLAR_TOKENS, policy: DEFAULT_POLICY };
  await expect(print(tables)).toMatchFileSnapshot(TABLES);
});

type Advertised = { networks: string[]; asset: string; amount: string };
const ADVERTISED: Advertised = { networks: [SEPOLIA], asset: USDC[SEPOLIA]!, amount: "0.020000" };
const answerOf = (more: object = {}, advertised: Partial<Advertised> | null = {}): CheckAnswer =>
  ({
    ...{ asked: "https://seller.example/sum", matched: "exact", band: "B", why: "B: it delivers.", answered_at: AT },
    ...{ defects: [], flags: [], observed: { advertised: advertised && { ...ADVERTISED, ...advertised } }, ...more },
  }) as unknown as CheckAnswer;
const offer = (more: Partial<Offer> = {}): Offer => ({
  ...{ network: SEPOLIA, asset: USDC[SEPOLIA]!, amount: 20_000n, payTo: PAYEE, scheme: "exact", validFor_s: 300 },
  ...more,
});

interface Case {
  answer: CheckAnswer;
  offers: Offer[];
  policy: Partial<Policy>;
}

function* casesOf(): Generator<Case> {
  const of = (answer = answerOf(), offers = [offer()], policy: Partial<Policy> = {}): Case => ({
    answer,
    offers,
    policy,
  });
  const bands = ["A", "B", "C", "D", "F", "UNRATED", "E", "AB", ""];
  for (const band of bands)
    for (const atLeast of ["A", "B", "C", "D"] as const) yield of(answerOf({ band }), [], { atLeast });
  for (const unrated of ["pay", "refuse"] as const) yield of(answerOf({ band: "UNRATED" }), [], { unrated });
  for (const flag of [...FLAGS, "new_word"]) {
    yield of(answerOf({ flags: [flag] }));
    yield of(answerOf({ flags: [flag] }), [], { flags: [flag] });
  }
  for (const defect of [...Object.keys(DEFECTS), "new_word"])
    for (const policy of [{}, { defects: [] }, { defects: [defect] }])
      yield of(answerOf({ defects: [{ defect, says: "x" }] }), [], policy);
  yield of(answerOf({ flags: undefined, observed: undefined }));
  yield of(answerOf({ band: "F", flags: ["took_the_money"], defects: [{ defect: "bad_amount", says: "x" }] }));
  const offers: Partial<Offer>[] = [
    ...[19_999n, 20_001n, 40_000n, 40_001n, 10n ** 30n].map((amount) => ({ amount })),
    ...["eip155:8453", "eip155:1", SOLANA, `${SOLANA}${"x".repeat(12)}`, null].map((network) => ({ network })),
    ...[OTHER, USDC["eip155:8453"]!, "USDC", USDC[SEPOLIA]!.toUpperCase().replace("0X", "0x"), null].map((asset) => ({
      asset,
    })),
    { network: SOLANA, asset: USDC[SOLANA]! },
    { network: "eip155:14", asset: OTHER_DOLLAR_TOKENS["eip155:14"]![0]! },
    ...["upto", "batch-settlement", "auth-capture", "mpp:evm", "mpp:tempo/session", null].map((scheme) => ({ scheme })),
    ...[600, 601, 31_536_000, null].map((validFor_s) => ({ validFor_s })),
    ...[599.5, 600, 600.5, 601, -5].map((s) => ({ validFor_s: null, validUntil_s: NOW_S + s })),
  ];
  const policies: Partial<Policy>[] = [
    {},
    { otherNetwork: "pay" },
    { otherAsset: "pay" },
    { otherScheme: "pay" },
    { priceRise: 1 },
    { priceRise: 1.0005 },
    // No limit: JSON has no infinity.
    { priceRise: 1e306 },
    { maxValidity_s: 31_536_000 },
  ];
  const answers = [
    answerOf(),
    answerOf({ flags: ["dynamic_price"] }),
    answerOf({}, null),
    answerOf({}, { networks: [SOLANA, "eip155:8453"], asset: "USDC", amount: "0.02" }),
    answerOf({}, { amount: "free", networks: [] }),
  ];
  for (const more of offers)
    for (const policy of policies) for (const answer of answers) yield of(answer, [offer(more)], policy);
  yield of(answerOf(), [offer(), offer({ amount: 90_000n }), offer({ asset: OTHER })]);
}

const BASE = { scheme: "exact", network: SEPOLIA, amount: "20000", asset: USDC[SEPOLIA]!, payTo: PAYEE };
const MINT = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
/** Changes to an entry; each is read in both versions' forms. */
const ENTRIES: object[] = [
  ...[{}, { network: "base-sepolia" }, { network: "Base" }, { network: "eip155:08453" }, { network: "eip155:0" }],
  ...[{ network: " eip155:8453" }, { network: "eip155:8453\n" }, { network: 8453 }, { network: null }],
  ...["20000", "0x10", "-1", "+1", "1.0", "1e3", "", " 1", "１", "9".repeat(78), "9".repeat(79)].map((amount) => ({
    amount,
  })),
  ...[20_000, null, true].map((amount) => ({ amount })),
  ...["20000", "020000", "30000", 20_000, null].map((maxAmountRequired) => ({ maxAmountRequired })),
  { amount: undefined, maxAmountRequired: "20000" },
  { amount: undefined },
  ...[OTHER, PAYEE.toUpperCase(), "0x1234", `${PAYEE} `, `0x${"0".repeat(40)}`, "0xYourWallet", null, 7, MINT].map(
    (payTo) => ({ payTo }),
  ),
  ...["USDC", `0x${"e".repeat(40)}`, `0x${"E".repeat(40)}`, `0x${"0".repeat(40)}`, `erc20:${OTHER}`, "", null].map(
    (asset) => ({ asset }),
  ),
  { asset: `${SEPOLIA}/erc20:${OTHER}` },
  ...[0, 1, -1, 1.5, 60.0, 2 ** 53, "60", null, true].map((maxTimeoutSeconds) => ({ maxTimeoutSeconds })),
  { maxTimeoutSeconds: undefined },
  ...["upto", "", " exact", null, 1].map((scheme) => ({ scheme })),
  { network: SOLANA, asset: MINT, payTo: "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin", maxTimeoutSeconds: undefined },
  { network: "solana", asset: MINT, payTo: PAYEE },
  { network: SOLANA, asset: PAYEE, payTo: "1".repeat(32) },
  JSON.parse('{"__proto__": {"amount": "1"}}') as object,
];

test("what is read of an entry, and what is decided, is what the other client reads and decides", async () => {
  const decisions = [...casesOf()].map(({ answer, offers, policy }) => {
    const { allow, outcome, reason, concerns } = decide(answer, offers, { ...DEFAULT_POLICY, ...policy }, NOW_S * 1000);
    const found = concerns.map((one) => [one.reason, one.what, one.refuses]);
    return { answer, offers, policy, decision: { allow, outcome, reason, concerns: found } };
  });
  const entries = ENTRIES.flatMap((change) =>
    ([1, 2] as const).map((form) => {
      const entry = Object.defineProperties(
        { ...BASE, maxTimeoutSeconds: 60 },
        Object.getOwnPropertyDescriptors(change),
      );
      return { entry, form, offer: readOffer(entry, form) };
    }),
  );
  const ids = [];
  for (const [method, url, tool] of [
    ["GET", "https://seller.example/sum", ""],
    ["POST", "https://seller.example/é?a=1", "tool"],
  ] as const)
    ids.push({ method, url, tool, id: await capabilityId(method, url, tool) });
  const [asked, tool] = ["https://seller.example/mcp", "https://seller.example/mcp#add"];
  const methods = [];
  for (const answer of [
    ...[{}, { method: "GET" }, { method: "POST" }, { method: null }].map((one) => ({ matched: "none", asked, ...one })),
    { matched: "exact", asked: await capabilityId("GET", asked), capabilityId: await capabilityId("GET", asked) },
    { matched: "exact", asked },
    ...(await Promise.all(
      (["GET", "POST", "PUT"] as const).flatMap((method) =>
        [asked, tool].flatMap((spelled) =>
          ["", "add", "other"].map(async (name) => {
            const id = await capabilityId(method, asked, name);
            return { matched: "exact", asked: spelled, url: asked, capabilityId: id };
          }),
        ),
      ),
    )),
  ])
    for (const method of ["GET", "POST"])
      methods.push({ answer, method, is: await isOfMethod(answer as unknown as CheckAnswer, method) });
  expect(methods.filter(({ is }) => is).length).toBeGreaterThan(10);
  expect(decisions.length).toBeGreaterThan(1000);
  expect(new Set(decisions.map(({ decision }) => decision.reason)).size).toBeGreaterThan(9);
  const all = { now_s: NOW_S, decisions, entries, ids, methods, signatures: await signaturesOf() };
  // One line a case: a change shows as the cases that changed.
  const lines = Object.entries(JSON.parse(print(all)) as object).map(([name, value]) =>
    Array.isArray(value)
      ? `"${name}": [\n${value.map((one) => JSON.stringify(one)).join(",\n")}\n]`
      : `"${name}": ${JSON.stringify(value)}`,
  );
  await expect(`{${lines.join(",\n")}}\n`).toMatchFileSnapshot(CASES);
});

/** A key of RFC 8032's form from a seed that everybody knows. */
function keyOf(seed: number) {
  const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.alloc(32, seed)]);
  const key = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
  return { key, x: createPublicKey(key).export({ format: "jwk" }).x! };
}

async function signaturesOf() {
  const published = async (seed: number, purpose: PublicJwk["purpose"], more: Partial<PublicJwk> = {}) => {
    const { x } = keyOf(seed);
    const usual = { kty: "OKP", crv: "Ed25519", x, kid: await thumbprint(x), use: "sig", alg: "EdDSA" } as const;
    return { ...usual, purpose, valid_from: "2026-11-01T00:00:00.000Z", ...more };
  };
  const keys = [
    await published(1, "answers"),
    await published(2, "cards"),
    await published(3, "answers", { retired_at: "2026-11-10T00:00:00.000Z" }),
    await published(4, "answers", { valid_from: "2026-11-30T00:00:00.000Z" }),
    await published(5, "answers", { kid: "wrong" }),
    // The neutral point and one of order 2: under them signatures hold that nobody made.
    ...(await Promise.all(
      [`01${"00".repeat(31)}`, `ec${"ff".repeat(30)}7f`].map(async (hex) => {
        const x = toBase64url(Buffer.from(hex, "hex"));
        return { ...(await published(1, "answers")), x, kid: await thumbprint(x) };
      }),
    )),
  ];
  const signed = (body: object, place = 0) => {
    const object = { answered_at: AT, canonicalization: "RFC8785", ...body, signing_key_id: keys[place]!.kid };
    const bytes = Buffer.from(canonicalText(JSON.parse(JSON.stringify(object))));
    const signature = toBase64url(sign(null, bytes, keyOf([1, 2, 3, 4, 5, 1, 1][place]!).key));
    return { ...object, signature } as Record<string, unknown>;
  };
  const good = signed({
    band: "B",
    n: [0.1, 1e21, -0, 1e-7, 5e-324, 123456789012345],
    "€": "é\u2028",
    a: { "\ud83d\ude00": 1 },
  });
  const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);
  const neutral = `${toBase64url(Buffer.from(`01${"00".repeat(63)}`, "hex"))}`;
  const objects: unknown[] = [
    good,
    signed({ deep: nested(60) }),
    ...[2, 3, 4, 5, 6, 1].map((place) => signed({ band: "B" }, place)),
    { ...good, band: "A" },
    { ...good, more: 1 },
    { ...good, signature: `${good.signature}=` },
    { ...good, signature: 7 },
    { ...good, signing_key_id: "nobody" },
    { ...good, canonicalization: "other" },
    { ...good, big: 2 ** 53 },
    { ...good, big: 1e300 },
    { ...good, deep: nested(70) },
    { ...good, answered_at: "yesterday" },
    { ...signed({ band: "B" }, 5), signature: neutral },
    { ...signed({ band: "B" }, 6), signature: neutral },
    { ...good, lone: "\ud800" },
    ...[null, [], 7, "x", {}],
  ];
  const card = { ...signed({ computed_at: AT }, 1) };
  const cases = [];
  for (const object of objects) {
    const verdict = await verifyCheck({ keys }, object);
    cases.push({ kind: "check", object, reason: verdict.ok ? null : verdict.reason });
  }
  for (const object of [card, JSON.stringify(card), { ...card, band: "A" }, "{", good]) {
    const verdict = await verifyCard({ keys }, object);
    cases.push({ kind: "card", object, reason: verdict.ok ? null : verdict.reason });
  }
  const reasons = new Set(cases.map(({ reason }) => reason));
  expect(reasons.size).toBe(9);
  return cases.map((one) => ({ keys: { keys }, ...one }));
}
