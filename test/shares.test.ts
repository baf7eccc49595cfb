import { readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { DEFAULT_LIMITS } from "../infra/config.ts";
import { egressLimits, VIA_AT_ONCE } from "../pipelines/1-observe/queue.ts";
import { SalePlaces } from "../serving/buy/places.ts";

/** Every resource that strangers share is made of infra/shares.ts and stands here; one that is not fails these tests. */
const ROOT = resolve(import.meta.dirname, "..");
const SOURCES = ["infra", "pipelines", "serving", "commands"]
  .flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name.endsWith(".ts"))
      .map((entry) => join(entry.parentPath, entry.name)),
  )
  .map((file) => ({ file: relative(ROOT, file), text: readFileSync(file, "utf8") }))
  .filter(({ file }) => file !== "infra/shares.ts");

/** What each match says, with the file that it stands in. */
const found = (pattern: RegExp): string[] =>
  SOURCES.flatMap(({ file, text }) => [...text.matchAll(pattern)].map((match) => `${file}: ${match[1]}`)).sort();

test("places, and fair queues: each under a name with its size", () => {
  const made = /new (?:Places|FairQueue)(?:<[^>]+>)?\(\{ (name[^}]*?) \}/g;
  expect(found(made)).toEqual([
    "infra/egress/create.ts: name, size, waiting",
    'pipelines/6-notify/notifier.ts: name: "notices", size: NOTICES_AT_ONCE',
    'pipelines/6-notify/watcher-table.ts: name: "watchers", size: this.size',
    'serving/answers/listing-check.ts: name: "looks", size: this.#limits.looks_at_once, most: { domain: 1',
    'serving/buy/places.ts: name: "bought calls", size: VIA_AT_ONCE',
    'serving/buy/places.ts: name: "own work", size: OWN_FETCHES_AT_ONCE',
    'serving/buy/places.ts: name: "prices", size: PRICES_AT_ONCE, kept: RESERVED_PRICE_PLACES',
    'serving/http/sockets.ts: name: "sockets", size: limits.sockets, most: { client: limits.sockets_per_client',
    'serving/http/streams.ts: name: "streams", size: limits.streams, most',
    'serving/tables/ask-queue.ts: name: "asks", size: limits.maxAsks',
    'serving/tables/ask-queue.ts: name: "re-tests", size: Math.ceil(RETEST_SHARE * limits.maxAsks)',
    'serving/work/extract/extractor.ts: name: "documents", size, waiting',
  ]);
  // None is made in another form, under a name that the list does not show.
  expect(found(/(new (?:Places|FairQueue)\b)/g)).toHaveLength(found(made).length);
});

test("the pools of egress: what is held before has as many places there, so that nobody waits twice", () => {
  expect(egressLimits(16, DEFAULT_LIMITS.looks_at_once)).toEqual({
    maxConcurrent: 64,
    pools: { asks: 8, intake: 8, paid: 80, challenge: 8, notice: 16, work: 16, via: 32, prices: 16, looks: 6 },
  });
  expect(egressLimits(128, 6)).toMatchObject({ maxConcurrent: 256, pools: { paid: 192 } });
});

test("rates: each by a client, a platform or a payer", () => {
  expect(found(/new Limiter\(\s*\{ name: ([^,]+),/g)).toEqual([
    'serving/answers/asks.ts: "asks"',
    'serving/answers/asks.ts: "asks-total"',
    'serving/answers/listing-check.ts: "looks at one domain"',
    'serving/answers/watchers.ts: "challenges"',
    'serving/answers/watchers.ts: "watchers"',
    'serving/buy/pay-on-delivery.ts: "all fallbacks"',
    'serving/buy/pay-on-delivery.ts: "fallbacks"',
    'serving/buy/pay-on-delivery.ts: "prices of one platform"',
    'serving/http/streams.ts: "bytes"',
  ]);
  expect(found(/(new Limiter\()(?!\s*\{ name:)/g)).toEqual([
    "serving/answers/listing-check.ts: new Limiter(",
    "serving/context.ts: new Limiter(",
  ]);
});

test("semaphores, which wait without a bound, are for work of our own that something else bounds", () => {
  expect(found(/new (Semaphore)\(/g)).toEqual([
    "infra/lake/duckdb.ts: Semaphore",
    "infra/lake/duckdb.ts: Semaphore",
    // Stages are those of loads: two of a pass, which runs alone.
    "infra/lake/duckdb.ts: Semaphore",
    // Look-ups are own work: whoever waits holds one of its places.
    "pipelines/2-ingest/ingest.ts: Semaphore",
    "pipelines/register/register.ts: Semaphore",
  ]);
});

test("nobody counts places by hand", () => {
  const named = /class (\w*(?:Gate|Slots?|Semaphore|Mutex|Permits?|Turns|Limiter|Places|Throttle|Bulkhead)\w*)/g;
  expect(found(named)).toEqual([
    "infra/concurrency.ts: Semaphore",
    "serving/buy/places.ts: SalePlaces",
    "serving/http/limits.ts: Limiter",
  ]);
  // Counters of what is under way that go up and down: those of the plan's own hosts, of records and of the lake.
  const counters = /\b(this\.#(?:running|inUse|active|busy|taken|held|slots|underway|pending|atOnce)(?:\+\+|--))/g;
  expect(found(counters)).toEqual([
    "pipelines/1-observe/queue.ts: this.#pending++",
    "pipelines/1-observe/queue.ts: this.#pending--",
  ]);
});

test("caps that protect money or a shared resource count names under a hosting platform together", () => {
  const byDomain = found(/(?<!import .*)(registrableDomain)\(/g).map((one) => one.split(":")[0]!);
  const without = [...new Set(byDomain)]
    .filter((file) => !/platformOf\(/.test(SOURCES.find((one) => one.file === file)!.text))
    // The caps of orders have a test of their own.
    .filter((file) => !file.startsWith("pipelines/orders/"));
  // Flags of related endpoints are a published rule, and the names that a monitor watches are its operator's: no caps.
  expect(without).toEqual([
    ...["pipelines/audit/recompute.ts", "pipelines/monitor/names.ts"],
    ...["serving/answers/related.ts", "serving/tables/thefts.ts"],
  ]);
});

afterEach(() => void vi.useRealTimers());

test("a call whose log never answers gives its place back at last; a further leg has the whole time again", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const places = new SalePlaces();
  const half = VIA_AT_ONCE / 2;
  const held = await Promise.all(Array.from({ length: half }, () => places.forCall({ client: "a", domain: "x" })));
  await expect(places.forCall({ client: "a" }, 1)).rejects.toThrow(`${half} bought calls`);
  vi.advanceTimersByTime(149_000);
  expect(held[0]!.move({ client: "a", domain: "y" })).toBe(true);
  vi.advanceTimersByTime(2_000);
  for (let n = 1; n < half; n++) await places.forCall({ client: "a" }, 1);
  await expect(places.forCall({ client: "a" }, 1)).rejects.toThrow(`${half} bought calls`);
  vi.advanceTimersByTime(149_000);
  await places.forCall({ client: "a" }, 1);
});
