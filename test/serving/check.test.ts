import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canonicalText } from "../../infra/canonical.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import { readEnvelope } from "../../pipelines/record/envelope.ts";
import { isId } from "../../pipelines/record/ids.ts";
import { CheckAnswer } from "../../serving/schemas/check.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { fc } from "../helpers/histories.ts";
import { capOf, cardOf, listingDraft, NOW, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { AppendOnly, checkPath, ManualClock, servingOver, type TestServing } from "../helpers/serving.ts";

const PAYEE = "0x1111111111111111111111111111111111111111";
const SUM = {
  url: "https://seller.example/api/sum?b=2&a=1",
  class: "arithmetic",
  description: "Adds two numbers",
  defects: [{ defect: "testnet_only", says: "only test networks are offered", seenAt: "2026-11-20T00:00:00.000Z" }],
};
const NEW = { url: "https://seller.example/new", method: "POST" as const };
const HALF = { url: "https://withdrawn.example/half" };
const ALL = { url: "https://withdrawn.example/all" };
const LITTLE = { url: "https://withdrawn.example/little" };
const EMPTY = { url: "https://withdrawn.example/empty" };
const PROBED = { url: "https://free.example/probed" };

let record: PublicRecord;
beforeAll(async () => {
  record = await PublicRecord.open();
  const correction = {
    kind: "correction" as const,
    capability_id: capOf(SUM),
    body: {
      ...{
        id: "rec_c1",
        record_id: "rec_x1",
        grade_at: null,
        fault: "ours",
        says: "we counted a call that never left",
      },
      issued_at: "2026-11-19T00:00:00.000Z",
    },
  };
  await record.publish(
    ...[SUM, NEW, HALF, ALL, LITTLE, EMPTY].map((spec) => [listingDraft(spec)]),
    record.grades(
      [
        cardOf(SUM, { flags: ["dynamic_price"] }),
        cardOf(SUM, { tier: "DELIVERY_VERIFIED", band: "C", composite: 0.7 }),
      ],
      "B on OUTCOME_VERIFIED, composite 0.871; at least 90.2 % correct.",
    ),
    [correction],
    ...[HALF, ALL, LITTLE].map((spec) => record.grades([cardOf(spec, { sample_count: 10 })], "B on OUTCOME.")),
    record.grades(
      [
        cardOf(EMPTY, {
          ...{ tier: "LIVENESS_VERIFIED", band: "UNRATED", composite: 0, components: null, sample_count: 0 },
          flags: ["stands_on_nothing"],
        }),
      ],
      "UNRATED: every record it stood on was withdrawn.",
    ),
  );
  await record.live([
    rowOf(SUM),
    rowOf(HALF, { withdrawn_since: 2, pay_to: null }),
    rowOf(ALL, { withdrawn_since: 12, pay_to: null }),
    rowOf(LITTLE, { withdrawn_since: 1, pay_to: null }),
    rowOf(EMPTY, { pay_to: PAYEE.toUpperCase().replace("0X", "0x") }),
    rowOf(PROBED, { price: null, asset: null, networks: [], pay_to: null, protocols: [], asked_for_payment: 0 }),
  ]);
});
afterAll(() => record.close());

const answerOf = async (serving: TestServing, query: Record<string, string>): Promise<CheckAnswer> => {
  const response = await serving.get(checkPath(query));
  expect(response.status).toBe(200);
  return CheckAnswer.parse(await response.json());
};

describe("a known endpoint", () => {
  test("every field, against a golden answer", async () => {
    const serving = await servingOver(record);
    const { signature, signing_key_id, scorecard, ...rest } = await answerOf(serving, {
      ...{ url: SUM.url, method: "GET", pay_to: PAYEE },
    });
    const golden = JSON.parse(readFileSync(new URL("./check.golden.json", import.meta.url), "utf8")) as object;
    expect(rest).toEqual(golden);
    expect(signing_key_id).toBe(record.keys.answers.kid);
    expect(signature).toMatch(/^[A-Za-z0-9_-]{86}$/);
    const card = JSON.parse(scorecard!) as { computed_at: string };
    expect(canonicalText(card)).toBe(scorecard);
    expect(verifyObject(record.jwks, card, { purpose: "cards", at: card.computed_at })).toEqual({ ok: true });
  });

  test("the signature holds under the answers key only, and for no other bytes", async () => {
    const answer = await answerOf(await servingOver(record), { url: SUM.url });
    const at = answer.answered_at;
    expect(verifyObject(record.jwks, answer, { purpose: "answers", at })).toEqual({ ok: true });
    expect(verifyObject(record.jwks, answer, { purpose: "cards", at })).toEqual({ ok: false, reason: "wrong_purpose" });
    const better = { ...answer, band: "A" };
    expect(verifyObject(record.jwks, better, { purpose: "answers", at })).toEqual({
      ok: false,
      reason: "bad_signature",
    });
  });

  test("headers: public for a minute, a strong ETag, its age, and the limit", async () => {
    const serving = await servingOver(record);
    const first = await serving.get(checkPath({ url: SUM.url }));
    expect(Object.fromEntries(first.headers)).toMatchObject({
      "content-type": "application/json",
      "cache-control": "public, max-age=60",
      age: "0",
      "ratelimit-policy": '"check";q=600;w=60',
      ratelimit: '"check";r=599;t=1',
    });
    const etag = first.headers.get("etag")!;
    expect(etag).toMatch(/^"[0-9a-f]{32}"$/);
    serving.clock.pass(42_500);
    const again = await serving.get(checkPath({ url: SUM.url }), { headers: { "if-none-match": `"x", W/${etag}` } });
    expect([again.status, await again.text(), again.headers.get("etag"), again.headers.get("age")]).toEqual([
      ...[304, "", etag, "42"],
    ]);
    expect(again.headers.get("content-length")).toBeNull();
    expect((await serving.get(checkPath({ url: SUM.url }), { headers: { "if-none-match": '"other"' } })).status).toBe(
      200,
    );
  });

  test("by its id, exactly", async () => {
    const answer = await answerOf(await servingOver(record), { url: capOf(SUM) });
    expect(answer).toMatchObject({ asked: capOf(SUM), matched: "exact", capabilityId: capOf(SUM), band: "B" });
  });

  test("without a card: matched, UNRATED, and nothing made up", async () => {
    const answer = await answerOf(await servingOver(record), { url: NEW.url });
    expect(answer).toMatchObject({
      ...{ matched: "exact", band: "UNRATED", tier: null, composite: null, components: null, scorecard: null },
      ...{ sampleCount: 0, computedAt: null, flags: [], corrections: [], payee: null },
      why: "UNRATED: 0 of 30 paid calls so far; unknown, not bad.",
      observed: { probes: 0, firstSeen: null, lastSeen: null, spanDays: 0, advertised: null, protocols: [] },
      reproduce:
        "curl -gsSi -m 20 -H 'Accept: application/json' -X POST -H 'Content-Type: application/json' -d '{}' 'https://seller.example/new'",
    });
    expect(answer).toMatchObject({ queued: true, next: expect.stringContaining("in about an hour") });
    expect(answer).not.toHaveProperty("buy");
  });

  test("that was only probed is in the record too", async () => {
    const answer = await answerOf(await servingOver(record), { url: PROBED.url });
    expect(answer).toMatchObject({
      ...{ matched: "exact", band: "UNRATED", capabilityId: capOf(PROBED), url: PROBED.url },
      observed: { probes: 100, askedForPayment: 0, advertised: null },
    });
  });

  const why = {
    half: "UNRATED: 2 of the 10 records it stood on were withdrawn; a new card follows.",
    all: "UNRATED: every record it stood on was withdrawn.",
  };
  test.each([
    [LITTLE, { band: "B", tier: "OUTCOME_VERIFIED", withdrawnSince: 1, flags: [], why: "B on OUTCOME." }],
    [
      HALF,
      {
        band: "UNRATED",
        tier: "OUTCOME_VERIFIED",
        composite: 0.871204,
        withdrawnSince: 2,
        flags: ["records_withdrawn"],
        why: why.half,
      },
    ],
    [
      ALL,
      {
        ...{ band: "UNRATED", tier: null, composite: null, components: null, withdrawnSince: 10, sampleCount: 10 },
        ...{ flags: ["records_withdrawn", "stands_on_nothing"], why: why.all },
      },
    ],
    [
      EMPTY,
      {
        band: "UNRATED",
        tier: null,
        composite: null,
        components: null,
        sampleCount: 0,
        why: why.all,
        flags: ["stands_on_nothing"],
      },
    ],
  ])("withdrawn records: %o", async (spec, expected) => {
    expect(await answerOf(await servingOver(record), { url: spec.url })).toMatchObject(expected);
  });
});

describe("defects of the volatile row", () => {
  const fresh = { defect: "no_402", says: "it is free now", seenAt: null };
  test.each([
    ["newer than the published ones", JSON.stringify([fresh]), [fresh]],
    ["none any more", "[]", []],
    ["no JSON: the published ones stand", "[{", SUM.defects],
    ["of another shape", '[{"defect":1}]', SUM.defects],
    ["text that cannot be signed", '[{"defect":"x","says":"\\ud800"}]', SUM.defects],
  ])("%s", async (_, defects, expected) => {
    const own = await PublicRecord.open();
    await own.publish([listingDraft(SUM)]);
    await own.live([rowOf(SUM, { defects })]);
    const answer = await answerOf(await servingOver(own), { url: SUM.url });
    expect(answer.defects).toEqual(expected);
    expect(verifyObject(own.jwks, answer, { purpose: "answers", at: answer.answered_at })).toEqual({ ok: true });
    await own.close();
  });
});

describe("the minute", () => {
  test("two requests in it get identical bytes, after it new ones", async () => {
    const serving = await servingOver(record);
    const urls = [SUM.url, NEW.url, capOf(ALL), "https://unknown.example/x", "http://10.0.0.1/never"];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...urls),
        fc.constantFrom("", "GET", "POST"),
        fc.constantFrom("", PAYEE),
        fc.integer({ min: 0, max: 59_999 }),
        async (url, method, pay_to, wait) => {
          const query = { url, ...(method ? { method } : {}), ...(pay_to ? { pay_to } : {}) };
          serving.clock.pass(60_000);
          const first = await (await serving.get(checkPath(query))).text();
          const answer = CheckAnswer.parse(JSON.parse(first));
          expect(verifyObject(record.jwks, answer, { purpose: "answers", at: answer.answered_at })).toEqual({
            ok: true,
          });
          serving.clock.pass(wait);
          const reordered = `/v1/check?junk=1&${[...new URLSearchParams(query)]
            .reverse()
            .map(([k, v]) => `${k}=${encodeURIComponent(v)}`)
            .join("&")}`;
          expect(await (await serving.get(reordered)).text()).toBe(first);
          serving.clock.pass(60_000 - wait);
          expect(await (await serving.get(checkPath(query))).text()).not.toBe(first);
        },
      ),
      { numRuns: 60 },
    );
  });

  test("is shared by all ways to write one url, which differ in `asked` alone", async () => {
    const serving = await servingOver(record);
    const ways = [
      "http://new.example/a?b=1&c=2",
      "HTTP://New.Example:80/a?c=2&b=1#part",
      "http://me:pw@new.example/%61?b=1&c=2",
    ];
    const asked = async (url: string) => ({ url, text: await (await serving.get(checkPath({ url }))).text() });
    // The odd ones first, two of them at once; what is put in line is one url, as it was written first.
    const [odd, other] = await Promise.all([asked(ways[1]!), asked(ways[2]!)]);
    serving.clock.pass(30_000);
    const plain = await asked(ways[0]!);
    expect(serving.log.records).toHaveLength(1);
    const answers = [odd, other, plain].map(({ url, text }) => {
      const answer = CheckAnswer.parse(JSON.parse(text));
      expect(verifyObject(record.jwks, answer, { purpose: "answers", at: answer.answered_at })).toEqual({ ok: true });
      const { asked: said, signature: _, ...same } = answer;
      expect(said).toBe(url);
      return same;
    });
    expect(answers[1]).toEqual(answers[0]);
    expect(answers[2]).toEqual(answers[0]);
    expect((await asked(ways[1]!)).text).toBe(odd!.text);
    serving.clock.pass(30_000);
    expect((await asked(ways[1]!)).text).not.toBe(odd!.text);
    // Of the record too, and a method is another question.
    const known = await asked(SUM.url.replace("https", "HTTPS"));
    expect(JSON.parse(known.text)).toMatchObject({ matched: "exact", capabilityId: capOf(SUM) });
    expect(serving.log.records).toHaveLength(1);
  });

  test("is signed once for each spelling, and an odd one that comes first costs no second signature", async () => {
    let signed = 0;
    const { answers: key } = record.keys;
    const sign = (bytes: Uint8Array) => {
      signed++;
      return key.sign(bytes);
    };
    const serving = await servingOver(record, { answers: { ...key, kid: key.kid, sign } });
    const odd = SUM.url.replace("https", "HTTPS");
    for (const [url, signatures] of [
      ...[[odd, 1] as const, [odd, 1] as const, [SUM.url, 2] as const, [odd, 2] as const, [SUM.url, 2] as const],
    ]) {
      const answer = CheckAnswer.parse(await (await serving.get(checkPath({ url }))).json());
      expect([answer.asked, signed]).toEqual([url, signatures]);
      expect(verifyObject(record.jwks, answer, { purpose: "answers", at: answer.answered_at })).toEqual({ ok: true });
    }
  });

  test("ends for those who asked at once with one answer and one ask", async () => {
    const serving = await servingOver(record);
    const path = checkPath({ url: "https://race.example/x" });
    const texts = await Promise.all(Array.from({ length: 8 }, async () => (await serving.get(path)).text()));
    expect(new Set(texts).size).toBe(1);
    expect(serving.log.records).toHaveLength(1);
  });

  test("is not extended by a view that changed, nor does the cache grow without bound", async () => {
    const serving = await servingOver(record, { cache: { ttlMs: 60_000, maxEntries: 2, maxBytes: 1e9 } });
    const [a, b, c] = [SUM.url, NEW.url, HALF.url].map((url) => checkPath({ url }));
    const first = await (await serving.get(a!)).text();
    serving.clock.pass(1);
    await serving.get(b!);
    expect(await (await serving.get(a!)).text()).toBe(first);
    await serving.get(c!);
    expect(await (await serving.get(a!)).text()).not.toBe(first);
  });
});

describe("a server with several tools", () => {
  const SERVER = "https://tools.example/mcp";
  const tool = (name: string) => ({ url: SERVER, method: "POST" as const, tool: name });
  const ONE = { url: "https://one.example/mcp", method: "POST" as const, tool: "only" };
  const paid = { probes: 9, paid_calls: 7 };
  const asking = async (url: string) => answerOf(await servingOver(own), { url });
  let own: PublicRecord;
  beforeAll(async () => {
    own = await PublicRecord.open();
    const all = [...["search", "two words", "add"].map(tool), ONE];
    await own.publish(all.map((spec) => listingDraft(spec)));
    await own.live(all.map((spec) => rowOf(spec, spec.tool === "add" ? paid : { probes: 9, paid_calls: 0 })));
  });
  afterAll(() => own.close());

  test("a fragment names the tool that is meant, exactly", async () => {
    for (const name of ["search", "two words", "add"]) {
      const url = `${SERVER}#${encodeURIComponent(name)}`;
      const answer = await asking(url);
      expect(answer).toMatchObject({ asked: url, matched: "exact", capabilityId: capOf(tool(name)), url: SERVER });
      expect(answer).not.toHaveProperty("next");
    }
  });

  test("the url alone is about the one that was paid most, and says so", async () => {
    const answer = await asking(SERVER);
    expect(answer).toMatchObject({
      ...{ asked: SERVER, matched: "exact", capabilityId: capOf(tool("add")) },
      next: `This is about the tool add. Ask for another one as ${SERVER}#NAME: search, two words.`,
    });
  });

  test("a tool that it does not have is told; one tool alone needs no word", async () => {
    expect((await asking(`${SERVER}#gone`)).next).toMatch(
      /^The record has no tool gone of this server\. This is about/,
    );
    expect(await asking(ONE.url)).not.toHaveProperty("next");
    expect((await asking(`${ONE.url}#other`)).next).toBe(
      "The record has no tool other of this server. This is about the tool only.",
    );
    expect((await asking(`${SERVER}#%E0%A4%A`)).capabilityId).toBe(capOf(tool("add")));
  });

  test("each tool has a minute of its own, and a fragment means nothing elsewhere", async () => {
    const serving = await servingOver(own);
    const ids = [];
    for (const hash of ["", "#search", "#add", "#two%20words", "#search"]) {
      ids.push((await answerOf(serving, { url: `${SERVER}${hash}` })).capabilityId);
    }
    expect(new Set(ids).size).toBe(3);
    await answerOf(serving, { url: "https://plain.example/x#a" });
    await answerOf(serving, { url: "https://plain.example/x#b" });
    expect(serving.log.records).toHaveLength(1);
  });
});

test("more than a hundred corrections are not cut silently", async () => {
  const own = await PublicRecord.open();
  const correction = (n: number) => ({
    kind: "correction" as const,
    capability_id: capOf(SUM),
    body: { id: `c${n}`, record_id: null, fault: "ours", says: `no ${n}`, issued_at: "2026-11-19T00:00:00.000Z" },
  });
  const some = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => correction(from + i));
  await own.publish([listingDraft(SUM)], some(0, 100));
  await own.live([rowOf(SUM)]);
  expect(await answerOf(await servingOver(own), { url: SUM.url })).not.toHaveProperty("next");
  await own.publish(some(100, 103));
  const answer = await answerOf(await servingOver(own), { url: SUM.url });
  expect(answer.corrections!.map(({ id }) => id)).toEqual(some(3, 103).map(({ body }) => body.id));
  expect(answer.next).toBe(`The newest 100 of 103 corrections are shown; /v1/trust/${capOf(SUM)} has all of them.`);
  await own.close();
});

describe("an unknown url", () => {
  test("is UNRATED, queued, and in the log before it is answered", async () => {
    const serving = await servingOver(record);
    const url = "https://user:pw@New.Example:443/a%7Eb?y=2&x=1#part";
    const answer = await answerOf(serving, { url, method: "POST", pay_to: PAYEE });
    expect(answer).toMatchObject({
      ...{ band: "UNRATED", tier: null, composite: null, matched: "none", asked: url, defects: [], queued: true },
      why: "UNRATED: not in the record; unknown, not bad.",
      next: "In line for a free handshake. Ask again in about an hour.",
      payee: { address: PAYEE, listed: 2 },
    });
    expect(answer).not.toHaveProperty("capabilityId");
    const [ask] = serving.log.records;
    const read = readEnvelope(ask!.value);
    expect(read.ok && read.envelope).toMatchObject({
      ...{ type: "ask", key: "new.example", observed_at: NOW },
      body: {
        url: "https://new.example/a%7Eb?y=2&x=1",
        normalised_url: "https://new.example/a~b?x=1&y=2",
        method: "POST",
      },
    });
    expect([ask!.topic, ask!.key, isId("rec", ask!.eventId)]).toEqual(["asks", "new.example", true]);
    expect(JSON.stringify(read)).not.toContain("pw");
  });

  test("asked twice in an hour has one id, another url of the same host another", async () => {
    const ids: string[] = [];
    for (const url of ["https://host.example/1", "https://host.example/1", "https://host.example/2"]) {
      const serving = await servingOver(record);
      await answerOf(serving, { url });
      ids.push(serving.log.records[0]!.eventId);
    }
    expect(ids[0]).toBe(ids[1]);
    expect(ids[2]).not.toBe(ids[0]);
  });

  test("of a domain with many in line waits longer, and is told so", async () => {
    const serving = await servingOver(record);
    const nexts: string[] = [];
    for (let i = 0; i < 11; i++) nexts.push((await answerOf(serving, { url: `https://a${i}.many.example/` })).next!);
    expect(nexts[4]).toContain("in about an hour");
    expect(nexts[5]).toContain("in about 2 hours");
    expect(nexts[10]).toContain("in about 3 hours");
  });

  test.each([
    "http://localhost/secret",
    "http://127.0.0.1/",
    "https://intranet/",
    "https://seller.example:8443/x",
    `https://${"a.".repeat(140)}example/`,
  ])("that we never fetch is no error: %s", async (url) => {
    const serving = await servingOver(record);
    const answer = await answerOf(serving, { url });
    expect(answer).toMatchObject({ band: "UNRATED", matched: "none", queued: false });
    expect(answer.next).toMatch(/^We never probe this address: .+\.$/);
    expect(serving.log.records).toEqual([]);
  });

  test("an unknown id has nothing to probe", async () => {
    const answer = await answerOf(await servingOver(record), { url: `cap_${"0".repeat(26)}` });
    expect(answer).toMatchObject({ matched: "none", band: "UNRATED" });
    expect(answer).not.toHaveProperty("queued");
  });

  test("is not promised a place that the log did not give, and is told to ask again", async () => {
    const serving = await servingOver(record);
    serving.log.down = true;
    const path = checkPath({ url: "https://later.example/" });
    const answer = await answerOf(serving, { url: "https://later.example/" });
    expect([answer.queued, answer.next]).toEqual([false, expect.stringContaining("Ask again in a minute")]);
    expect(JSON.stringify(answer)).not.toContain("secret");
    serving.log.down = false;
    serving.clock.pass(60_000);
    expect(((await (await serving.get(path)).json()) as CheckAnswer).queued).toBe(true);
  });
});

describe("payee", () => {
  test.each([
    [
      "known, whatever the case",
      PAYEE,
      {
        origins: ["https://seller.example", "https://withdrawn.example"],
        listed: 2,
        graded: 1,
        bestBand: "B",
        withDefects: 1,
      },
    ],
    [
      "unknown",
      "0x2222222222222222222222222222222222222222",
      { origins: [], listed: 0, graded: 0, bestBand: null, withDefects: 0 },
    ],
    [
      "unknown, base58",
      "4Nd1mYvhAkqeKfUEeEkhM9Jvz7vPbGJcAdX2fKqpiGZT",
      { origins: [], listed: 0, graded: 0, bestBand: null, withDefects: 0 },
    ],
  ])("%s", async (_, pay_to, expected) => {
    expect((await answerOf(await servingOver(record), { url: SUM.url, pay_to })).payee).toEqual({
      address: pay_to,
      ...expected,
    });
  });
});

describe("what is refused", () => {
  const long = `https://seller.example/${"x".repeat(2048)}`;
  test.each([
    ["", "/url"],
    ["url=", "/url"],
    ["url=http://", "/url"],
    ["url=https:/", "/url"],
    [`url=${long}`, "/url"],
    ["url=javascript:alert(1)", "/url"],
    ["url=ftp://seller.example/x", "/url"],
    ["url=not a url at all", "/url"],
    ["url=cap_ILOU00000000000000000000000", "/url"],
    ["url=https://a.example/1&url=https://a.example/2", "/url"],
    ["url=https://seller.example/%20&method=get", "/method"],
    ["url=https://seller.example/x&method=PUT", "/method"],
    ["url=https://seller.example/x&method=", "/method"],
    ["url=https://seller.example/x&method=GET&method=POST", "/method"],
    ["url=https://seller.example/x&pay_to=", "/pay_to"],
    ["url=https://seller.example/x&pay_to=0x123", "/pay_to"],
    [`url=https://seller.example/x&pay_to=0x${"g".repeat(40)}`, "/pay_to"],
    [`url=https://seller.example/x&pay_to=${"O".repeat(40)}`, "/pay_to"],
    [`url=https://seller.example/x&pay_to=${"a".repeat(45)}`, "/pay_to"],
  ])("%s", async (query, pointer) => {
    const serving = await servingOver(record);
    const response = await serving.get(`/v1/check?${query}`);
    expect([response.status, response.headers.get("content-type")]).toEqual([400, "application/problem+json"]);
    expect(response.headers.get("cache-control")).toBe("no-store");
    const problem = ProblemDocument.parse(await response.json());
    expect(problem).toMatchObject({ type: "/docs/api#bad-request", status: 400, instance: "/v1/check" });
    expect(problem.errors!.map((error) => error.pointer)).toEqual([pointer]);
    expect(serving.log.records).toEqual([]);
  });

  test.each([7, 8, 2048, 2049])("a url of %i characters", async (length) => {
    const url = length < 10 ? "http://abcdef.de".slice(0, length) : `https://seller.example/${"x".repeat(length - 23)}`;
    expect(url).toHaveLength(length);
    const { status } = await (await servingOver(record)).get(checkPath({ url }));
    expect(status).toBe(length >= 8 && length <= 2048 ? 200 : 400);
  });
});

describe("limits", () => {
  test("checks of one client: 429 with Retry-After, then again", async () => {
    const serving = await servingOver(record, { limits: { checks_per_minute: 3 } });
    const path = checkPath({ url: SUM.url });
    const left = [];
    for (let i = 0; i < 3; i++) left.push((await serving.get(path)).headers.get("ratelimit"));
    expect(left).toEqual(['"check";r=2;t=20', '"check";r=1;t=40', '"check";r=0;t=60']);
    const refused = await serving.get(path);
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "20"]);
    expect(ProblemDocument.parse(await refused.json()).type).toBe("/docs/api#too-many-requests");
    serving.clock.pass(20_000);
    expect((await serving.get(path)).status).toBe(200);
  });
});

test("a simulated clock dates the answer in the record's time", async () => {
  const clock = new ManualClock("2027-01-01T00:00:00.000Z", true);
  const serving = await servingOver(record, { clock, log: new AppendOnly() });
  expect((await answerOf(serving, { url: SUM.url })).answered_at).toBe("2027-01-01T00:00:00.000Z");
});
