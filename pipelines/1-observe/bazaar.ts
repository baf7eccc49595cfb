import type { Egress } from "../../infra/egress/egress.ts";
import { urlOf } from "./claims.ts";
import { get, hashOf, isObject, type JsonObject, parseJson } from "./json.ts";
import { MAX_ROWS } from "./listings/tables.ts";

const PAGE = 100;
const MAX_PAGES = 400;
/** Offset paging loses and repeats rows while the catalogue moves: read again until a whole pass brings nothing new. */
const MAX_PASSES = 3;

export interface CatalogueRead {
  /** One row a resource (and tool), in the order first seen; of several the one that was updated last. */
  rows: unknown[];
  /** Did a pass bring nothing new before the limits were reached? */
  stable: boolean;
  says?: string;
}

const pageUrl = (catalogue: string, offset: number): string => {
  const url = new URL(catalogue);
  if (!url.pathname.endsWith("/discovery/resources")) {
    url.pathname = `${url.pathname.replace(/\/$/, "")}/discovery/resources`;
  }
  url.searchParams.set("limit", String(PAGE));
  url.searchParams.set("offset", String(offset));
  return url.href;
};

/** `lastUpdated` as ms: an ISO string or a Unix number, in seconds or ms; null for neither. */
export function updatedAt(row: unknown): number | null {
  const said = get(row, "lastUpdated") ?? get(row, "last_updated");
  if (typeof said === "number" && Number.isFinite(said)) return said < 1e11 ? said * 1000 : said;
  const parsed = typeof said === "string" ? Date.parse(said) : Number.NaN;
  return Number.isNaN(parsed) ? null : parsed;
}

/** Keeps the row of a resource that was updated last; a row that names no place is kept under its content. */
function keep(seen: Map<string, unknown>, row: unknown): void {
  const key = (isObject(row) ? keyOf(row) : null) ?? `? ${hashOf(row)}`;
  const known = seen.get(key);
  if (known === undefined || (updatedAt(row) ?? 0) >= (updatedAt(known) ?? 0)) seen.set(key, row);
}

const keyOf = (row: JsonObject): string | null => {
  const url = urlOf(row);
  if (!url) return null;
  return `${url} ${String(get(row, "method") ?? "")} ${String(get(row, "toolName") ?? get(row, "tool") ?? "")}`;
};

/** One pass over all pages. Ends at an empty or short page, at the stated total, or when a page cannot be read. */
async function pass(egress: Egress, catalogue: string, seen: Map<string, unknown>): Promise<string | null> {
  for (let page = 0, offset = 0; page < MAX_PAGES; page++) {
    const result = await egress.fetch({
      url: pageUrl(catalogue, offset),
      method: "GET",
      headers: { accept: "application/json" },
      profile: "evidence",
    });
    if (result.outcome !== "answered") return `page at ${offset}: ${result.says}`;
    if (result.status !== 200) return `page at ${offset}: status ${result.status}`;
    const parsed = parseJson(result.body);
    const items = get(parsed, "items") ?? get(parsed, "resources") ?? parsed;
    if (!Array.isArray(items)) return `page at ${offset}: no list of items`;
    for (const item of items) keep(seen, item);
    if (seen.size > MAX_ROWS) return `more than ${MAX_ROWS} rows`;
    offset += items.length;
    const total = get(parsed, "pagination", "total");
    // A catalogue may hand out fewer rows a page than asked, so only an empty page or its own total ends the pass.
    if (items.length === 0 || (typeof total === "number" && offset >= total)) return null;
  }
  return `more than ${MAX_PAGES} pages`;
}

/**
 * All rows of a Bazaar catalogue (`GET {catalogue}/discovery/resources`), paged until a pass brings nothing new. Never
 * throws for what the catalogue does: what was read so far comes back with the reason.
 */
export async function readCatalogue(egress: Egress, catalogue: string): Promise<CatalogueRead> {
  const seen = new Map<string, unknown>();
  for (let i = 0; i < MAX_PASSES; i++) {
    const before = seen.size;
    const says = await pass(egress, catalogue, seen);
    if (says !== null) return { rows: [...seen.values()], stable: false, says };
    if (i > 0 && seen.size === before) return { rows: [...seen.values()], stable: true };
  }
  return { rows: [...seen.values()], stable: false, says: `still moving after ${MAX_PASSES} passes` };
}
