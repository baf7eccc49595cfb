import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { signObject } from "../../../infra/keys/signer.ts";
import { normaliseUrl } from "../../../pipelines/record/url.ts";
import {
  type CheckAnswer,
  type Dependency,
  Service,
  ServiceFault,
  verifyCard,
  verifyCheck,
} from "../../../serving/client/index.ts";
import { capabilityId } from "../../../serving/client/method.ts";
import { type LiveService, liveService, now, peer } from "../../helpers/client.ts";
import {
  capOf,
  cardOf,
  type EndpointSpec,
  listingDraft,
  NOW,
  PAYEE,
  PublicRecord,
  rowOf,
} from "../../helpers/public-record.ts";

const SUM = { url: "https://seller.example/sum" };
let record: PublicRecord;
let live: LiveService;
let good: CheckAnswer;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM)], "B: it delivers."));
  await record.live([rowOf(SUM)]);
  live = await liveService(record);
  good = await live.client().check({ url: SUM.url, payTo: PAYEE });
});
afterAll(async () => {
  await live.close();
  await record.close();
});

/** What comes of a check whose answer is this, with the true keys document beside it. */
async function faultOf(answer: (check: object) => object | string, more: object = {}): Promise<string> {
  const { url, close } = await peer((request, response) => {
    if (request.url!.startsWith("/.well-known")) return response.end(JSON.stringify(record.jwks));
    const said = answer(structuredClone(good));
    response.end(typeof said === "string" ? said : JSON.stringify(said));
  });
  try {
    await new Service({ base: url, now, ...more }).check({ url: SUM.url, payTo: PAYEE });
    return "believed";
  } catch (error) {
    if (!(error instanceof ServiceFault)) throw error;
    return error.code;
  } finally {
    await close();
  }
}

const resigned = (change: object, keys = record.keys.answers): object => {
  const { signature: _s, signing_key_id: _k, canonicalization: _c, ...facts } = good;
  return signObject(keys, { ...facts, ...change });
};

test("a check is believed as it was signed, and its card is a card", async () => {
  expect(good).toMatchObject({ band: "B", asked: SUM.url, matched: "exact" });
  expect(await verifyCheck(record.jwks, good)).toEqual({ ok: true });
  expect(await verifyCard(record.jwks, good.scorecard)).toEqual({ ok: true });
  expect(await faultOf((answer) => answer)).toBe("believed");
});

test.each<[string, (answer: object) => object | string, string]>([
  ["a letter that was raised", (answer) => ({ ...answer, band: "A" }), "bad_signature"],
  ["no signature", ({ ...answer }) => ({ ...answer, signature: null }), "bad_signature"],
  ["the card's key, which signs other things", () => resigned({}, record.keys.cards), "bad_signature"],
  ["an answer about another url", () => resigned({ asked: "https://seller.example/mul" }), "other_answer"],
  [
    "an answer about another payee",
    () => resigned({ payee: { ...good.payee, address: `0x${"2".repeat(40)}` } }),
    "other_answer",
  ],
  ["an answer of an hour ago", () => resigned({ answered_at: new Date(now() - 3_600_000).toISOString() }), "stale"],
  ["an answer of the next hour", () => resigned({ answered_at: new Date(now() + 3_600_000).toISOString() }), "stale"],
  ["something else that is signed", () => resigned({ defects: undefined }), "bad_answer"],
  ["no JSON", () => "<html>", "bad_answer"],
  ["more than an answer is long", (answer) => ({ ...answer, why: "x".repeat(300_000) }), "too_large"],
])("%s: %#", async (_, answer, code) => {
  expect(await faultOf(answer)).toBe(code);
});

describe("an answer about one method does not stand in for one about another", () => {
  const BOTH = { url: "https://seller.example/both" };
  const TOOL: EndpointSpec = { url: "https://seller.example/mcp", tool: "add one", method: "POST" };
  const TEMPLATE = { url: "https://seller.example/users/:id" };
  const POSTED = { url: "https://seller.example/posted", method: "POST" as const };
  let own: PublicRecord;
  let service: LiveService;
  beforeAll(async () => {
    own = await PublicRecord.open();
    const all: EndpointSpec[] = [POSTED, BOTH, { ...BOTH, method: "POST" }, TOOL, TEMPLATE];
    await own.publish(all.map(listingDraft));
    await own.live(all.map((spec) => rowOf(spec)));
    service = await liveService(own);
  });
  afterAll(async () => {
    await service.close();
    await own.close();
  });

  const check = (url: string, method: "GET" | "POST") => service.client().check({ url, method });
  /** The true answer to one question, in the place of the answer to another. */
  const replayed = async (url: string, of: "GET" | "POST" | undefined, to: "GET" | "POST"): Promise<string> => {
    const query = new URLSearchParams({ url });
    if (of) query.set("method", of);
    const answer = await (await fetch(`${service.url}/v1/check?${query}`)).text();
    const options = { base: "https://touchstone.test", keys: own.jwks, now };
    const client = new Service({ ...options, fetch: async () => new Response(answer) });
    return client.check({ url, method: to }).then(
      () => "believed",
      ({ code }) => code,
    );
  };

  test("of one url", async () => {
    expect((await check(BOTH.url, "GET")).capabilityId).toBe(capOf(BOTH));
    expect((await check(BOTH.url, "POST")).capabilityId).toBe(capOf({ ...BOTH, method: "POST" }));
    expect(await replayed(BOTH.url, "GET", "GET")).toBe("believed");
    expect(await replayed(BOTH.url, "GET", "POST")).toBe("other_answer");
    expect(await replayed(BOTH.url, "POST", "GET")).toBe("other_answer");
  });

  test("of a url that the record has with the other method alone, or not at all", async () => {
    for (const url of [POSTED.url, "https://seller.example/unseen"]) {
      const { band, matched, method } = await check(url, "GET");
      expect([band, matched, method]).toEqual(["UNRATED", "none", "GET"]);
      expect(await replayed(url, "GET", "GET")).toBe("believed");
      expect(await replayed(url, "GET", "POST")).toBe("other_answer");
    }
    expect(await replayed("https://seller.example/unseen", undefined, "POST")).toBe("other_answer");
  });

  test("of one path, and of a template", async () => {
    for (const url of [`${BOTH.url}?a=1`, "https://seller.example/users/7"]) {
      expect((await check(url, "GET")).matched).toBe("path");
      expect(await replayed(url, "GET", "POST")).toBe("other_answer");
    }
  });

  test("of a tool, which is called by POST, whether or not the question names it", async () => {
    expect((await check(`${TOOL.url}#add%20one`, "POST")).capabilityId).toBe(capOf(TOOL));
    expect((await check(TOOL.url, "POST")).capabilityId).toBe(capOf(TOOL));
    expect(await replayed(`${TOOL.url}#add%20one`, "POST", "GET")).toBe("other_answer");
  });

  test("ids are those of the record", async () => {
    for (const spec of [BOTH, TOOL, TEMPLATE, { url: "https://bücher.example/%C3%A9?b=2&a=1", method: "PUT" }]) {
      const { method = "GET", tool = "" } = spec as EndpointSpec;
      expect(await capabilityId(method, normaliseUrl(spec.url), tool)).toBe(capOf(spec as EndpointSpec));
    }
  });
});

test("an answer signed by a key that nobody published is not believed", async () => {
  const stranger = await PublicRecord.open();
  try {
    expect(await faultOf(() => resigned({}, stranger.keys.answers))).toBe("bad_signature");
    // With the stranger's keys pinned it is the true answer that is not.
    expect(await faultOf((answer) => answer, { keys: stranger.jwks })).toBe("bad_signature");
  } finally {
    await stranger.close();
  }
});

describe("a service that", () => {
  const cases: [string, Parameters<typeof peer>[0], string][] = [
    ["never answers", () => {}, "timeout"],
    ["sends half an answer", (_, response) => void response.write("{"), "timeout"],
    ["redirects", (_, response) => response.writeHead(302, { location: "https://evil.example/" }).end(), "redirected"],
    ["fails", (_, response) => response.writeHead(503, { "retry-after": "7" }).end("{}"), "unavailable"],
    ["has had enough", (_, response) => response.writeHead(429).end("{}"), "limited"],
    ["hangs up", (request) => void request.socket.destroy(), "unreachable"],
  ];
  test.each(cases)("%s", async (_, answer, code) => {
    const { url, close } = await peer(answer);
    const asked = new Service({ base: url, now, timeout_ms: code === "timeout" ? 200 : 60_000 }).check(SUM);
    await expect(asked).rejects.toMatchObject({ name: "ServiceFault", code });
    if (code === "unavailable") await expect(asked).rejects.toMatchObject({ status: 503, retryAfter_s: 7 });
    await close();
  });

  test("is not there", async () => {
    const { url, close } = await peer(() => {});
    await close();
    await expect(new Service({ base: url }).check(SUM)).rejects.toMatchObject({ code: "unreachable" });
  });

  test("refuses the question says why", async () => {
    const asked = live.client().check({ url: "javascript:alert(1)" });
    await expect(asked).rejects.toMatchObject({ code: "problem", status: 400 });
  });

  test.each(["http://touchstone.example", "ftp://x", "https://u:p@touchstone.example", "https://x.example/?a"])(
    "is at %s is not asked",
    (base) => expect(() => new Service({ base })).toThrow(TypeError),
  );
});

test("a question within its minute is asked once, also by many at a time; a fault is not kept", async () => {
  let at = now();
  const client = live.client({ now: () => at, maxAge_s: 3600 });
  live.asked.length = 0;
  await Promise.all([client.check(SUM), client.check(SUM), client.check(SUM)]);
  await client.check(SUM);
  expect(live.asked.filter((path) => path === "/v1/check")).toHaveLength(1);
  at += 60_000;
  await client.check(SUM);
  expect(live.asked.filter((path) => path === "/v1/check")).toHaveLength(2);

  let up = false;
  const { url, close } = await peer((request, response) => {
    if (request.url!.startsWith("/.well-known")) return response.end(JSON.stringify(record.jwks));
    response.writeHead(up ? 200 : 503).end(JSON.stringify(up ? good : {}));
  });
  const other = new Service({ base: url, now });
  await expect(other.check({ url: SUM.url, payTo: PAYEE })).rejects.toMatchObject({ code: "unavailable" });
  up = true;
  expect((await other.check({ url: SUM.url, payTo: PAYEE })).band).toBe("B");
  await close();
});

test("so many answers are held, and the oldest goes first", async () => {
  let asked = 0;
  const answering: typeof fetch = async (input) => {
    asked++;
    return Response.json(resigned({ asked: new URL(String(input)).searchParams.get("url") }));
  };
  const client = new Service({
    base: "https://touchstone.test",
    fetch: answering,
    keys: record.jwks,
    now,
    maxHeld: 20,
  });
  const ask = (n: number) => client.check({ url: `https://seller.example/${n}` });
  for (let n = 0; n < 21; n++) await ask(n);
  expect(asked).toBe(21);
  await ask(1);
  await ask(20);
  expect(asked).toBe(21);
  await ask(0);
  expect(asked).toBe(22);
});

test("keys are read once, and again for an unknown key at most once a minute", async () => {
  const stranger = await PublicRecord.open();
  let published = record.jwks;
  let reads = 0;
  let signer = record.keys.answers;
  const { url, close } = await peer((request, response) => {
    if (request.url!.startsWith("/.well-known")) reads++;
    const asked = new URL(request.url!, "http://x").searchParams.get("url") ?? "";
    const isKeys = request.url!.startsWith("/.well-known");
    response.end(JSON.stringify(isKeys ? published : resigned({ asked }, signer)));
  });
  let at = now();
  const client = new Service({ base: url, now: () => at, maxAge_s: 86_400 });
  const ask = (n: number) => client.check({ url: `https://seller.example/${n}` });
  await ask(1);
  await ask(2);
  expect(reads).toBe(1);
  // A new key signs, and is published: within the minute it is not looked for, after it is, once.
  signer = stranger.keys.answers;
  await expect(ask(3)).rejects.toMatchObject({ code: "bad_signature" });
  expect(reads).toBe(1);
  at += 61_000;
  await expect(ask(4)).rejects.toMatchObject({ code: "bad_signature" });
  await expect(ask(5)).rejects.toMatchObject({ code: "bad_signature" });
  expect(reads).toBe(2);
  published = { keys: [...record.jwks.keys, ...stranger.jwks.keys] };
  at += 61_000;
  expect((await ask(6)).band).toBe("B");
  expect(reads).toBe(3);
  // A key that is retired is known as such within the hour.
  published = { keys: published.keys.map((key) => ({ ...key, retired_at: "2026-11-01T00:00:00.000Z" })) };
  at += 3_600_000;
  await expect(ask(7)).rejects.toMatchObject({ code: "bad_signature" });
  await close();
  await stranger.close();
});

test("a search finds by words, within what else is asked, and a fault of the question is named", async () => {
  const client = live.client();
  const { capabilities, read_as } = await client.search("sum", { max_price: "0.05", order: "price", limit: 1 });
  expect(capabilities.map(({ url, price }) => [url, price])).toEqual([[SUM.url, "0.020000"]]);
  expect(read_as).toMatchObject({ words: ["sum"], order: "price", max_price: "0.050000" });
  expect((await client.search("sum", { band: "A" })).capabilities).toEqual([]);
  await expect(client.search("sum", { limit: 99 })).rejects.toMatchObject({ code: "problem", status: 400 });
  const { url, close } = await peer((_, response) => response.end("[]"));
  await expect(new Service({ base: url, now }).search("sum")).rejects.toMatchObject({ code: "bad_answer" });
  await close();
});

test("an exposure report is believed when it is signed and has a line for each dependency", async () => {
  const report = await live.client().exposure([SUM.url, { url: SUM.url, calls_per_month: 100, pay_to: PAYEE }]);
  expect(report.lines.map(({ standing }) => standing)).toEqual(["lettered", "lettered"]);
  expect(report.lines[1]!.pay_to_seen_before).toBe(true);
  const { url, close } = await peer((request, response) => {
    if (request.url!.startsWith("/.well-known")) return response.end(JSON.stringify(record.jwks));
    response.end(JSON.stringify({ ...report, lines: [] }));
  });
  await expect(new Service({ base: url, now }).exposure([SUM.url])).rejects.toMatchObject({ code: "bad_signature" });
  await close();
  expect(report.answered_at).toBe(NOW);
});

test("a report that the service signed for other dependencies is not taken for one about these", async () => {
  const OTHER = "https://other.example/x";
  const full = { url: SUM.url, calls_per_month: 100, price: "0.05", pay_to: PAYEE };
  const believed = async (sent: (string | Dependency)[], answered: (string | Dependency)[]): Promise<string> => {
    const report = await live.client().exposure(answered);
    const { url, close } = await peer((request, response) => {
      response.end(JSON.stringify(request.url!.startsWith("/.well-known") ? record.jwks : report));
    });
    return new Service({ base: url, now })
      .exposure(sent)
      .then(() => "believed")
      .catch(({ code }: ServiceFault) => code)
      .finally(close);
  };
  const same = [full, SUM.url, { ...full, price: "00.050", calls_per_month: 0.5 }];
  expect(await believed(same, same)).toBe("believed");
  for (const [sent, answered] of [
    [[SUM.url], [OTHER]],
    [
      [SUM.url, OTHER],
      [OTHER, SUM.url],
    ],
    [[full], [{ url: SUM.url, price: "0.05", pay_to: PAYEE }]],
    [[full], [{ ...full, price: "0.5" }]],
    [[full], [{ ...full, pay_to: `0x${"2".repeat(40)}` }]],
    // The payee that the record shows is the one that was sent, but nobody asked whether it was seen before.
    [[full], [{ url: SUM.url, calls_per_month: 100, price: "0.05" }]],
    [[SUM.url], [{ url: SUM.url, pay_to: PAYEE }]],
  ] as [(string | Dependency)[], (string | Dependency)[]][])
    expect([sent, await believed(sent, answered)]).toEqual([sent, "other_answer"]);
});
