import { describe, expect, test } from "vitest";
import { FixedClock } from "../../../../infra/clock.ts";
import { createMetrics } from "../../../../infra/telemetry.ts";
import { Catalogues } from "../../../../pipelines/1-observe/listings/catalogues.ts";
import { type ListedClaim, REASONS } from "../../../../pipelines/1-observe/listings/claims.ts";
import { parseListing } from "../../../../pipelines/1-observe/listings/documents.ts";
import { Intake, MAX_PER_DOMAIN } from "../../../../pipelines/1-observe/listings/intake.ts";
import { readItems } from "../../../../pipelines/1-observe/listings/wellknown.ts";
import { processReader } from "../../../../pipelines/1-observe/reading/reader.ts";
import { Recorder } from "../../../../pipelines/1-observe/recorder.ts";
import { BODIES } from "../../../../pipelines/record/bodies.ts";
import { capId } from "../../../../pipelines/record/ids.ts";
import { PLATFORM_CAP_FACTOR } from "../../../../pipelines/record/url.ts";
import { fc } from "../../../helpers/histories.ts";
import { claimOf, readTerms } from "../readings.ts";
import {
  type Asked,
  answer,
  DAY,
  entry,
  FakeEgress,
  FakeLog,
  FakeRail,
  item,
  LogMemory,
  SELLER,
  terms402,
  timeout,
  wellKnown,
} from "../world.ts";

const rail = new FakeRail();

function intake() {
  const log = new FakeLog();
  const egress = new FakeEgress();
  const metrics = createMetrics();
  const recorder = new Recorder({ log, producer: "test", metrics });
  const clock = new FixedClock(`${DAY}T00:00:00.000Z`);
  return { log, egress, clock, recorder, metrics, intake: new Intake({ egress, rail, recorder, metrics }) };
}

describe("a seller's own file", () => {
  test.each<[string, unknown, string[]]>([
    ["list of objects under items", { items: [{ resource: "/a", method: "POST" }] }, ["POST /a"]],
    ["list under endpoints", { x402Version: 2, endpoints: [{ path: "/a", method: "GET" }] }, ["GET /a"]],
    [
      "verb and path",
      { version: 1, resources: ["POST /a", "/b", "https://x.example/c"] },
      ["POST /a", "/b", "https://x.example/c"],
    ],
    ["items before resources", { resources: ["/z"], items: [{ resource: "/a" }] }, ["/a"]],
    ["map by path", { endpoints: { "/a": { method: "GET" }, "POST /b": {}, note: { x: 1 } } }, ["GET /a", "POST /b"]],
    ["map at the top", { "/a": {}, "/b": { method: "GET" } }, ["/a", "GET /b"]],
    ["list at the top", [{ url: "/a" }, 7, null], ["/a"]],
    ["one single item", { resource: "/a", accepts: [] }, ["/a"]],
    ["a number", 7, []],
    ["a shop window", { name: "x", payment: { provider: "stripe" } }, []],
    ["empty", {}, []],
  ])("%s", (_name, document, want) => {
    const read = readItems(document).items.map((one) =>
      [one.method, one.resource ?? one.url ?? one.path].filter(Boolean).join(" "),
    );
    expect(read).toEqual(want);
  });

  test("one is bounded, and the rest is named", () => {
    const read = parseListing(Array.from({ length: 5_000 }, () => "/a"));
    expect(read).toMatchObject({ form: "list", whole: false, rejected: { length: 3_000 } });
    expect(read.items).toHaveLength(2_000);
  });
});

describe("claims", () => {
  const own = { name: `${SELLER}/.well-known/x402`, ownOrigin: SELLER };
  const taken = (change: Record<string, unknown> = {}, source: Parameters<typeof claimOf>[1] = own) =>
    claimOf(item(change), source, rail);
  const claim = (...args: Parameters<typeof taken>): ListedClaim | null => {
    const read = taken(...args);
    return "claim" in read ? read.claim : null;
  };

  test("everything the seller says", () => {
    expect(claim()).toMatchObject({
      cap: capId("GET", `${SELLER}/sum`),
      body: {
        source: own.name,
        source_id: "GET /sum",
        seller_controlled: true,
        normalised_url: `${SELLER}/sum`,
        claims: {
          url: `${SELLER}/sum`,
          method: "GET",
          class: "arithmetic",
          fixed_price: true,
          example: { query: { a: "1", b: "2" } },
          output_mime: "application/json",
          offers: [{ price: "0.010000", payable: true }],
        },
        defects: [],
      },
    });
  });

  test.each<[string, Record<string, unknown>, Record<string, unknown>]>([
    ["a price that moves", { pricing: { mode: "dynamic" } }, { fixed_price: false }],
    ["a range", { pricingMode: "range" }, { fixed_price: false }],
    ["no terms", { accepts: undefined }, { fixed_price: false, offers: [] }],
    ["a class nobody checks", { class: "poetry" }, { class: "any" }],
    ["no example", { example: undefined }, { example: null }],
    ["bare example values", { example: { a: "1" } }, { example: { query: { a: "1" } } }],
    ["bare example values in a body", { method: "POST", example: { a: 1 } }, { example: { body: { a: 1 } } }],
    [
      "version 1's schema pair",
      { outputSchema: { input: {}, output: { n: { type: "number" } } } },
      { output_schema: { type: "object", properties: { n: { type: "number" } } } },
    ],
    ["a description past the limit", { description: "x".repeat(9_999) }, { description: "x".repeat(2_000) }],
  ])("%s", (_name, change, want) => {
    const read = claim(change);
    expect(read?.body.claims).toMatchObject(want);
    expect(() => BODIES.listing.parse(read?.body)).not.toThrow();
  });

  test("what is not on the seller's own origin is not under its control", () => {
    expect(claim({ resource: "https://other.example/sum" })?.body.seller_controlled).toBe(false);
    const row = claim({ resource: `${SELLER}/sum` }, { name: "https://catalogue.example" });
    expect(row?.body.seller_controlled).toBe(false);
    expect(row?.cap).toBe(claim()?.cap);
  });

  describe("a defect is said of what was said, by whoever has room to say it", () => {
    const bare = { scheme: "exact", network: "eip155:8453", amount: "10000", asset: `0x${"ab".repeat(20)}` };
    const flat = { network: "base", asset: "usdc", price: "10000", price_unit: "atomic" };
    const catalogue = { name: "https://catalogue.example" };
    const rows: [string, Record<string, unknown>, Parameters<typeof claimOf>[1], string[]][] = [
      ["a catalogue's row without timeout, domain and payee", { accepts: [bare] }, catalogue, []],
      [
        "the same in the seller's own terms",
        { accepts: [bare] },
        own,
        ["bad_timeout", "bad_pay_to", "missing_domain", "no_payable_entry"],
      ],
      ["the same in a document that names no version", { accepts: [bare], x402Version: undefined }, own, []],
      [
        "a catalogue's row that states nonsense",
        { accepts: [{ ...bare, amount: "0.01", payTo: "0xYourWallet", maxTimeoutSeconds: 1_781_582_577 }] },
        catalogue,
        ["bad_amount", "bad_timeout", "bad_pay_to", "no_payable_entry"],
      ],
      [
        "a catalogue's own words for network and asset",
        { accepts: [{ ...bare, network: "base", asset: "USDC" }] },
        catalogue,
        [],
      ],
      [
        "a catalogue's placeholder for an asset",
        { accepts: [{ ...bare, asset: "0x..." }] },
        catalogue,
        ["bad_asset", "no_payable_entry"],
      ],
      ["a flat row, whoever wrote it", { accepts: undefined, ...flat }, own, []],
    ];
    test.each(rows)("%s", (_name, change, source, want) => {
      const said = claim({ resource: `${SELLER}/sum`, ...change }, source)?.body.defects;
      expect(said?.map(({ defect }) => defect)).toEqual(want);
    });
  });

  test("places the record cannot take", () => {
    for (const resource of ["monopoly://x", "", "   ", "solana-transfer://a.../b", "http://[", "x".repeat(5_000)]) {
      expect(claim({ resource, url: undefined, accepts: [] }, { name: "c" })).toBeNull();
    }
    expect(claim({ resource: "/relative" }, { name: "c" })).toBeNull();
  });

  test("templates, tools and verbs of our own choosing make capabilities of their own", () => {
    expect(claim({ resource: "/t/:id" })?.body.normalised_url).toBe(`${SELLER}/t/:id`);
    expect(claim({ toolName: "add" })?.cap).toBe(capId("GET", `${SELLER}/sum`, "add"));
    expect(claim({ method: undefined })?.cap).toBe(capId("GET", `${SELLER}/sum`));
    const body = {
      method: undefined,
      example: undefined,
      extensions: { bazaar: { info: { input: { type: "http", body: { a: 1 } } } } },
    };
    expect(claim(body)?.cap).toBe(capId("POST", `${SELLER}/sum`));
  });

  test("whatever an item is, it is refused or the record takes it", () => {
    const json = fc.jsonValue({ maxDepth: 3 });
    const any = fc.dictionary(fc.constantFrom(...Object.keys(item()), "metadata", "extensions", "url", "input"), json);
    fc.assert(
      fc.property(any, (value) => {
        const read = claimOf({ resource: "/a", ...value }, own, rail);
        if ("claim" in read) expect(() => BODIES.listing.parse(read.claim.body)).not.toThrow();
        else expect(read.rejected.says).toContain(REASONS[read.rejected.reason]);
      }),
      { numRuns: 60 },
    );
  });
});

describe("a catalogue", () => {
  const rows = Array.from({ length: 250 }, (_, i) => ({ resource: `https://s${i}.example/a`, accepts: [] }));
  const page = (from: unknown[], asked: Asked, total?: number) => {
    const { searchParams } = new URL(asked.url);
    const [offset, limit] = [Number(searchParams.get("offset")), Number(searchParams.get("limit"))];
    const pagination = { offset, limit, ...(total === undefined ? {} : { total }) };
    return answer(200, { items: from.slice(offset, offset + limit), pagination });
  };
  const read = (handler: Parameters<FakeEgress["sellers"]["set"]>[1]) => {
    const egress = new FakeEgress();
    egress.sellers.set("https://c.example", handler);
    const result = new Catalogues(egress, processReader).read("https://c.example/x402/", new FixedClock(DAY));
    return { egress, result };
  };

  test("every page, twice, and rows once", async () => {
    const { egress, result } = read((asked) => page([...rows, rows[0], { url: "https://s9.example/a" }], asked, 252));
    expect(await result).toMatchObject({ stable: true, rows: { length: 250 } });
    expect(egress.asked[0]?.url).toBe("https://c.example/x402/discovery/resources?limit=100&offset=0");
    expect(egress.asked).toHaveLength(6);
  });

  test("of several rows of one resource the one that was updated last; rows without a place are not lost", async () => {
    const of = (lastUpdated: unknown, name: string) => ({ resource: "https://s.example/a", lastUpdated, name });
    const moving = [of("2026-03-01T00:00:00Z", "new"), of(1_700_000_000, "old"), { type: "http" }, 7];
    const { result } = read((asked) => page(moving, asked, 4));
    expect((await result).rows).toMatchObject([{ name: "new" }, { type: "http" }, 7]);
  });

  test("rows that paging loses come with the next pass", async () => {
    let calls = 0;
    const { result } = read((asked) => page(calls++ < 3 ? rows.filter((_, i) => i % 7) : rows, asked));
    expect((await result).rows).toHaveLength(250);
  });

  test.each<[string, Parameters<typeof read>[0], RegExp]>([
    ["no JSON", () => answer(200, "<html>"), /no list of items/],
    ["status 500", () => answer(500, {}), /status 500/],
    ["silence", timeout, /no answer/],
    ["the same page for ever", () => answer(200, { items: rows.slice(0, 100) }), /more than 1000 pages/],
  ])("%s: what was read stays, with the reason", async (_name, handler, says) => {
    const read_ = await read(handler).result;
    expect(read_.stable).toBe(false);
    expect(read_.says).toMatch(says);
  });
});

describe("intake", () => {
  test("unchanged content is not written again; changed content is, and so is content that changes back", async () => {
    const { intake: take, egress, clock, log } = intake();
    let price = "10000";
    egress.sellers.set(SELLER, () => answer(200, wellKnown(item({ accepts: [entry({ amount: price })] }))));
    const appended: number[] = [];
    for (const next of ["10000", "10000", "20000", "20000", "10000", "10000"]) {
      price = next;
      appended.push((await take.readSeller(SELLER, clock)).appended);
    }
    expect(appended).toEqual([1, 0, 1, 0, 1, 0]);
    expect(new Set(log.records.map((one) => one.eventId)).size).toBe(3);
  });

  test("after a restart the standing listing is known by its id", async () => {
    const { intake: first, egress, clock, log, recorder, metrics } = intake();
    egress.sellers.set(SELLER, () => answer(200, wellKnown(item())));
    await first.readSeller(SELLER, clock);
    const second = new Intake({ egress, rail, recorder, metrics });
    second.rememberListed(await new LogMemory(log).listed());
    expect((await second.readSeller(SELLER, clock)).appended).toBe(0);
  });

  test("a log that refuses: nothing is taken as written, the next read writes it", async () => {
    const { intake: take, egress, clock, log } = intake();
    egress.sellers.set(SELLER, () => answer(200, wellKnown(item())));
    log.refuse = () => ({ keep: 0 });
    await expect(take.readSeller(SELLER, clock)).rejects.toThrow(/did not confirm 1 record/);
    log.refuse = null;
    expect((await take.readSeller(SELLER, clock)).appended).toBe(1);
  });

  test("a domain cannot flood the record", async () => {
    const { intake: take, egress, clock, log } = intake();
    const items = Array.from({ length: 300 }, (_, i) => item({ resource: `/a/${i}` }));
    egress.sellers.set(SELLER, () => answer(200, wellKnown(...items)));
    const report = await take.readSeller(SELLER, clock);
    expect(report.appended).toBe(MAX_PER_DOMAIN);
    expect(log.records).toHaveLength(MAX_PER_DOMAIN);
    // Those that are in already may still change what they say.
    egress.sellers.set(SELLER, () => answer(200, wellKnown(item({ resource: "/a/0", description: "new" }))));
    expect((await take.readSeller(SELLER, clock)).appended).toBe(1);
  });

  test("endpoints that left make room for those that replace them, in the read that names these", async () => {
    const { intake: take, egress, clock } = intake();
    const serve = (version: string) => {
      const items = Array.from({ length: 150 }, (_, i) => item({ resource: `/${version}/${i}` }));
      egress.sellers.set(SELLER, () => answer(200, wellKnown(...items)));
    };
    serve("v1");
    expect(await take.readSeller(SELLER, clock)).toMatchObject({ appended: 150, refused: 0 });
    serve("v2");
    expect(await take.readSeller(SELLER, clock)).toMatchObject({ appended: 150, refused: 0, delisted: 150 });
  });

  test("what is remembered as listed replaces what was before", async () => {
    const { intake: take, egress, clock } = intake();
    const items = Array.from({ length: 150 }, (_, i) => item({ resource: `/a/${i}` }));
    egress.sellers.set(SELLER, () => answer(200, wellKnown(...items)));
    await take.readSeller(SELLER, clock);
    take.rememberListed([]);
    const others = Array.from({ length: 150 }, (_, i) => ({
      resource: `${SELLER}/b/${i}`,
      method: "GET",
      accepts: [],
    }));
    const source = { name: "https://catalogue.example" };
    const report = await take.recordDocument({ items: others, rejected: [], whole: false }, source, clock);
    expect(report).toMatchObject({ appended: 150, refused: 0 });
  });

  test("a method that a probe found is no new endpoint of its domain", async () => {
    const { intake: take, egress, clock, log } = intake();
    const urls = Array.from({ length: 150 }, (_, i) => `${SELLER}/post/${i}`);
    egress.sellers.set(SELLER, () => answer(200, { version: 1, resources: urls }));
    await take.readSeller(SELLER, clock);
    const quoted = terms402();
    if (quoted.outcome !== "answered") throw new Error("not answered");
    for (const url of urls) {
      take.rememberMethod(url, "POST");
      await take.recordFrom402(capId("POST", url), url, "POST", readTerms(quoted, rail), clock);
    }
    expect(log.bodies("listing").filter(({ source }) => source === "402")).toHaveLength(150);
    expect(await take.readSeller(SELLER, clock)).toMatchObject({ appended: 150, refused: 0, delisted: 0 });
    // The rows have moved from GET to POST, so there is room for 50 endpoints more.
    const more = Array.from({ length: 60 }, (_, i) => `${SELLER}/more/${i}`);
    egress.sellers.set(SELLER, () => answer(200, { version: 1, resources: [...urls, ...more] }));
    expect(await take.readSeller(SELLER, clock)).toMatchObject({ appended: 50, refused: 10, delisted: 0 });
  });

  test("a host that answers everything with a 402 cannot either, nor over a restart", async () => {
    const { intake: first, clock, log, egress, recorder, metrics } = intake();
    const quoted = terms402();
    if (quoted.outcome !== "answered") throw new Error("not answered");
    const read = readTerms(quoted, rail);
    const noteAll = async (take: Intake, from: number) => {
      for (let i = from; i < from + 150; i++) {
        const url = `https://h${i % 3}.seller.example/any/${i}`;
        await take.recordFrom402(capId("GET", url), url, "GET", read, clock);
      }
    };
    await noteAll(first, 0);
    const second = new Intake({ egress, rail, recorder, metrics });
    second.rememberListed(await new LogMemory(log).listed());
    await noteAll(second, 150);
    expect(log.bodies("listing")).toHaveLength(MAX_PER_DOMAIN);
  });

  test("names under one hosting platform cannot either, each within a domain's bound", async () => {
    const { intake: take, clock, log } = intake();
    const quoted = terms402();
    if (quoted.outcome !== "answered") throw new Error("not answered");
    const read = readTerms(quoted, rail);
    for (let i = 0; i < PLATFORM_CAP_FACTOR * MAX_PER_DOMAIN + 50; i++) {
      const url = `https://h${i}.vercel.app/any`;
      await take.recordFrom402(capId("GET", url), url, "GET", read, clock);
    }
    expect(log.bodies("listing")).toHaveLength(PLATFORM_CAP_FACTOR * MAX_PER_DOMAIN);
    const url = "https://own.example/any";
    await take.recordFrom402(capId("GET", url), url, "GET", read, clock);
    expect(log.bodies("listing")).toHaveLength(PLATFORM_CAP_FACTOR * MAX_PER_DOMAIN + 1);
  });

  test("sellers without a listing, or with nonsense there, are no error", async () => {
    const { intake: take, egress, clock } = intake();
    for (const result of [answer(404, {}), answer(200, "<html>"), timeout(), answer(200, 7), answer(402, {})]) {
      egress.sellers.set(SELLER, () => result);
      expect(await take.readSeller(SELLER, clock)).toMatchObject({ appended: 0 });
    }
  });

  test("a 402 makes its endpoint known once, whatever it quotes", async () => {
    const { intake: take, clock, log } = intake();
    const extensions = { bazaar: { info: { input: { type: "http", method: "GET", queryParams: { a: "1" } } } } };
    for (const amount of ["1", "2", "2"]) {
      const quoted = terms402([entry({ amount })], { extensions });
      if (quoted.outcome !== "answered") throw new Error("not answered");
      await take.recordFrom402(capId("GET", `${SELLER}/sum`), `${SELLER}/sum`, "GET", readTerms(quoted, rail), clock);
    }
    expect(log.bodies("listing")).toMatchObject([
      { source: "402", seller_controlled: false, claims: { offers: [], example: { query: { a: "1" } } } },
    ]);
  });
});
