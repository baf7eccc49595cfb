import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { NETWORK_NAMES, OTHER_DOLLAR_TOKENS, USDC } from "../../../pipelines/record/networks.ts";
import type { Offer } from "../../../pipelines/record/terms/offers.ts";
import type { Defect, DefectCode } from "../../../pipelines/record/vocabulary.ts";
import { DEFECTS, defect, FLAGS } from "../../../pipelines/record/vocabulary.ts";
import { DEFAULT_POLICY, decide, guard, type Policy, Service } from "../../../serving/client/index.ts";
import { type LiveService, liveService, now, peer } from "../../helpers/client.ts";
import { cardOf, type EndpointSpec, listingDraft, PAYEE, PublicRecord, rowOf } from "../../helpers/public-record.ts";

const at = (name: string, defects: DefectCode[] = []): EndpointSpec => ({
  url: `https://seller.example/${name}`,
  defects: defects.map((code) => defect(code)) as Defect[],
});
const GOOD = at("good");
const POOR = at("poor");
const FAILING = at("failing");
const THIEF = at("thief");
const UNGRADED = at("ungraded");
const WRONG = at("wrong", ["price_differs"]);
const ODD = at("odd", ["network_form"]);
const PROXIED = at("proxied", ["resource_scheme_differs"]);
const DYNAMIC = at("dynamic");
const ALL = [GOOD, POOR, FAILING, THIEF, UNGRADED, WRONG, ODD, PROXIED, DYNAMIC];
const UNPRICED = at("unpriced");
const OTHER = "0x2222222222222222222222222222222222222222";
const BASE = USDC["eip155:8453"]!;
const USDT0 = "0x779Ded0c9e1022225f8E0630b35a9b54bE713736";
const STELLAR_PAYEE = "GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN";
const STELLAR = { network: "stellar:pubnet", asset: "native" };
const ELSEWHERE = { otherNetwork: "pay", otherAsset: "pay" } as const;

let record: PublicRecord;
let live: LiveService;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    ALL.map(listingDraft),
    record.grades([cardOf(GOOD)], "B: it delivers."),
    record.grades([cardOf(POOR, { band: "D" })], "D: now and then."),
    record.grades([cardOf(FAILING, { band: "F" })], "F: it fails."),
    record.grades([cardOf(THIEF, { band: "UNRATED", flags: ["took_the_money"] })], "It took the money."),
    record.grades([cardOf(DYNAMIC, { flags: ["dynamic_price"] })], "B: it delivers."),
  );
  const rows = ALL.map((spec) => rowOf(spec, spec === THIEF ? { unserved: 1, unserved_since: 0 } : {}));
  await record.live([...rows, rowOf(UNPRICED, { price: null, asset: null, networks: [] })]);
  live = await liveService(record);
});
afterAll(async () => {
  await live.close();
  await record.close();
});

/** What its 402 asks, as in the record. */
const offer = (more: Partial<Offer> = {}): Offer => ({
  network: "eip155:84532",
  asset: USDC["eip155:84532"]!,
  amount: 20_000n,
  payTo: PAYEE,
  scheme: "exact",
  validFor_s: 300,
  ...more,
});

type Case = [string, EndpointSpec, Partial<Offer>, Partial<Policy>, string];
const CASES: Case[] = [
  ["a letter that is good enough", GOOD, {}, {}, "allowed"],
  ["the letter that is asked for", GOOD, {}, { atLeast: "B" }, "allowed"],
  ["a letter below the one asked for", GOOD, {}, { atLeast: "A" }, "below_minimum"],
  ["D, where no letter is asked for", POOR, {}, {}, "allowed"],
  ["D, where C is", POOR, {}, { atLeast: "C" }, "below_minimum"],
  ["F", FAILING, {}, {}, "failing"],
  ["UNRATED", UNGRADED, {}, {}, "allowed"],
  ["UNRATED, where a letter is wanted", UNGRADED, {}, { unrated: "refuse" }, "unrated"],
  ["a url that was never seen", at("never"), {}, {}, "allowed"],
  ["took the money", THIEF, {}, {}, "flag"],
  ["took the money, and the buyer does not mind", THIEF, {}, { flags: [] }, "allowed"],
  ["a listing whose price is another than its 402's", WRONG, {}, {}, "defect"],
  ["a listing with a flaw that costs nobody money", ODD, {}, {}, "allowed"],
  ["a resource of http behind a proxy", PROXIED, {}, {}, "allowed"],
  ["such a flaw, where no flaw is taken", ODD, {}, { defects: Object.keys(DEFECTS) }, "defect"],
  ["another payee", GOOD, { payTo: OTHER }, {}, "flag"],
  ["the payee in capitals", GOOD, { payTo: `0x${PAYEE.slice(2).toUpperCase()}` }, {}, "allowed"],
  ["an address that the service does not take", GOOD, { ...STELLAR, payTo: STELLAR_PAYEE }, ELSEWHERE, "allowed"],
  ["a network that its 402 does not name", GOOD, { network: "eip155:8453", asset: BASE }, {}, "network"],
  [
    "such a network, and the buyer knows",
    GOOD,
    { network: "eip155:8453", asset: BASE },
    { otherNetwork: "pay" },
    "allowed",
  ],
  ["a little more than it asked", GOOD, { amount: 25_000n }, {}, "allowed"],
  ["a little more, where nothing more is paid", GOOD, { amount: 20_001n }, { priceRise: 1 }, "price"],
  ["any rise, where the buyer sets no limit", GOOD, { amount: 10n ** 30n }, { priceRise: Infinity }, "allowed"],
  ["less than it asked", GOOD, { amount: 1n }, { priceRise: 1 }, "allowed"],
  ["three times what it asked", GOOD, { amount: 60_000n }, {}, "price"],
  ["three times, of a dynamic price", DYNAMIC, { amount: 60_000n }, {}, "allowed"],
  ["a token that its 402 does not name", GOOD, { amount: 10n ** 16n, asset: OTHER }, {}, "asset"],
  ["such a token, and the buyer knows", GOOD, { amount: 10n ** 16n, asset: OTHER }, { otherAsset: "pay" }, "allowed"],
  ["USDC, where nothing is known", at("never"), {}, {}, "allowed"],
  ["another dollar, where nothing is known", at("never"), { network: "eip155:988", asset: USDT0 }, {}, "allowed"],
  ["that dollar's contract elsewhere", at("never"), { asset: USDT0 }, {}, "asset"],
  ["a token, where nothing is known", at("never"), { asset: OTHER }, {}, "asset"],
  ["a token, where its 402 names no price", UNPRICED, { asset: OTHER }, {}, "asset"],
  ["a signature for ten minutes", GOOD, { validFor_s: 600 }, {}, "allowed"],
  ["a signature for longer", GOOD, { validFor_s: 601 }, {}, "validity"],
  ["a signature for a year", GOOD, { validFor_s: 31_536_000 }, {}, "validity"],
  ["a year, and the buyer knows", GOOD, { validFor_s: 31_536_000 }, { maxValidity_s: 31_536_000 }, "allowed"],
  ["a signature until a moment", GOOD, { validFor_s: null, validUntil_s: now() / 1000 + 600 }, {}, "allowed"],
  ["a signature until a later moment", GOOD, { validFor_s: null, validUntil_s: now() / 1000 + 601 }, {}, "validity"],
  ["a scheme with parts of its own", GOOD, { scheme: "batch-settlement" }, {}, "scheme"],
  ["such a scheme, and the buyer knows", GOOD, { scheme: "batch-settlement" }, { otherScheme: "pay" }, "allowed"],
  ["mpp on a chain", GOOD, { scheme: "mpp:tempo" }, {}, "allowed"],
  ["a session of mpp", GOOD, { scheme: "mpp:tempo/session" }, {}, "scheme"],
];

test.each<[string, Partial<Offer>]>([
  ["amount", { amount: null }],
  ["payTo", { payTo: null }],
  ["asset", { asset: null }],
  ["network", { network: null }],
  ["entry", { unread: ["entry"] }],
])("an offer whose %s is not known is refused, and nobody is asked", async (member, more) => {
  live.asked.length = 0;
  const { policy, offers } = { policy: { flags: [], defects: [], notAsked: "pay" } as const, offers: [offer(more)] };
  const decision = await guard(live.client(), policy)({ url: GOOD.url, offers });
  expect(decision).toMatchObject({ allow: false, outcome: "refused", reason: "unreadable_terms", answer: null });
  expect(decision.says).toContain(member);
  expect(live.asked).toEqual([]);
});

test.each(CASES)("%s: %#", async (_, spec, more, policy, outcome) => {
  const ask = guard(live.client(), policy, now);
  const decision = await ask({ url: spec.url, method: "GET", offers: [offer(more)] });
  expect(decision.reason ?? decision.outcome).toBe(outcome);
  expect(decision.allow).toBe(outcome === "allowed");
  expect(decision.answer!.signature).toEqual(expect.any(String));
  expect(decision.concerns.some(({ refuses }) => refuses)).toBe(!decision.allow);
});

test("of several offers each payee is asked about, and one that is refused refuses all", async () => {
  const ask = guard(live.client());
  live.asked.length = 0;
  const two = [offer(), offer({ amount: 10n }), offer({ payTo: OTHER })];
  expect((await ask({ url: GOOD.url, offers: two })).reason).toBe("flag");
  expect(live.asked.filter((path) => path === "/v1/check")).toHaveLength(2);
  const many = [1, 2, 3, 4, 5].map((n) => offer({ payTo: `0x${String(n).repeat(40)}` }));
  expect((await ask({ url: GOOD.url, offers: many })).reason).toBe("too_many_payees");
  expect((await ask({ url: GOOD.url, offers: [] })).allow).toBe(true);
});

describe("could not ask", () => {
  test("is no refusal: it says why, and the policy says what then", async () => {
    const { url, close } = await peer((_, response) => response.writeHead(503).end("{}"));
    const service = new Service({ base: url, now });
    const demand = { url: GOOD.url, offers: [offer()] };
    expect(await guard(service)(demand)).toMatchObject({
      ...{ allow: false, outcome: "not_asked", reason: "not_asked", fault: "unavailable", answer: null },
    });
    expect(await guard(service, { notAsked: "pay" })(demand)).toMatchObject({
      ...{ allow: true, outcome: "not_asked", reason: null, fault: "unavailable" },
    });
    await close();
  });

  test("of one payee, where another is refused, is a refusal", async () => {
    const service = live.client();
    const half: Pick<Service, "check"> = {
      check: (question) =>
        (question.payTo === PAYEE ? new Service({ base: "http://127.0.0.1:1" }) : service).check(question),
    };
    const offers = [offer(), offer({ payTo: OTHER })];
    expect(await guard(half, { notAsked: "pay" })({ url: GOOD.url, offers })).toMatchObject({ outcome: "refused" });
  });
});

test.each<[string, Record<string, unknown>]>([
  ["misspelled", { atleast: "B" }],
  ["no letter", { atLeast: "F" }],
  ["no word", { notAsked: "perhaps" }],
  ["no number", { priceRise: Number.NaN }],
  ["no time", { maxValidity_s: 0 }],
  ["no word for an asset", { otherAsset: "usdc" }],
])("a policy that is %s is an error at once", (_, policy) => {
  expect(() => guard(live.client(), policy as Partial<Policy>)).toThrow(TypeError);
});

test("what the default refuses are words of the record; a letter nobody knows is not good enough", async () => {
  for (const code of DEFAULT_POLICY.defects) expect(DEFECTS).toHaveProperty(code);
  for (const flag of DEFAULT_POLICY.flags) expect(FLAGS).toContain(flag);
  const answer = await live.client().check({ url: GOOD.url });
  expect(decide({ ...answer, band: "E" as "F" }, []).reason).toBe("below_minimum");
  // Of Tempo x402's first version has no name: its sellers speak mpp, where networks are chain ids.
  const named = Object.keys(USDC).filter((network) => network !== "eip155:4217");
  expect(Object.values(NETWORK_NAMES)).toEqual(expect.arrayContaining(named));
});

test("the dollars that are known are those that the official client pays in as it comes", async () => {
  const { DEFAULT_ASSETS } = (await import("@x402/evm")) as unknown as {
    DEFAULT_ASSETS?: Record<string, { asset: string }[]>;
  };
  const all = Object.entries(DEFAULT_ASSETS ?? {}).flatMap(([network, assets]) =>
    assets.map(({ asset }) => [network, asset] as const),
  );
  expect(all.length).toBeGreaterThan(20);
  const unknown = all.filter(([network, asset]) => {
    const key = asset.toLowerCase();
    return USDC[network] !== key && !OTHER_DOLLAR_TOKENS[network]?.includes(key);
  });
  expect(unknown).toEqual([]);
});
