import { get, isObject, type JsonObject, text } from "./json.ts";
import { type Rejected, rejected } from "./listings/reasons.ts";

/** Items of one seller's document that are read; a file past that is a flood. */
export const MAX_ITEMS = 2_000;

const LISTS = [
  "items",
  "resources",
  "endpoints",
  "services",
  "paid_endpoints",
  "payable_endpoints",
  "paidEndpoints",
  "routes",
  "tools",
];
const VERB_AND_PLACE = /^([A-Za-z]{3,10})\s+(\S+)$/;

/** "POST /path", a path, or an absolute url. */
function fromText(line: string): JsonObject {
  const match = VERB_AND_PLACE.exec(line.trim());
  return match ? { method: match[1], url: match[2] } : { url: line.trim() };
}

interface Items {
  items: JsonObject[];
  rejected: Rejected[];
  /** Was there a list at all, be it empty? */
  listed: boolean;
}

/** A group of endpoints under one base: `{"baseUrl": .., "endpoints": [{"path": ..}]}`. */
function ungrouped(item: JsonObject): JsonObject[] {
  const inner = item.endpoints;
  const own = item.url ?? item.resource ?? item.path ?? item.route ?? item.accepts;
  if (!Array.isArray(inner) || own !== undefined) return [item];
  const base = text(item.baseUrl ?? item.base_url, 2048);
  return inner.flatMap((one) => {
    const endpoint = typeof one === "string" ? fromText(one) : isObject(one) ? one : null;
    if (endpoint === null) return [];
    const place = text(endpoint.url ?? endpoint.path, 4096);
    const joined = base && place?.startsWith("/") ? { url: `${base.replace(/\/+$/, "")}${place}` } : {};
    return [{ ...endpoint, ...joined }];
  });
}

/** A list of texts or objects, or a map from path to object, as items. */
function listOf(value: unknown): Items {
  const bad: Rejected[] = [];
  if (Array.isArray(value)) {
    const items = value.flatMap((item) => {
      if (typeof item === "string") return [fromText(item)];
      if (isObject(item)) return ungrouped(item);
      bad.push(rejected("not_an_item", item));
      return [];
    });
    return { items, rejected: bad, listed: true };
  }
  if (!isObject(value)) return { items: [], rejected: [], listed: false };
  const items = Object.entries(value).flatMap(([name, item]) =>
    isObject(item) && /^(?:[A-Za-z]{3,10}\s+)?(?:\/|https?:)/.test(name) ? [{ ...fromText(name), ...item }] : [],
  );
  return { items, rejected: [], listed: items.length > 0 };
}

/**
 * Items of a seller's `/.well-known/x402`, which has no common form in the wild: a list of objects, of "METHOD /path"
 * or of urls, under one of several names or at the top, a map by path, or one single item. Empty for everything else.
 * The document's `x402Version` stands in for an item's own.
 */
export function itemsOf(document: unknown): Items {
  const version = get(document, "x402Version");
  const withVersion = (read: Items): Items => ({
    ...read,
    items: read.items.map((item) => (version === undefined ? item : { x402Version: version, ...item })),
  });
  if (Array.isArray(document)) return withVersion(listOf(document));
  let listed = false;
  for (const name of LISTS) {
    const read = listOf(get(document, name));
    if (read.items.length > 0) return withVersion(read);
    listed ||= read.listed;
  }
  const place =
    isObject(document) &&
    (document.resource ?? document.url ?? document.path ?? get(document.accepts, "0", "resource"));
  if (isObject(document) && document.accepts !== undefined && place) {
    return withVersion({ items: [document], rejected: [], listed: true });
  }
  const map = listOf(document);
  return withVersion({ ...map, listed: listed || map.listed });
}

const BASES = ["baseUrl", "base_url", "base", "apiBase", "api_base", "server", "origin", "endpoint", "url"];

/** What a document's relative addresses are relative to, where it says so: an http address of its own. */
export function baseOf(document: unknown): string | undefined {
  for (const name of BASES) {
    const base = text(get(document, name), 2048);
    if (base && /^https?:\/\/[^/]/.test(base)) return base;
  }
  return undefined;
}
