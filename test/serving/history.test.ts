import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { writeHistory } from "../../pipelines/4-publish/view.ts";
import { historyKey } from "../../pipelines/published/objects.ts";
import type { HistoryDay } from "../../pipelines/record/history.ts";
import { encodeHistory } from "../../pipelines/record/history-arrow.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import { DAY_MS } from "../../pipelines/record/time.ts";
import { HistoryTables } from "../../serving/tables/history.ts";
import { capOf, cardOf, type EndpointSpec, listingDraft, NOW, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";

const TODAY = Math.floor(Date.parse(NOW) / DAY_MS);
const SPEC: EndpointSpec = { url: "https://seller.example/sum" };
/** An endpoint in another bucket than SPEC's. */
const OTHER: EndpointSpec = Array.from({ length: 20 }, (_, i) => ({ url: `https://other.example/${i}` })).find(
  (spec) => bucketOf(capOf(spec)) !== bucketOf(capOf(SPEC)),
)!;

const day = (spec: EndpointSpec, ago: number, more: Partial<HistoryDay> = {}): HistoryDay => ({
  ...{ capability_id: capOf(spec), day: TODAY - ago, price_low: 10_000n, price_high: 12_500n, price_last: 10_000n },
  ...{ terms_ms_median: 81, terms_ms_p95: 402, paid_ms_median: 950, paid_ms_p95: 2_100 },
  ...{ probes: 4, answered: 3, paid: 2, delivered: 1, ...more },
});

let record: PublicRecord;
beforeEach(async () => {
  record = await PublicRecord.open();
  await record.publish(...[SPEC, OTHER].map((spec) => [listingDraft(spec)]), record.grades([cardOf(SPEC)], "B."));
});
afterEach(() => record.close());

async function withHistory(...specs: [EndpointSpec, HistoryDay[]][]) {
  const files: Record<string, string> = {};
  for (const [spec, rows] of specs) {
    const bucket = bucketOf(capOf(spec));
    files[bucket] = await writeHistory(record.store, record.clock, bucket, encodeHistory(rows));
  }
  await record.live([rowOf(SPEC), rowOf(OTHER)], { history: { files, positions: {} } });
  return files;
}

const text = (html: string): string =>
  html
    .replace(/<style>[\s\S]*?<\/style>/, "")
    .replace(/<[^>]+>/g, " ")
    .replace(/\s+/g, " ");
const pageOf = async (spec: EndpointSpec): Promise<string> => {
  const serving = await servingOver(record);
  const response = await serving.get(`/endpoint/${capOf(spec)}`);
  expect(response.status).toBe(200);
  return response.text();
};

/** Said of the history wherever one is drawn. */
const DRAWN = "unproven, drawn hourly";

describe("an endpoint's page over time", () => {
  test("draws price, calls and both latencies with all figures as a table, and says that they are unproven", async () => {
    await withHistory([SPEC, [day(SPEC, 95), day(SPEC, 2), day(SPEC, 0, { paid_ms_median: null, paid_ms_p95: null })]]);
    const html = await pageOf(SPEC);
    expect([...html.matchAll(/<title id="(\w+)-title">([^<]+)/g)].map((found) => found.slice(1))).toEqual([
      ["picture", "The six measured components with their bounds"],
      ["letter", "Letter"],
      ["price", "Price"],
      ["calls", "Calls a day"],
      ["terms", "Time to the 402"],
      ["paid", "Paid time to the last byte"],
    ]);
    const seen = text(html);
    expect(seen).toContain("402s of these days asked 0.01 to 0.0125; the newest asked 0.01.");
    expect(seen).toContain("4 paid calls, 2 delivered; 8 free handshakes, 6 answered.");
    expect(seen).toContain(
      "2026-11-21 0.01 0.0125 0.01 81 ms 402 ms – – 4 3 2 1 2026-11-19 0.01 0.0125 0.01 81 ms 402 ms 950 ms 2.10 s",
    );
    expect(seen).not.toContain("2026-08-18");
    expect(seen).toContain("unproven, drawn hourly from the newest 2 days that we know of");
    expect(html).not.toMatch(/NaN|undefined|Infinity/);
  });

  test.each<[string, HistoryDay[]]>([
    [
      "nothing but silence",
      [
        day(SPEC, 0, {
          price_low: null,
          price_high: null,
          price_last: null,
          terms_ms_median: null,
          terms_ms_p95: null,
          paid_ms_median: null,
          paid_ms_p95: null,
          answered: 0,
          paid: 0,
          delivered: 0,
        }),
      ],
    ],
    [
      "prices of nothing",
      [day(SPEC, 0, { price_low: 0n, price_high: 0n, price_last: 0n, terms_ms_median: 0, terms_ms_p95: 0 })],
    ],
    ["the dearest price there is", [day(SPEC, 0, { price_high: 10n ** 18n - 1n })]],
    ["a day of tomorrow, by a clock ahead of ours", [day(SPEC, -1)]],
  ])("is a page with %s", async (_what, rows) => {
    await withHistory([SPEC, rows]);
    expect(await pageOf(SPEC)).not.toMatch(/NaN|undefined|Infinity|e\+/);
  });

  test.each<[string, (key: string) => Promise<unknown>]>([
    ["a file that is gone", (key) => record.store.delete(key)],
    [
      "a file that is no Arrow",
      async (key) => {
        await record.store.delete(key);
        await record.store.create(key, Buffer.from("not arrow"));
      },
    ],
  ])("%s costs the charts, not the page", async (_what, harm) => {
    const files = await withHistory([SPEC, [day(SPEC, 1)]]);
    await harm(files[bucketOf(capOf(SPEC))]!);
    expect(text(await pageOf(SPEC))).not.toContain(DRAWN);
  });

  test("a view from before there was a history has none, and an endpoint that no file knows neither", async () => {
    await record.live([rowOf(SPEC), rowOf(OTHER)]);
    expect(text(await pageOf(SPEC))).not.toContain(DRAWN);
    await withHistory([SPEC, [day(SPEC, 1)]]);
    expect(text(await pageOf(OTHER))).not.toContain(DRAWN);
  });

  test("the letter over time: published and raw, newest first", async () => {
    const held = cardOf(SPEC, { band: "C", computed_at: "2026-11-21T09:00:00.000Z" });
    const [leaf] = record.grades([held], "C.");
    await record.publish([{ ...(leaf as object), raw_band: "A" } as never]);
    const seen = text(await pageOf(SPEC));
    expect(seen).toContain("Published now: C. Raw letter of the newest card: A.");
    expect(seen).toContain("Computed Published Raw 2026-11-21 09:00 UTC C A 2026-11-21 06:00 UTC B B");
  });
});

describe("history tables", () => {
  const view = (files: [EndpointSpec, string][]) =>
    ({ volatile: { history: new Map(files.map(([spec, key]) => [bucketOf(capOf(spec)), key])) } }) as never;

  test("one read a file, however many ask at once; the least looked at goes when the bytes are full", async () => {
    const bytes = encodeHistory([day(SPEC, 1)]);
    const reads: string[] = [];
    const store = {
      get: async (key: string) => {
        reads.push(key);
        return { key, bytes, etag: "e", size: bytes.length } as never;
      },
    };
    const bounds = { maxFileBytes: bytes.length, maxBytes: bytes.length * 2 };
    const tables = new HistoryTables(store, record.logger, bounds);
    const keys = [0, 1, 2].map((n) => historyKey(7, n));
    const look = (n: number) => tables.daysOf(view([[SPEC, keys[n]!]]), capOf(SPEC));
    const both = await Promise.all([look(0), look(0)]);
    expect([both[0], reads]).toEqual([both[1], [keys[0]]]);
    expect(look(0)).toEqual([day(SPEC, 1)]);
    await look(1);
    look(0);
    await look(2);
    expect(tables.cachedBytes).toBe(bytes.length * 2);
    await look(1);
    expect(reads).toEqual([keys[0], keys[1], keys[2], keys[1]]);
  });

  test("a file above the bound is not held", async () => {
    const files = await withHistory([SPEC, [day(SPEC, 1)]]);
    const key = files[bucketOf(capOf(SPEC))]!;
    const tables = new HistoryTables(record.store, record.logger, { maxFileBytes: 100, maxBytes: 1_000 });
    expect(await tables.daysOf(view([[SPEC, key]]), capOf(SPEC))).toBeNull();
    expect(tables.cachedBytes).toBe(0);
  });
});
