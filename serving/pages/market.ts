import { BANDS, type Band } from "../../pipelines/record/vocabulary.ts";
import { capsFor } from "../answers/search.ts";
import { type CardEntry, type Entry, headlineOf, isListed, type ListedEntry } from "../tables/entry.ts";
import type { LayeredMap } from "../tables/layered-map.ts";
import type { View } from "../tables/view.ts";

/** Largest number of endpoints on one page of the market. */
export const ROWS_PER_PAGE = 100;

/** Orders of the market, with the words of the form. */
export const SORTS = {
  best: "best letter first",
  worst: "worst letter first",
  progress: "closest to a letter first",
  host: "by host",
} as const;
export type Sort = keyof typeof SORTS;

/** Letters (grades), best first. Unrated endpoints come last: unknown is neither good nor bad. */
export const ALL_BANDS: readonly Band[] = [...BANDS, "UNRATED"];

export interface MarketQuery {
  /** Number of the page, from 1. */
  page: number;
  /** Part of an address or a description, or words to search for; "" for all. */
  q: string;
  letter: Band | null;
  /** Class of the endpoints (kind by the questions that they answer, see `record/classes.ts`); null for all. */
  kind: string | null;
  sort: Sort;
}

export interface MarketPage {
  /** The endpoints of the page. */
  entries: readonly ListedEntry[];
  /** Number of all endpoints that match. */
  total: number;
  /** Number of pages that all matching endpoints fill, at least 1. */
  pageCount: number;
}

/** A listed endpoint with the values by which it is sorted and found. */
interface Row {
  entry: ListedEntry;
  card: CardEntry | null;
  band: Band;
  /** Position of `band` in {@link ALL_BANDS}. */
  rank: number;
  /** The composite that is shown; 0 for none. */
  composite: number;
  host: string;
  /** Address and description in lower case; made at the first search. */
  searchText: string | null;
}

interface Market {
  rows: readonly Row[];
  /** Number of endpoints with each letter. */
  countsByLetter: ReadonlyMap<Band, number>;
  /** Number of endpoints of each class, the largest first. */
  countsByClass: ReadonlyMap<string, number>;
  /** The endpoints whose letter was not shown any more when the rows were made ({@link View.doubtfulComposites}). */
  doubtful: View["doubtfulComposites"];
  /** `rows` sorted in each order that was requested so far. */
  sorted: Map<Sort, readonly Row[]>;
}

/**
 * Returns the host to sort by. It is cut out of the text, since parsing a hundred thousand urls takes a fifth of a
 * second.
 */
const hostText = (url: string): string => /^[a-z]+:\/\/([^/?#]*)/i.exec(url)?.[1] ?? "";

/**
 * Cache of markets by the endpoint entries that they were made from. A new view with newer live figures has the same
 * entries, so a hundred thousand rows are not sorted again for it, unless corrections took letters or composites away.
 */
const markets = new WeakMap<LayeredMap<Entry>, Market>();

function marketOf(view: View): Market {
  const cached = markets.get(view.entries);
  const { doubtfulComposites: doubtful } = view;
  if (cached && view.hasSameDoubtfulComposites(cached.doubtful)) return cached;
  const rows: Row[] = [];
  const countsByLetter = new Map<Band, number>(ALL_BANDS.map((band) => [band, 0]));
  const countsByClass = new Map<string, number>();
  for (const entry of view.entries.values()) {
    if (!isListed(entry)) continue;
    const band = view.bandOf(entry);
    countsByLetter.set(band, countsByLetter.get(band)! + 1);
    const { class: kind, url } = entry.listing;
    countsByClass.set(kind, (countsByClass.get(kind) ?? 0) + 1);
    const [rank, composite] = [ALL_BANDS.indexOf(band), view.compositeOf(entry)];
    rows.push({ entry, card: headlineOf(entry), band, rank, composite, host: hostText(url), searchText: null });
  }
  const largestFirst = [...countsByClass].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
  const market = { rows, countsByLetter, countsByClass: new Map(largestFirst), doubtful, sorted: new Map() };
  markets.set(view.entries, market);
  return market;
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const byUrl = (a: Row, b: Row): number => byText(a.entry.listing.url, b.entry.listing.url);
/** Returns the position of a row's letter when the worst comes first; UNRATED comes last in this order too. */
const worstRank = ({ rank }: Row): number => (rank === BANDS.length ? BANDS.length : BANDS.length - 1 - rank);

/** Returns the number of paid calls that an endpoint still needs for a letter. Endpoints that need none sort last. */
const callsToLetter = ({ card }: Row): number => 30 - (card?.progress ?? 0) || 31;

const ORDERS: Record<Sort, (a: Row, b: Row) => number> = {
  best: (a, b) => a.rank - b.rank || b.composite - a.composite || byUrl(a, b),
  worst: (a, b) => worstRank(a) - worstRank(b) || a.composite - b.composite || byUrl(a, b),
  progress: (a, b) => callsToLetter(a) - callsToLetter(b) || byUrl(a, b),
  host: (a, b) => byText(a.host, b.host) || byUrl(a, b),
};

function sortedBy(market: Market, sort: Sort): readonly Row[] {
  const cached = market.sorted.get(sort);
  if (cached) return cached;
  const sorted = [...market.rows].sort(ORDERS[sort]);
  market.sorted.set(sort, sorted);
  return sorted;
}

function containsText(row: Row, q: string): boolean {
  row.searchText ??= `${row.entry.listing.url}\n${row.entry.listing.description ?? ""}`.toLowerCase();
  return row.searchText.includes(q);
}

/** Returns the number of listed endpoints with each letter. */
export const lettersOf = (view: View): ReadonlyMap<Band, number> => marketOf(view).countsByLetter;

/** Returns the number of listed endpoints of each class, the largest class first. */
export const classesOf = (view: View): ReadonlyMap<string, number> => marketOf(view).countsByClass;

/**
 * Returns for each class, in the order of {@link classesOf}, the best endpoints with a letter, at most `limit`, and the
 * number of all its endpoints with a letter.
 */
export function leadersOf(view: View, limit: number): Map<string, { leaders: ListedEntry[]; lettered: number }> {
  const market = marketOf(view);
  const found = new Map<string, { leaders: ListedEntry[]; lettered: number }>();
  for (const kind of market.countsByClass.keys()) found.set(kind, { leaders: [], lettered: 0 });
  for (const { entry, band } of sortedBy(market, "best")) {
    if (band === "UNRATED") break;
    const ofClass = found.get(entry.listing.class)!;
    ofClass.lettered++;
    if (ofClass.leaders.length < limit) ofClass.leaders.push(entry);
  }
  return found;
}

/**
 * Returns the rows whose address or description contains a text, since people type part of a host. If no row contains
 * it, returns the rows that a search for its words finds.
 */
async function rowsFor(view: View, rows: readonly Row[], q: string): Promise<readonly Row[]> {
  const lowerCaseText = q.toLowerCase();
  const literalMatches = rows.filter((row) => containsText(row, lowerCaseText));
  if (literalMatches.length > 0) return literalMatches;
  const foundCaps = await capsFor(view, q);
  return rows.filter(({ entry }) => foundCaps.has(entry.cap));
}

/**
 * Finds one page of the endpoints that match, in the order that the form asks for. A query with a text examines every
 * endpoint, and a second time if none contains the text literally.
 */
export async function findIn(view: View, { page, q, letter, kind, sort }: MarketQuery): Promise<MarketPage> {
  const sorted = sortedBy(marketOf(view), sort);
  const rows = q === "" ? sorted : await rowsFor(view, sorted, q);
  const found =
    letter === null && kind === null
      ? rows
      : rows.filter(
          (row) => (letter === null || row.band === letter) && (kind === null || row.entry.listing.class === kind),
        );
  const entries = found.slice((page - 1) * ROWS_PER_PAGE, page * ROWS_PER_PAGE).map(({ entry }) => entry);
  return { entries, total: found.length, pageCount: Math.max(1, Math.ceil(found.length / ROWS_PER_PAGE)) };
}
