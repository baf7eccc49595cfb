import { setImmediate as turn } from "node:timers/promises";
import { runYielding, sortInSteps } from "../../infra/concurrency.ts";
import type { TextMatches } from "../../infra/text-index.ts";
import { formatMoney, parseMoney } from "../../pipelines/record/money.ts";
import type { Band } from "../../pipelines/record/vocabulary.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { Buy, Observed } from "../schemas/check.ts";
import type { FoundCapability, SearchAnswer, SearchQuery, SortOrder } from "../schemas/search.ts";
import { type Entry, headlineOf, isListed, type ListedEntry } from "../tables/entry.ts";
import type { LayeredMap } from "../tables/layered-map.ts";
import type { View } from "../tables/view.ts";
import { knownFacts, observedOf } from "./facts.ts";
import { networksOf, type Question, readQuestion } from "./question.ts";
import { inputOf } from "./reproduce.ts";

/** The letters in the order of results. Unrated endpoints come after every letter except F. */
export const RANKED: readonly Band[] = ["A", "B", "C", "D", "UNRATED", "F"];

/** Returns the letters of the endpoints that a search includes when its query sets this lowest letter. */
const includedBands = (band: Band | undefined): ReadonlySet<Band> =>
  new Set(
    band === undefined
      ? RANKED
      : band === "UNRATED"
        ? [band]
        : (["A", "B", "C", "D", "F"] as const).filter((one) => one <= band),
  );

/** Number of endpoints that are read before the event loop has its turn. */
const ENTRIES_PER_TURN = 2_000;
/** Number of cards that are unpacked before the event loop has its turn. */
const CARDS_PER_TURN = 20;
/** Number of endpoints in one step of sorting. */
const ENTRIES_PER_STEP = 64;
/** Number of sorting steps before the event loop has its turn. */
const STEPS_PER_TURN = 32;

/** All listed endpoints, sorted by letter, then composite (the number that the letter summarises), then url. */
interface Ranking {
  entries: readonly ListedEntry[];
  /** Index in `entries` of the first endpoint with an F. Every later one has an F too. */
  firstF: number;
}

/**
 * Rankings by the map of entries that was sorted, each with the endpoints whose letter was not shown then. A new view
 * that differs from the old one only in other volatile rows (the facts that change faster than cards) has the same map
 * and the same such endpoints, so nothing is sorted again.
 */
const rankings = new WeakMap<LayeredMap<Entry>, { doubtful: View["doubtfulComposites"]; ranking: Promise<Ranking> }>();

interface RankedEntry {
  entry: ListedEntry;
  /** Index of the endpoint's letter in {@link RANKED}. */
  rank: number;
  composite: number;
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const byRank = (a: RankedEntry, b: RankedEntry): number =>
  a.rank - b.rank || b.composite - a.composite || byText(a.entry.listing.url, b.entry.listing.url);

/** Returns the ranking of a view's entries. It is sorted once, in steps between which the event loop has its turn. */
function rankingOf(view: View): Promise<Ranking> {
  const { entries, doubtfulComposites: doubtful } = view;
  const cached = rankings.get(entries);
  if (cached && view.hasSameDoubtfulComposites(cached.doubtful)) return cached.ranking;
  const ranking = runYielding(makeRanking(view), STEPS_PER_TURN);
  rankings.set(entries, { doubtful, ranking });
  return ranking;
}

function* makeRanking(view: View): Generator<undefined, Ranking> {
  const rows: RankedEntry[] = [];
  for (const entry of view.entries.values()) {
    if (!isListed(entry)) continue;
    rows.push({ entry, rank: RANKED.indexOf(view.bandOf(entry)), composite: view.compositeOf(entry) });
    if (rows.length % ENTRIES_PER_STEP === 0) yield;
  }
  const sorted = yield* sortInSteps(rows, byRank, ENTRIES_PER_STEP);
  const firstF = sorted.findIndex(({ rank }) => RANKED[rank] === "F");
  return { entries: sorted.map(({ entry }) => entry), firstF: firstF === -1 ? sorted.length : firstF };
}

/** An endpoint that was found. */
export interface Hit {
  entry: ListedEntry;
  /** Words of the query that the endpoint's text does not contain. */
  lackedWords: readonly string[];
  /**
   * How well the endpoint's text matches. 0: it contains every word and matches closely. 1: it contains every word. 2
   * and above: it lacks words; the lower the value, the less they weigh.
   */
  fit: number;
}

/** The words of a query and the endpoints found, best first. */
interface FoundEndpoints {
  words: readonly string[];
  hits: Iterable<Hit>;
}

/** A text matches closely when its score is at least this share of the best score. */
const CLOSE_SHARE = 0.5;
/**
 * An endpoint that lacks words is listed before endpoints with an F when the words that it holds have at least this
 * share of the weight of all words of the query.
 */
const NEAR_SHARE = 0.5;
/**
 * Largest number of values of `fit`: 0 and 1 for endpoints that contain every word, and one more for each combination
 * of missing words. Endpoints with a further combination are left out.
 */
const MAX_FITS = 64;

/** For each row of the text index its fit, and for each fit the words that its rows lack. */
interface Fits {
  byRow: Uint8Array;
  lackedWords: readonly (readonly string[])[];
  /** Fits below this one lack words of little weight only (see {@link NEAR_SHARE}). */
  nearLimit: number;
}
/** Value in {@link Fits.byRow} of a row that holds no word of the query, or lacks words in a combination left out. */
const NO_FIT = 255;

function fitsOf({ words, weights, rows, held, scores }: TextMatches, size: number): Fits {
  const allMask = 2 ** words.length - 1;
  let bestScore = 0;
  const masks = new Set<number>();
  for (let i = 0; i < rows.length; i++) {
    if (held[i] !== allMask) masks.add(held[i]!);
    else if (scores[i]! > bestScore) bestScore = scores[i]!;
  }
  const weightOf = (mask: number): number => weights.reduce((sum, one, n) => sum + (mask & (1 << n) ? one : 0), 0);
  const partialMasks = [...masks].sort((a, b) => weightOf(b) - weightOf(a) || a - b).slice(0, MAX_FITS - 2);
  const fitOf = new Map(partialMasks.map((mask, i) => [mask, 2 + i]));
  const fitByRow = new Uint8Array(size).fill(NO_FIT);
  for (let i = 0; i < rows.length; i++) {
    fitByRow[rows[i]!] =
      held[i] !== allMask ? (fitOf.get(held[i]!) ?? NO_FIT) : scores[i]! >= CLOSE_SHARE * bestScore ? 0 : 1;
  }
  const totalWeight = weightOf(allMask);
  return {
    byRow: fitByRow,
    lackedWords: [[], [], ...partialMasks.map((mask) => words.filter((_, n) => (mask & (1 << n)) === 0))],
    nearLimit: 2 + partialMasks.filter((mask) => weightOf(mask) >= NEAR_SHARE * totalWeight).length,
  };
}

/**
 * For each ranking, the row of the text index of each of its entries, in the ranking's order; -1 for an endpoint that
 * is not in the index.
 */
const rowsInOrder = new WeakMap<Ranking, Int32Array>();

async function rowsOf(view: View, ranking: Ranking): Promise<Int32Array> {
  const cached = rowsInOrder.get(ranking);
  if (cached) return cached;
  const rows = new Int32Array(ranking.entries.length);
  for (let place = 0; place < rows.length; place++) {
    if (place % ENTRIES_PER_TURN === ENTRIES_PER_TURN - 1) await turn();
    rows[place] = view.wordIndex.rowOf(ranking.entries[place]!.cap) ?? -1;
  }
  rowsInOrder.set(ranking, rows);
  return rows;
}

/** Number of rows that are looked up before the event loop has its turn. They take less than a millisecond. */
const ROWS_PER_TURN = 50_000;

/**
 * Groups positions in the ranking by fit, each group in ascending order: first for the endpoints without an F, then
 * for those with one.
 */
async function groupByFit(view: View, ranking: Ranking, { byRow }: Fits): Promise<[number[][], number[][]]> {
  const emptyPlacesByFit = (): number[][] => Array.from({ length: MAX_FITS }, () => []);
  const places: [number[][], number[][]] = [emptyPlacesByFit(), emptyPlacesByFit()];
  const rows = await rowsOf(view, ranking);
  for (let place = 0; place < rows.length; place++) {
    if (place % ROWS_PER_TURN === ROWS_PER_TURN - 1) await turn();
    const fit = byRow[rows[place]!] ?? NO_FIT;
    if (fit !== NO_FIT) places[place < ranking.firstF ? 0 : 1][fit]!.push(place);
  }
  return places;
}

/**
 * Yields the positions of all fits less than `below`, the best fit first.
 * @param places for each fit, its positions in the ranking
 */
function* placesBestFirst(
  places: readonly number[][],
  below: number,
): Generator<readonly [place: number, fit: number]> {
  for (let fit = 0; fit < below; fit++) for (const place of places[fit] ?? []) yield [place, fit];
}

/**
 * Finds the listed endpoints whose text contains the words, best first: those that match closely (at least half of
 * the best score), then all others that contain every word, each group ordered by letter, composite and url.
 * Endpoints with an F come last. When only endpoints with an F contain every word, endpoints without an F that lack
 * only words of little weight come before them. When no endpoint contains every word, all that contain some are
 * returned, ordered by fit.
 * @param byClass whether the search words of an endpoint's class (CLASS_WORDS in tables/words.ts) count as part of
 * its text
 */
export async function findEndpoints(
  view: View,
  question: Pick<Question, "words">,
  byClass = true,
): Promise<FoundEndpoints> {
  const ranking = await rankingOf(view);
  const { entries } = ranking;
  if (question.words.length === 0) {
    return { words: [], hits: entries.map((entry) => ({ entry, lackedWords: [], fit: 0 })) };
  }
  const matched = await view.wordIndex.match(view, question.words, byClass);
  const fits = fitsOf(matched, view.wordIndex.rowCount);
  const [good, failed] = await groupByFit(view, ranking, fits);
  const hasWholeMatch = (places: readonly number[][]): boolean => places[0]!.length + places[1]!.length > 0;
  // Which endpoints without an F are listed: if one of them contains every word, those that contain every word (fits 0
  // and 1). If only an endpoint with an F does, also those that lack words of little weight. Otherwise all.
  const goodFitLimit = hasWholeMatch(good) ? 2 : hasWholeMatch(failed) ? fits.nearLimit : MAX_FITS;
  const failedFitLimit = hasWholeMatch(good) || hasWholeMatch(failed) ? 2 : MAX_FITS;
  function* yieldHits(): Generator<Hit> {
    for (const [place, fit] of placesBestFirst(good, goodFitLimit))
      yield { entry: entries[place]!, lackedWords: fits.lackedWords[fit]!, fit };
    for (const [place, fit] of placesBestFirst(failed, failedFitLimit))
      yield { entry: entries[place]!, lackedWords: fits.lackedWords[fit]!, fit };
  }
  return { words: matched.words, hits: yieldHits() };
}

/** What the results of a search show besides the contents of the view. */
export interface SearchContext {
  now: Date;
  /** Returns the terms of a purchase through the service, or why the endpoint cannot be bought. */
  termsOf: (view: View, cap: string) => Buy | { says: string };
}

/**
 * The conditions of a search. A price, network or order that a parameter sets takes precedence over one in the
 * query's words.
 */
interface SearchFilter {
  /** Class of the endpoints; undefined: any. */
  kind: string | undefined;
  /** Letters of the endpoints that are included. */
  bands: ReadonlySet<Band>;
  /** Highest price, micro-dollars. */
  maxPrice: bigint | null;
  /** Name or CAIP-2 id of the network that was asked for. */
  network: string | null;
  /** CAIP-2 ids of the networks that `network` means. */
  networks: ReadonlySet<string> | null;
  order: SortOrder;
}

function filterOf(
  { class: kind, band, max_price, network, order }: Partial<SearchQuery>,
  question: Question,
): SearchFilter {
  const maxPrice = max_price ?? question.maxPrice;
  const networkName = network ?? question.network;
  return {
    ...{ kind, bands: includedBands(band), maxPrice: maxPrice === null ? null : parseMoney(maxPrice) },
    ...{ network: networkName, networks: networkName === null ? null : networksOf(networkName) },
    order: order ?? question.order ?? "best",
  };
}

/**
 * Reports whether the newest price is known in dollars and at most `maxPrice`; true when `maxPrice` is null. The
 * asset's contract decides whether a price is in dollars, not the asset's name.
 */
const isAffordable = (row: VolatileRow | undefined, maxPrice: bigint | null): boolean =>
  maxPrice === null || (row?.unit === "USD" && row.price !== null && parseMoney(row.price) <= maxPrice);

/** Reports whether the endpoint takes payments on one of these networks; true when `networks` is null. */
const acceptsNetwork = (row: VolatileRow | undefined, networks: SearchFilter["networks"]): boolean =>
  networks === null || row?.networks.some((id) => networks.has(id)) === true;

/** Reports whether an endpoint matches the filter, judged without unpacking its card. */
function passesFilter(view: View, { entry }: Hit, filter: SearchFilter): boolean {
  const row = view.row(entry.cap);
  if (filter.kind !== undefined && entry.listing.class !== filter.kind) return false;
  if (!isAffordable(row, filter.maxPrice) || !acceptsNetwork(row, filter.networks)) return false;
  return filter.bands.has(view.bandOf(entry));
}

/**
 * Sorts hits by the requested order. Endpoints with an F stay behind all others; those without a price, or without a
 * latency, come last in their group.
 */
async function sortHits(view: View, hits: Iterable<Hit>, filter: SearchFilter): Promise<Iterable<Hit>> {
  if (filter.order === "best") return hits;
  const keyOf = ({ entry }: Hit): number => {
    if (filter.order === "letter") return RANKED.indexOf(view.bandOf(entry));
    if (filter.order === "latency") return headlineOf(entry)?.latencyMs ?? Number.POSITIVE_INFINITY;
    const row = view.row(entry.cap);
    return row?.unit === "USD" && row.price !== null ? Number(parseMoney(row.price)) : Number.POSITIVE_INFINITY;
  };
  const keyed: { hit: Hit; group: number; key: number }[] = [];
  let lookedCount = 0;
  for (const hit of hits) {
    if (++lookedCount % ENTRIES_PER_TURN === 0) await turn();
    // The group keeps endpoints that lack words behind those that hold all, and those with an F last.
    if (passesFilter(view, hit, filter)) keyed.push({ hit, group: groupOf(view, hit), key: keyOf(hit) });
  }
  const compareKeyed = (a: (typeof keyed)[number], b: (typeof keyed)[number]): number =>
    a.group - b.group || (a.key === b.key ? 0 : a.key - b.key);
  return (await runYielding(sortInSteps(keyed, compareKeyed, ENTRIES_PER_STEP), STEPS_PER_TURN)).map(({ hit }) => hit);
}

/**
 * Returns the ids of all listed endpoints that a search for this text alone finds, whatever their letter. Empty for a
 * text without search words, price and network.
 */
export async function capsFor(view: View, q: string): Promise<ReadonlySet<string>> {
  const question = readQuestion(q);
  const caps = new Set<string>();
  if (question.words.length === 0 && question.maxPrice === null && question.network === null) return caps;
  const filter = filterOf({}, question);
  let lookedCount = 0;
  for (const hit of (await findEndpoints(view, question)).hits) {
    if (++lookedCount % ENTRIES_PER_TURN === 0) await turn();
    if (passesFilter(view, hit, filter)) caps.add(hit.entry.cap);
  }
  return caps;
}

/** Returns the group of a hit in an order by price, letter or latency: hits of a lower group come first. */
const groupOf = (view: View, { entry, fit }: Hit): number =>
  (view.bandOf(entry) === "F" ? MAX_FITS : 0) + Math.max(1, fit);

/**
 * Searches with {@link findEndpoints}, limited to a lowest letter, a highest price, and networks. Each result has the
 * letter that GET /v1/check would show, and is filtered by it: UNRATED when many records behind the card were
 * withdrawn.
 */
export async function searchIn(view: View, query: SearchQuery, context: SearchContext): Promise<SearchAnswer> {
  const question = readQuestion(query.q);
  const filter = filterOf(query, question);
  const { words, hits } = await findEndpoints(view, question);
  const results: FoundCapability[] = [];
  let hasMore = false;
  let lookedCount = 0;
  let unpackedCount = 0;
  for (const hit of await sortHits(view, hits, filter)) {
    if (++lookedCount % ENTRIES_PER_TURN === 0) await turn();
    if (!passesFilter(view, hit, filter)) continue;
    if (++unpackedCount % CARDS_PER_TURN === 0) await turn();
    hasMore = results.length === query.limit;
    if (hasMore) break;
    results.push(toResult(view, hit, context));
  }
  return {
    capabilities: results,
    more: hasMore,
    read_as: {
      words: [...words],
      order: filter.order,
      max_price: filter.maxPrice === null ? null : formatMoney(filter.maxPrice),
      network: filter.network,
    },
    says: describeGaps(results, words),
  };
}

function describeGaps(found: readonly FoundCapability[], words: readonly string[]): string | null {
  if (found.length === 0) return "Nothing in the record fits what you ask for.";
  if (found[0]!.lacks.length === 0) {
    return found[0]!.band === "F" ? "Only endpoints that failed (F) hold all of these words." : null;
  }
  const wordsPhrase = words.length > 1 ? "all of these words" : "this word";
  return `Nothing that did not fail holds ${wordsPhrase}: these are the nearest, each with the words that it lacks.`;
}

function toResult(view: View, { entry, lackedWords }: Hit, { now, termsOf }: SearchContext): FoundCapability {
  const { cap, listing } = entry;
  const row = view.row(cap);
  const facts = knownFacts(view, { url: cap }, { cap, matched: "exact" }, now);
  const { advertised }: Observed = observedOf(row, now);
  const terms = termsOf(view, cap);
  return {
    ...{ capability_id: cap, url: listing.url, method: listing.method, tool: listing.tool },
    ...{ class: listing.class, description: listing.description, lacks: [...lackedWords] },
    ...{ band: facts.band, tier: facts.tier, composite: facts.composite, why: facts.why },
    ...{ sample_count: facts.sampleCount ?? null, flags: facts.flags ?? [], defects: facts.defects },
    ...{ price: row?.price ?? null, asset: row?.asset ?? null, unit: row?.unit ?? null },
    ...{ networks: [...(row?.networks ?? [])], advertised, latency_p95_ms: headlineOf(entry)?.latencyMs ?? null },
    input: inputOf(listing.method, listing.url, row?.request),
    ...("says" in terms ? { buy: null, not_bought: terms.says } : { buy: terms, not_bought: null }),
  };
}
