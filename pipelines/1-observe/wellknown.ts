import { get, isObject, type JsonObject } from "./json.ts";

/** Items of one document that are read; a file past that is a flood. */
export const MAX_ITEMS = 2_000;

const LISTS = ["items", "resources", "endpoints", "services", "paid_endpoints", "routes", "tools"];
const VERB_AND_PLACE = /^([A-Za-z]{3,10})\s+(\S+)$/;

/** "POST /path", a path, or an absolute url. */
function fromText(line: string): JsonObject {
  const match = VERB_AND_PLACE.exec(line.trim());
  return match ? { method: match[1], url: match[2] } : { url: line.trim() };
}

/** A list of texts or objects, or a map from path to object, as items. */
function listOf(value: unknown): JsonObject[] {
  if (Array.isArray(value)) {
    return value.flatMap((item) => (typeof item === "string" ? [fromText(item)] : isObject(item) ? [item] : []));
  }
  if (!isObject(value)) return [];
  return Object.entries(value).flatMap(([name, item]) =>
    isObject(item) && /^(?:[A-Za-z]{3,10}\s+)?(?:\/|https?:)/.test(name) ? [{ ...fromText(name), ...item }] : [],
  );
}

/**
 * Items of a seller's `/.well-known/x402`, which has no common form in the wild: a list of objects, of "METHOD /path"
 * or of urls, under one of several names or at the top, a map by path, or one single item. Empty for everything else.
 * The document's `x402Version` stands in for an item's own.
 */
export function itemsOf(document: unknown): JsonObject[] {
  const version = get(document, "x402Version");
  const withVersion = (items: JsonObject[]): JsonObject[] =>
    items.slice(0, MAX_ITEMS).map((item) => (version === undefined ? item : { x402Version: version, ...item }));
  if (Array.isArray(document)) return withVersion(listOf(document));
  for (const name of LISTS) {
    const items = listOf(get(document, name));
    if (items.length > 0) return withVersion(items);
  }
  const single = isObject(document) && document.accepts !== undefined && (document.resource ?? document.url);
  return single ? withVersion([document]) : withVersion(listOf(document));
}
