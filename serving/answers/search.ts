import { setImmediate as turn } from "node:timers/promises";
import { runYielding, sortSteps } from "../../infra/concurrency.ts";
import type { ListingFacts } from "../../pipelines/published/endpoint.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import type { Band } from "../../pipelines/record/vocabulary.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { Observed } from "../schemas/check.ts";
import type { SearchAnswer, SearchQuery } from "../schemas/search.ts";
import { type Entry, headlineOf, isListed, type ListedEntry } from "../tables/entry.ts";
import type { LayeredMap } from "../tables/layered-map.ts";
import type { View } from "../tables/view.ts";
import { knownFacts, observedOf } from "./facts.ts";

/** Order of the results, for a client that is about to pay: unrated endpoints come after every letter except F. */
export const RANKED: readonly Band[] = ["A", "B", "C", "D", "UNRATED", "F"];

/** The bands that a search from this band up includes. */
const taken = (band: Band | undefined): ReadonlySet<Band> =>
  new Set(
    band === undefined
      ? RANKED
      : band === "UNRATED"
        ? [band]
        : (["A", "B", "C", "D", "F"] as const).filter((one) => one <= band),
  );

/** Endpoints that are read before other work has its turn. */
const AT_ONCE = 2_000;
/** Endpoints in one step of the sorting. */
const LOOKED_A_STEP = 64;
/** Steps of the sorting before other work has its turn. */
const STEPS_AT_ONCE = 32;

/** The sorted endpoints, by the published entries they were made from: a new volatile table sorts nothing again. */
const orders = new WeakMap<LayeredMap<Entry>, Promise<readonly ListedEntry[]>>();

const bandOf = (entry: Entry): Band => headlineOf(entry)?.band ?? "UNRATED";

interface Ranked {
  entry: ListedEntry;
  rank: number;
  composite: number;
}

const byRank = (a: Ranked, b: Ranked): number =>
  a.rank - b.rank ||
  b.composite - a.composite ||
  (a.entry.listing.url < b.entry.listing.url ? -1 : a.entry.listing.url > b.entry.listing.url ? 1 : 0);

/**
 * All listed endpoints by letter, then composite, then url. Sorted once, in steps between which other work has its
 * turn.
 */
function rankedIn({ entries }: View): Promise<readonly ListedEntry[]> {
  const known = orders.get(entries);
  if (known) return known;
  const made = runYielding(ranking(entries), STEPS_AT_ONCE);
  orders.set(entries, made);
  return made;
}

function* ranking(entries: LayeredMap<Entry>): Generator<undefined, readonly ListedEntry[]> {
  const rows: Ranked[] = [];
  for (const entry of entries.values()) {
    if (!isListed(entry)) continue;
    rows.push({ entry, rank: RANKED.indexOf(bandOf(entry)), composite: headlineOf(entry)?.composite ?? 0 });
    if (rows.length % LOOKED_A_STEP === 0) yield;
  }
  return (yield* sortSteps(rows, byRank, LOOKED_A_STEP)).map(({ entry }) => entry);
}

function holds({ url, description, class: kind, tool }: ListingFacts, words: readonly string[]): boolean {
  if (words.length === 0) return true;
  const text = `${url}\n${description ?? ""}\n${kind}\n${tool ?? ""}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

/** Is the newest price known in dollars, and at most `max` micro-units? Whether it is dollars is no matter of the asset's name. */
const affordable = (row: VolatileRow | undefined, asked: Observed["advertised"], max: bigint | null): boolean =>
  max === null || (asked !== null && row?.unit === "USD" && parseMoney(asked.amount) <= max);

/**
 * Listed endpoints of a class (if one is given) that contain every word. Their order is: letters A, B, C, D, then
 * UNRATED, then F; within a letter the higher composite first; then by url. Each endpoint is read once at most, and
 * other work has its turn meanwhile.
 */
export async function* holding(
  view: View,
  { q, class: kind }: Pick<SearchQuery, "q" | "class">,
): AsyncGenerator<ListedEntry> {
  const words = q.toLowerCase().split(/\s+/, 20).filter(Boolean);
  let looked = 0;
  for (const entry of await rankedIn(view)) {
    if (++looked % AT_ONCE === 0) await turn();
    if ((kind === undefined || entry.listing.class === kind) && holds(entry.listing, words)) yield entry;
  }
}

/**
 * Endpoints of {@link holding} with at least a given letter and at most a given price. Filtered by, and shown with,
 * what a check would answer: a letter whose records were withdrawn does not count.
 */
export async function searchIn(
  view: View,
  { q, class: kind, band, max_price, limit }: SearchQuery,
  now: Date,
): Promise<SearchAnswer> {
  const bands = taken(band);
  const max = max_price === undefined ? null : parseMoney(max_price);
  const capabilities: SearchAnswer["capabilities"] = [];
  for await (const entry of holding(view, { q, class: kind })) {
    const row = view.row(entry.cap);
    const { advertised } = observedOf(row, now);
    if (!affordable(row, advertised, max)) continue;
    const facts = knownFacts(view, { url: entry.cap }, { cap: entry.cap, matched: "exact" }, now);
    if (!bands.has(facts.band)) continue;
    if (capabilities.length === limit) return { capabilities, more: true };
    capabilities.push({
      capability_id: entry.cap,
      ...{ url: entry.listing.url, method: entry.listing.method, tool: entry.listing.tool },
      ...{ class: entry.listing.class, description: entry.listing.description },
      band: facts.band,
      tier: facts.tier,
      composite: facts.composite,
      why: facts.why,
      sample_count: facts.sampleCount ?? null,
      defects: facts.defects,
      advertised,
    });
  }
  return { capabilities, more: false };
}
