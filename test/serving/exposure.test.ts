import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { verifyObject } from "../../infra/keys/verify.ts";
import { formatSum, parseSum } from "../../pipelines/record/money.ts";
import { timesCalls } from "../../serving/answers/exposure.ts";
import { totalsOf } from "../../serving/answers/exposure-totals.ts";
import { CheckAnswer } from "../../serving/schemas/check.ts";
import { Band, ProblemDocument } from "../../serving/schemas/common.ts";
import { type ExposureLine, ExposureReport, MAX_CALLS, STANDINGS } from "../../serving/schemas/exposure.ts";
import { fc } from "../helpers/histories.ts";
import { capOf, cardOf, listingDraft, NOW, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver, type TestServing } from "../helpers/serving.ts";

const A = `0x${"aa".repeat(20)}`;
const B = `0x${"bb".repeat(20)}`;
const STRANGE = `0x${"11".repeat(20)}`;
const BASE58 = "DRpbCBMxVnDK7maPM5tGv6MvB3v1sRMC86PZ8okm21hy";
const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
const HOUR = 3_600_000;
const DEFECT = JSON.stringify([{ defect: "price_differs", says: "dearer", seenAt: null }]);

const spec = (name: string) => ({ url: `https://${name}.example/paid` });
const GOOD = spec("good");
const FAILING = spec("failing");
const THIEF = spec("thief");
const PENDING = spec("pending");
const FLAGGED = spec("flagged");
const PAID_BACK = spec("paid-back");
const WITHDRAWN = spec("withdrawn");
const LIES = spec("lies");
const PAID = spec("paid");
const PROBED = spec("probed");
const EURO = spec("euro");
const LISTED = spec("listed");

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  const all = [GOOD, FAILING, THIEF, PENDING, FLAGGED, PAID_BACK, WITHDRAWN, LIES, PAID, PROBED, EURO, LISTED];
  await record.publish(
    ...all.map((one) => [listingDraft(one)]),
    record.grades([cardOf(GOOD, { band: "A" })], "A on OUTCOME_VERIFIED."),
    record.grades([cardOf(FAILING, { band: "F" })], "F on OUTCOME_VERIFIED."),
    record.grades([cardOf(THIEF, { band: "C" })], "C on OUTCOME_VERIFIED."),
    record.grades([cardOf(PENDING, { band: "B", flags: ["money_pending"] })], "B on OUTCOME_VERIFIED."),
    record.grades([cardOf(FLAGGED, { band: "C", flags: ["took_the_money"] })], "C on OUTCOME_VERIFIED."),
    record.grades([cardOf(PAID_BACK, { band: "C", flags: ["took_the_money"] })], "C on OUTCOME_VERIFIED."),
    record.grades([cardOf(WITHDRAWN, { flags: ["took_the_money"], sample_count: 10 })], "C."),
    record.grades([cardOf(LIES, { band: "B" })], "B on OUTCOME_VERIFIED."),
  );
  const now = Date.parse(NOW);
  await record.live([
    rowOf(GOOD, { pay_to: A, pay_tos_before: [B], price: "0.010000" }),
    rowOf(FAILING, { pay_to: A, price: "0.500000" }),
    rowOf(THIEF, { pay_to: B, unserved: 2, unserved_since: now - 25 * HOUR, defects: DEFECT }),
    rowOf(PENDING, { pay_to: B, unserved: 1, unserved_since: now - 23 * HOUR }),
    rowOf(PAID_BACK, { pay_to: B }),
    rowOf(WITHDRAWN, { pay_to: B, withdrawn_since: 10, paid_calls: 9 }),
    rowOf(LIES, { pay_to: A.toUpperCase().replace("0X", "0x"), defects: DEFECT, price: "0.030000" }),
    rowOf(PAID, { pay_to: null, asked_pay_to: BASE58, pay_tos: [BASE58], networks: [SOLANA], price: "0.200000" }),
    rowOf(PROBED, { pay_to: null, paid_calls: 0, price: "0.000001" }),
    rowOf(EURO, { pay_to: A, asset: "0xeuro", unit: null, price: "9.000000", paid_calls: 0 }),
  ]);
});
afterAll(() => record.close());
beforeEach(async () => {
  serving = await servingOver(record);
});

const post = (body: unknown, more: RequestInit = {}) =>
  serving.get("/v1/exposure", {
    method: "POST",
    body: typeof body === "string" ? body : JSON.stringify(body),
    ...more,
  });
const reportOf = async (dependencies: unknown[]): Promise<ExposureReport> => {
  const response = await post({ dependencies });
  expect(response.status, await response.clone().text()).toBe(200);
  return ExposureReport.parse(await response.json());
};
const standingOf = async (one: { url: string }) => (await reportOf([one.url])).lines[0]?.standing;

describe("POST /v1/exposure", () => {
  test("a report, every field, against a golden one; signed by the answers key, for nobody to keep", async () => {
    const response = await post({
      dependencies: [
        { url: GOOD.url, calls_per_month: 1000, pay_to: B },
        { url: LIES.url, calls_per_month: 0.5 },
        capOf(THIEF),
        { url: PAID.url, calls_per_month: 3 },
        { url: EURO.url, calls_per_month: 2 },
        { url: "https://nobody.example/x", calls_per_month: 7, pay_to: STRANGE },
        "https://10.0.0.1/private",
      ],
    });
    expect(Object.fromEntries(response.headers)).toMatchObject({
      ...{ "content-type": "application/json", "cache-control": "no-store", "x-content-type-options": "nosniff" },
      "ratelimit-policy": '"exposure";q=10;w=60, "dependencies";q=600;w=60',
      ratelimit: '"exposure";r=9;t=6, "dependencies";r=593;t=1',
    });
    const { signature, signing_key_id, ...rest } = ExposureReport.parse(await response.json());
    const golden = JSON.parse(readFileSync(new URL("./exposure.golden.json", import.meta.url), "utf8")) as object;
    expect(rest).toEqual(golden);
    const signed = { ...rest, signature, signing_key_id };
    const at = rest.answered_at;
    expect(verifyObject(record.jwks, signed, { purpose: "answers", at })).toEqual({ ok: true });
    const better = { ...signed, totals: { ...signed.totals, monthly_spend: "0.000000" } };
    expect(verifyObject(record.jwks, better, { purpose: "answers", at })).toEqual({
      ok: false,
      reason: "bad_signature",
    });
  });

  test("a saved report verifies with nothing but the script of the check page", async () => {
    const dir = mkdtempSync(join(tmpdir(), "report-"));
    const [report, keys] = [join(dir, "report.json"), join(dir, "keys.json")];
    const text = await (await post({ dependencies: [GOOD.url, { url: THIEF.url, calls_per_month: 0.1 }] })).text();
    writeFileSync(report, text);
    writeFileSync(keys, JSON.stringify(record.jwks));
    const run = () => execFileSync(process.execPath, ["docs/verify-a-check.mjs", report, keys], { encoding: "utf8" });
    expect(run()).toMatch(/^good: signed by /);
    writeFileSync(report, text.replace('"calls_per_month":0.1', '"calls_per_month":0.2'));
    expect(run).toThrow();
    rmSync(dir, { recursive: true });
  });

  test("each line says what a check says", async () => {
    const { lines } = await reportOf([{ url: GOOD.url, pay_to: STRANGE }]);
    const check = CheckAnswer.parse(await (await serving.get(checkPath({ url: GOOD.url, pay_to: STRANGE }))).json());
    const { asked, matched, band, tier, composite, why, capabilityId, url, flags } = check;
    expect(lines[0]).toMatchObject({ asked, matched, band, tier, composite, why, capabilityId, url, flags });
    expect(lines[0]).toMatchObject({ pay_to: STRANGE, pay_to_seen_before: false });
    expect(flags).toContain("pay_to_unknown");
  });

  test.each([
    ["taken and a day gone by, before its defects", THIEF, "took_the_money"],
    ["taken, and it may still be paid back", PENDING, "lettered"],
    ["the card says so, and no live table is newer", FLAGGED, "took_the_money"],
    ["the card says so, and the money was paid back since", PAID_BACK, "lettered"],
    ["the card said so of records that were withdrawn", WITHDRAWN, "paid_no_letter"],
    ["a defect, before its letter", LIES, "listing_mismatch"],
    ["a letter", GOOD, "lettered"],
    ["paid, and no letter yet", PAID, "paid_no_letter"],
    ["probed alone", PROBED, "handshake_only"],
    ["listed, and nobody was there yet", LISTED, "handshake_only"],
    ["not in the record", spec("nobody"), "not_in_record"],
  ])("standing: %s", async (_, one, standing) => {
    expect(await standingOf(one)).toBe(standing);
  });

  test("the same defects and theft, lettered or not: the order of the vocabulary decides", () => {
    expect(STANDINGS).toEqual([
      ...["took_the_money", "listing_mismatch", "lettered", "paid_no_letter", "handshake_only", "not_in_record"],
    ]);
  });

  test("seen before: by any 402, in either case of hex; false where nothing was seen; absent where nothing was passed", async () => {
    const seen = async (url: string, pay_to: string) =>
      (await reportOf([{ url, pay_to }])).lines[0]?.pay_to_seen_before;
    expect(await seen(GOOD.url, A.toUpperCase().replace("0X", "0x"))).toBe(true);
    expect(await seen(GOOD.url, B)).toBe(true);
    expect(await seen(GOOD.url, STRANGE)).toBe(false);
    expect(await seen(PAID.url, BASE58)).toBe(true);
    expect(await seen("https://nobody.example/x", A)).toBe(false);
    const { lines, totals } = await reportOf([GOOD.url, { url: GOOD.url, pay_to: STRANGE }]);
    expect(lines[0]).not.toHaveProperty("pay_to_seen_before");
    expect(totals.pay_to_not_seen_before).toBe(1);
  });

  test("one address behind many origins is one payee, however it is written", async () => {
    const { payees } = await reportOf([GOOD, FAILING, LIES].map(({ url }) => ({ url, calls_per_month: 100 })));
    expect(payees).toMatchObject([
      {
        ...{ address: A, dependencies: 3, origins: 3, monthly_spend: "54.000000" },
        monthly_spend_where_the_record_shows_a_failure: "53.000000",
        ...{ monthly_spend_lettered: "1.000000", monthly_spend_not_yet_measured: "0.000000" },
      },
    ]);
  });

  test("calls of urls that nobody knows are not yet measured, with the price that the client pays where it gives one", async () => {
    const { lines, totals, payees } = await reportOf([
      { url: "https://unseen.example/a", calls_per_month: 1000, price: "0.015" },
      { url: "https://unseen.example/b", calls_per_month: 0.5 },
      { url: GOOD.url, calls_per_month: 100, price: "9.0" },
      { url: EURO.url, calls_per_month: 1, price: "2.0" },
    ]);
    // Of an endpoint in the record its own price counts, whatever its asset.
    expect(lines.map(({ price, price_given, monthly_spend }) => [price, price_given, monthly_spend])).toEqual([
      [null, "0.015000", "15.000000"],
      [null, undefined, null],
      ["0.010000", "9.000000", "1.000000"],
      ["9.000000", "2.000000", "9.000000"],
    ]);
    expect(totals).toMatchObject({
      ...{
        monthly_spend: "16.000000",
        monthly_spend_not_yet_measured: "15.000000",
        monthly_spend_lettered: "1.000000",
      },
      ...{ calls_per_month: 1101.5, without_spend: 1 },
    });
    expect(totals.calls_per_month_not_yet_measured).toBeGreaterThanOrEqual(1000.5);
    const nobody = payees.find(({ address }) => address === null)!;
    expect([nobody.monthly_spend, nobody.calls_per_month_not_yet_measured]).toEqual(["15.000000", 1000.5]);
  });

  test("an asset that is no dollar is named apart, and its amount is in no sum", async () => {
    const { lines, totals } = await reportOf([{ url: EURO.url, calls_per_month: 10 }]);
    expect(lines[0]).toMatchObject({ monthly_spend: "90.000000", asset: "0xeuro", unit: null });
    expect(totals).toMatchObject({ monthly_spend: "0.000000", other_assets: [{ asset: "0xeuro", dependencies: 1 }] });
  });

  test("urls that nobody knows are put in line within the limits of a check; past them the rest is answered all the same", async () => {
    serving = await servingOver(record, { limits: { asks_per_hour: 3 } });
    const urls = Array.from({ length: 5 }, (_, n) => `https://new${n}.example/x`);
    const { lines } = await reportOf([...urls, GOOD.url]);
    expect(lines.filter(({ queued }) => queued === true)).toHaveLength(serving.log.records.length);
    expect(serving.log.records.length).toBeGreaterThanOrEqual(3);
    for (const line of lines.slice(0, 5)) expect([line.matched, typeof line.next]).toEqual(["none", "string"]);
    expect(lines[5]).toMatchObject({ band: "A" });
  });

  test("a log that takes nothing costs the unknown ones their place, and nobody the answer", async () => {
    serving.log.down = true;
    const { lines } = await reportOf(["https://nobody.example/y", GOOD.url]);
    expect(lines).toMatchObject([{ standing: "not_in_record", queued: false }, { standing: "lettered" }]);
  });

  test("an unknown url that stands in a report many times is put in line once", async () => {
    const before = serving.log.records.length;
    const { lines } = await reportOf(Array(60).fill("https://often.example/x"));
    expect([new Set(lines.map(({ queued }) => queued)), serving.log.records.length]).toEqual([
      new Set([true]),
      before + 1,
    ]);
  });

  test("nothing to look up is an empty report", async () => {
    expect(await reportOf([])).toMatchObject({
      lines: [],
      payees: [],
      totals: { dependencies: 0, monthly_spend: "0.000000" },
    });
  });
});

describe("bad bodies", () => {
  const ok = GOOD.url;
  const seven = (item: unknown) => ({ dependencies: [...Array(7).fill(ok), item, ok] });
  test.each<[string, unknown, string]>([
    ["no JSON", "{", ""],
    ["a list", [ok], "/"],
    ["null", null, "/"],
    ["another field", { dependencies: [], more: 1 }, "/more"],
    ["no dependencies", {}, "/dependencies"],
    ["dependencies that are no list", { dependencies: ok }, "/dependencies"],
    ["201 of them", { dependencies: Array(201).fill(ok) }, "/dependencies"],
    ["a number", seven(7), "/dependencies/7"],
    ["null among them", seven(null), "/dependencies/7"],
    ["a list among them", seven([ok]), "/dependencies/7"],
    ["a text that is no url", seven("not a url at all"), "/dependencies/7"],
    ["a short text", seven("http://"), "/dependencies/7"],
    ["a long text", seven(`https://a.example/${"x".repeat(2048)}`), "/dependencies/7"],
    ["an id that is none", seven("cap_nothing"), "/dependencies/7"],
    ["half a character", seven("https://a.example/\ud800"), "/dependencies/7"],
    ["an object without url", seven({ calls_per_month: 1 }), "/dependencies/7/url"],
    ["an object with a bad url", seven({ url: "ftp://a.example/x" }), "/dependencies/7/url"],
    ["calls below zero", seven({ url: ok, calls_per_month: -1 }), "/dependencies/7/calls_per_month"],
    ["calls past all bounds", seven({ url: ok, calls_per_month: MAX_CALLS + 1 }), "/dependencies/7/calls_per_month"],
    ["a price that is no money", seven({ url: ok, price: "$1" }), "/dependencies/7/price"],
    ["calls as text", seven({ url: ok, calls_per_month: "10" }), "/dependencies/7/calls_per_month"],
    ["a payTo that is none", seven({ url: ok, pay_to: "0x12" }), "/dependencies/7/pay_to"],
    ["an unknown field", seven({ url: ok, calls: 1 }), "/dependencies/7/calls"],
  ])("%s", async (_, body, pointer) => {
    const response = await post(body);
    expect(response.status).toBe(400);
    const problem = ProblemDocument.parse(await response.json());
    expect(problem.errors?.[0]?.pointer).toBe(pointer);
    expect(serving.log.records).toEqual([]);
  });

  test("200 dependencies, each as long as it may be, fit; a body that is larger is a 413", async () => {
    const long = Array.from({ length: 200 }, (_, n) => ({
      ...{ url: `https://a.example/${"x".repeat(2000)}${n}`, calls_per_month: 1234567.25, pay_to: STRANGE },
    }));
    const response = await post({ dependencies: long });
    expect(response.status).toBe(200);
    expect((await post(`${JSON.stringify({ dependencies: [] })}${" ".repeat(600_000)}`)).status).toBe(413);
  });

  test("another method is a 405", async () => {
    const response = await serving.get("/v1/exposure");
    expect([response.status, response.headers.get("allow")]).toEqual([405, "POST"]);
  });
});

describe("limits", () => {
  test("requests, and dependencies whatever the number of requests", async () => {
    serving = await servingOver(record, { limits: { exposures_per_minute: 3, dependencies_per_minute: 5 } });
    const send = async (n: number) => post({ dependencies: Array(n).fill(GOOD.url) });
    expect((await send(7)).status).toBe(200);
    const refused = await send(1);
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "36"]);
    expect(ProblemDocument.parse(await refused.json()).detail).toBe("at most 5 dependencies in 60 s");
    serving.clock.pass(60_000);
    for (const status of [200, 200, 200, 429]) expect((await send(1)).status).toBe(status);
  });
});

describe("sums", () => {
  const line = fc.record({
    standing: fc.constantFrom(...STANDINGS),
    band: fc.constantFrom(...Band.options),
    spend: fc.option(fc.bigInt({ min: 0n, max: 10n ** 27n })),
    unit: fc.constantFrom("USD", null),
    pay_to: fc.constantFrom(A, A.toUpperCase().replace("0X", "0x"), B, BASE58, BASE58.toLowerCase(), null),
  });
  type Drawn = Pick<ExposureLine, "standing" | "band" | "unit" | "pay_to"> & { spend: bigint | null };
  const made = ({ standing, band, spend, unit, pay_to }: Drawn): ExposureLine => ({
    ...{
      asked: "x",
      matched: "exact",
      url: "https://a.example/",
      band,
      tier: null,
      composite: null,
      why: "",
      standing,
    },
    ...{ flags: [], defects: [], calls_unserved: 0, price: "1.000000", asset: "USDC", unit, networks: [], pay_to },
    ...{ calls_per_month: 1, monthly_spend: spend === null ? null : formatSum(spend) },
  });

  test("payees and parts add up to the sum over the lines, to the last micro-unit", () => {
    fc.assert(
      fc.property(fc.array(line, { maxLength: 200 }), (drawn) => {
        const lines = drawn.map(made);
        const { payees, totals } = totalsOf(lines);
        const sum = (texts: readonly string[]) => texts.reduce((all, text) => all + parseSum(text), 0n);
        const over = lines.flatMap((one) =>
          one.unit === "USD" && one.monthly_spend !== null ? [one.monthly_spend] : [],
        );
        expect(parseSum(totals.monthly_spend)).toBe(sum(over));
        for (const part of [
          "monthly_spend",
          "monthly_spend_where_the_record_shows_a_failure",
          "monthly_spend_not_yet_measured",
          "monthly_spend_lettered",
        ] as const) {
          expect(sum(payees.map((one) => one[part]))).toBe(parseSum(totals[part]));
        }
        for (const one of [totals, ...payees]) {
          const parts = [
            one.monthly_spend_where_the_record_shows_a_failure,
            ...[one.monthly_spend_not_yet_measured, one.monthly_spend_lettered],
          ];
          expect(sum(parts)).toBe(parseSum(one.monthly_spend));
          expect(Object.values(one.standings).reduce((a, b) => a + b, 0)).toBe(one.dependencies);
        }
        expect(payees.reduce((all, one) => all + one.dependencies, 0)).toBe(lines.length);
        const addresses = payees.map(({ address }) => (address?.startsWith("0x") ? address.toLowerCase() : address));
        expect(new Set(addresses).size).toBe(payees.length);
        const spends = payees.map((one) => parseSum(one.monthly_spend));
        expect(spends).toEqual([...spends].sort((a, b) => (a > b ? -1 : a < b ? 1 : 0)));
      }),
      { numRuns: 100 },
    );
  });

  test("unknown is never a failure, and an F is one", () => {
    const one = (standing: ExposureLine["standing"], band: ExposureLine["band"]) =>
      totalsOf([made({ standing, band, spend: 5n, unit: "USD", pay_to: A })]).totals;
    for (const standing of ["handshake_only", "not_in_record", "paid_no_letter"] as const) {
      expect(one(standing, "UNRATED")).toMatchObject({
        monthly_spend_where_the_record_shows_a_failure: "0.000000",
        monthly_spend_not_yet_measured: "0.000005",
      });
    }
    expect(one("lettered", "F").monthly_spend_where_the_record_shows_a_failure).toBe("0.000005");
    expect(one("lettered", "D").monthly_spend_lettered).toBe("0.000005");
  });

  test.each([
    [10_000n, 0, 0n],
    [10_000n, 1000, 10_000_000n],
    [1n, 0.5, 1n],
    [3n, 0.1, 1n],
    [10n, 0.1, 1n],
    [1_000_000n, 0.1 + 0.2, 300_001n],
    [1_000_000n, 1e-7, 1n],
    [10n ** 18n - 1n, 1e9, (10n ** 18n - 1n) * 10n ** 9n],
    [7n, 5e-324, 1n],
  ])("%s micro-units, %s calls", (micro, calls, spend) => {
    expect(timesCalls(micro, calls)).toBe(spend);
  });

  test("never less than the exact product, and less than a micro-unit above it", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 10n ** 18n }), fc.integer({ min: 0, max: 1e9 }), (micro, thousandths) => {
        const spend = timesCalls(micro, thousandths / 1000);
        const exact = micro * BigInt(thousandths);
        expect(spend * 1000n >= exact && (spend - 1n) * 1000n < exact).toBe(true);
      }),
    );
  });
});
