import { describe, expect, test } from "vitest";
import { KNOWN_CATALOGUES, toCatalogue } from "../../../../infra/catalogues.ts";
import { FixedClock } from "../../../../infra/clock.ts";
import { createMetrics } from "../../../../infra/telemetry.ts";
import { Catalogues } from "../../../../pipelines/1-observe/listings/catalogues.ts";
import { Intake } from "../../../../pipelines/1-observe/listings/intake.ts";
import { processReader } from "../../../../pipelines/1-observe/reading/reader.ts";
import { Recorder } from "../../../../pipelines/1-observe/recorder.ts";
import { type Asked, answer, DAY, FakeEgress, FakeLog, FakeRail, type Handler, transport } from "../world.ts";

/** A clock that stands still, and whose waits can be read. */
class WaitingClock extends FixedClock {
  readonly waits: number[] = [];
  /** ms that `monotonic` is ahead by what was waited for. */
  ahead = 0;
  override monotonic(): number {
    return this.ahead;
  }
  override async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.waits.push(ms);
    this.ahead += ms;
    await super.sleep(ms, signal);
  }
}

const ROWS = Array.from({ length: 350 }, (_, i) => ({ resource: `https://s${i}.example/a`, accepts: [] }));
const C = "https://c.example";

const offsetOf = (asked: Asked): number => Number(new URL(asked.url).searchParams.get("offset"));
const page = (asked: Asked) => {
  const offset = offsetOf(asked);
  return answer(200, { items: ROWS.slice(offset, offset + 100), pagination: { total: ROWS.length } });
};

function world(handler: Handler) {
  const egress = new FakeEgress();
  egress.sellers.set(C, handler);
  const clock = new WaitingClock(`${DAY}T00:00:00.000Z`);
  return { egress, clock, catalogues: new Catalogues(egress, processReader) };
}

describe("how a catalogue is read", () => {
  test("with a pause between two pages, and the key of that catalogue on each", async () => {
    const { egress, clock, catalogues } = world(page);
    const headers = { "x-api-key": "a-secret-key" };
    const read = await catalogues.read({ ...toCatalogue(C), headers, pause_ms: 700 }, clock);
    expect(read).toMatchObject({ stable: true, rows: { length: 350 } });
    // Two passes of four pages, and seven pauses between them.
    expect(egress.asked.map(offsetOf)).toEqual([0, 100, 200, 300, 0, 100, 200, 300]);
    expect(clock.waits).toEqual(Array(7).fill(700));
    expect(egress.asked.every((asked) => asked.headers?.["x-api-key"] === "a-secret-key")).toBe(true);
    expect(new Set(egress.asked.map(({ pool }) => pool))).toEqual(new Set([undefined]));
  });

  test.each<[string, Record<string, string>, number]>([
    ["in seconds", { "retry-after": "30" }, 30_000],
    ["as a date", { "retry-after": new Date(Date.parse(`${DAY}T00:00:40Z`)).toUTCString() }, 40_000],
    ["without a word, for a second", {}, 1_000],
  ])("a busy catalogue is asked again after the time that it named, %s", async (_name, headers, ms) => {
    const { egress, clock, catalogues } = world((asked, n) =>
      n === 0 && offsetOf(asked) === 0 ? answer(429, {}, headers) : page(asked),
    );
    expect(await catalogues.read({ ...toCatalogue(C), pause_ms: 0 }, clock)).toMatchObject({ stable: true });
    expect(clock.waits).toEqual([ms]);
    expect(egress.asked.map(offsetOf).slice(0, 3)).toEqual([0, 0, 100]);
  });

  test("one that asks for an hour is left alone for an hour, and then read on from where it was", async () => {
    let busy = true;
    const { egress, clock, catalogues } = world((asked) =>
      busy && offsetOf(asked) === 200 ? answer(503, {}, { "retry-after": "3600" }) : page(asked),
    );
    const first = await catalogues.read(C, clock);
    expect(first).toMatchObject({ stable: false, rows: { length: 200 }, says: "page at 200: status 503" });
    expect(egress.asked).toHaveLength(3);
    busy = false;
    clock.ahead += 3_500_000;
    expect(catalogues.mayContinue(C, clock)).toBe(false);
    expect(await catalogues.read(C, clock)).toMatchObject({ stable: false, rows: [] });
    expect(egress.asked).toHaveLength(3);
    clock.ahead += 101_000;
    expect(catalogues.mayContinue(C, clock)).toBe(true);
    expect(await catalogues.read(C, clock)).toMatchObject({ stable: true, rows: { length: 350 } });
    expect(egress.asked.slice(3).map(offsetOf)).toEqual([200, 300, 0, 100, 200, 300]);
    expect(catalogues.mayContinue(C, clock)).toBe(false);
  });

  test("one that breaks off is tried again, then come back to: sooner at first, then less and less often", async () => {
    let down = true;
    const { egress, clock, catalogues } = world((asked) =>
      down && offsetOf(asked) === 100 ? transport("connection reset") : page(asked),
    );
    const dueAfter: number[] = [];
    for (let n = 0; n < 3; n++) {
      expect(await catalogues.read(C, clock)).toMatchObject({ says: "page at 100: transport: connection reset" });
      const began = clock.ahead;
      while (!catalogues.mayContinue(C, clock)) clock.ahead += 60_000;
      dueAfter.push((clock.ahead - began) / 60_000);
    }
    expect(dueAfter).toEqual([5, 10, 20]);
    // The first page once, then four tries of the second in each read.
    expect(egress.asked.map(offsetOf)).toEqual([0, ...Array(12).fill(100)]);
    down = false;
    expect(await catalogues.read(C, clock)).toMatchObject({ stable: true, rows: { length: 350 } });
  });

  test("one that is slow for ever is read in turns", async () => {
    const { egress, clock, catalogues } = world((asked) => {
      clock.ahead += 20_000;
      const offset = offsetOf(asked);
      return answer(200, { items: [{ resource: `https://t.example/${offset}` }], pagination: { total: 100 } });
    });
    expect(await catalogues.read(C, clock)).toMatchObject({ stable: false, says: "it goes on in its next turn" });
    const first = egress.asked.length;
    expect(first).toBeLessThan(50);
    clock.ahead += 300_000;
    expect(catalogues.mayContinue(C, clock)).toBe(true);
    await catalogues.read(C, clock);
    expect(offsetOf(egress.asked[first]!)).toBe(first);
  });

  test("a read that stood for a day begins anew", async () => {
    let down = true;
    const { egress, clock, catalogues } = world((asked) =>
      down && offsetOf(asked) === 100 ? answer(500, {}) : page(asked),
    );
    await catalogues.read(C, clock);
    down = false;
    clock.ahead += 90_000_000;
    const before = egress.asked.length;
    await catalogues.read(C, clock);
    expect(offsetOf(egress.asked[before]!)).toBe(0);
  });

  test("when we are stopped it ends at once, and keeps what it has", async () => {
    const stop = new AbortController();
    const { egress, clock, catalogues } = world((asked) => {
      if (offsetOf(asked) === 100) stop.abort(new Error("stopped"));
      return page(asked);
    });
    expect(await catalogues.read(C, clock, stop.signal)).toMatchObject({ says: "page at 100: we were stopped" });
    expect(egress.asked).toHaveLength(2);
  });
});

describe("what a catalogue is", () => {
  function intake() {
    const log = new FakeLog();
    const egress = new FakeEgress();
    const metrics = createMetrics();
    const recorder = new Recorder({ log, producer: "test", metrics });
    return {
      ...{ log, egress },
      take: new Intake({ egress, rail: new FakeRail(), recorder, metrics }),
      clock: new FixedClock(`${DAY}T00:00:00.000Z`),
    };
  }

  test("a directory of services: called at serviceUrl, prices in words, free endpoints left out, no limit per domain", async () => {
    const { log, egress, take, clock } = intake();
    const endpoint = (n: number, payment: unknown) => ({ method: "POST", path: `/v1/${n}`, payment });
    const paid = { intent: "charge", method: "tempo", currency: "0x20c0", decimals: 6, amount: "5000" };
    const endpoints = [...Array.from({ length: 250 }, (_, n) => endpoint(n, paid)), endpoint(250, null)];
    const service = { id: "a", url: "https://api.a.example", serviceUrl: "https://a.mpp.example/", endpoints };
    egress.sellers.set("https://mpp.dev", () => answer(200, { version: 1, services: [service] }));
    const report = await take.readCatalogue(KNOWN_CATALOGUES["mpp-directory"]!, clock);
    expect(report).toMatchObject({ items: 250, appended: 250, refused: 0 });
    const first = log.bodies("listing")[0]!;
    expect(first).toMatchObject({ source: "https://mpp.dev/api/services", seller_controlled: false });
    expect(first.claims).toMatchObject({ url: "https://a.mpp.example/v1/0", method: "POST", offers: [] });
    expect(JSON.stringify(first.claims)).toContain('"said":"5000"');
    expect(egress.asked[0]?.pool).toBe("intake");
  });

  /** Rows as Bazaar catalogues send them (x402#1134, x402scan#947): what tells them apart stands in the discovery extension. */
  const rowsOfOneUrl = () => {
    const row = (resource: string, input: object, amount: string) => ({
      ...{ resource, x402Version: 2, lastUpdated: "2026-09-01T00:00:00Z" },
      accepts: [{ scheme: "exact", network: "eip155:8453", amount, maxTimeoutSeconds: 60 }],
      extensions: { bazaar: { info: { input, output: { type: "json", example: {} } } } },
    });
    const http = (method: string, amount: string) => row("https://s.example/credits", { type: "http", method }, amount);
    const tool = (name: string, amount: string) =>
      row("https://s.example/mcp", { type: "mcp", tool: name, transport: "streamable-http" }, amount);
    const ofVersion1 = {
      resource: "https://s.example/v1",
      x402Version: 1,
      accepts: [
        { scheme: "exact", network: "base", outputSchema: { input: { type: "http", method: "POST", bodyFields: {} } } },
      ],
    };
    const getOfVersion1 = {
      ...ofVersion1,
      accepts: [{ scheme: "exact", network: "base", outputSchema: { input: { type: "http", method: "GET" } } }],
    };
    return [
      ...[http("GET", "1000"), http("POST", "9000"), tool("search", "10"), tool("fetch", "20"), tool("sum", "30")],
      ...[ofVersion1, getOfVersion1],
    ];
  };

  test.each(["in pages of three", "whole, as a list"])(
    "rows of one url are listings by method and tool, and stay so at a later read: %s",
    async (how) => {
      const { log, egress, take, clock } = intake();
      const items = rowsOfOneUrl();
      egress.sellers.set(C, (asked) => {
        if (how.startsWith("whole")) return answer(200, { items });
        return answer(200, {
          items: items.slice(offsetOf(asked), offsetOf(asked) + 3),
          pagination: { total: items.length },
        });
      });
      const named = how.startsWith("whole") ? { ...toCatalogue(`${C}/list.json`), kind: "document" as const } : C;
      expect(await take.readCatalogue(named, clock)).toMatchObject({ items: 7, appended: 7, refused: 0 });
      const listed = log.bodies("listing").map(({ claims }) => `${claims.method ?? ""} ${claims.url} ${claims.tool}`);
      expect(new Set(listed).size).toBe(7);
      items.reverse();
      expect(await take.readCatalogue(named, clock)).toMatchObject({ items: 7, appended: 0, same: 7, delisted: 0 });
    },
  );

  test("a key in an address is no part of what is recorded", async () => {
    const { log, egress, take, clock } = intake();
    egress.sellers.set(C, page);
    await take.readCatalogue(`${C}/discovery/resources?key=secret`, clock);
    expect(egress.asked[0]?.url).toContain("key=secret");
    expect(new Set(log.bodies("listing").map(({ source }) => source))).toEqual(new Set([`${C}/discovery/resources`]));
  });

  test("a seller's document at its own origin is the seller's own word; on another path it is a third party's", async () => {
    const { log, egress, take, clock } = intake();
    egress.sellers.set("https://s.example", () => answer(200, { resources: ["POST /a"] }));
    const of = (path: string) => ({ ...toCatalogue(`https://s.example${path}`), kind: "document" as const });
    await take.readCatalogue(of("/.well-known/x402"), clock);
    await take.readCatalogue(of("/uploads/list.json"), clock);
    expect(log.bodies("listing").map((one) => one.seller_controlled)).toEqual([true, false]);
  });
});
