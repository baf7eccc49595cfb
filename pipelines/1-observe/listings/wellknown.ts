import { parseUrl } from "../../../infra/url.ts";
import { get, isObject, type JsonObject, show, text, withoutSlashes } from "../json.ts";
import { type Rejected, rejectRow, resourceOf } from "./claims.ts";

/** Largest number of items of one seller's document that are read. */
export const MAX_ITEMS = 2_000;

const LIST_MEMBERS = [
  "items",
  "resources",
  "endpoints",
  "services",
  "paid_endpoints",
  "payable_endpoints",
  "paidEndpoints",
  "routes",
  "apis",
  "tools",
];
const METHOD_AND_ADDRESS = /^([A-Za-z]{3,10})\s+(\S+)$/;

/** Makes an item from "POST /path", a path, or an absolute url. */
function parseLine(line: string): JsonObject {
  const match = METHOD_AND_ADDRESS.exec(line.trim());
  return match ? { method: match[1], url: match[2] } : { url: line.trim() };
}

/**
 * Name of the member that holds the original row of a signed item: the rest of the document may add to the item, and
 * the signature does not cover what it adds. The name is a symbol, so that no row can contain such a member.
 */
const WRITTEN_ROW = Symbol("row as it was written");

/** Stores in a signed item its present state as its original row, unless it has one; returns other items unchanged. */
export const withWrittenRow = (item: JsonObject): JsonObject =>
  item.signed === undefined || WRITTEN_ROW in item ? item : { ...item, [WRITTEN_ROW]: item };

/** Returns the original row of an item, which is the item itself if none was stored. */
export const writtenRowOf = (item: JsonObject): JsonObject =>
  (item as { [WRITTEN_ROW]?: JsonObject })[WRITTEN_ROW] ?? item;

/** The items of one list in a seller's document. */
interface ListItems {
  items: JsonObject[];
  rejected: Rejected[];
  /** Does the document have a list, even an empty one? */
  hasList: boolean;
}

/**
 * Expands a group of endpoints with one base into its endpoints; any other item is returned alone. A group is
 * `{"baseUrl": .., "endpoints": [{"path": ..}]}`, or a service of a directory: it is called at `serviceUrl`, and its
 * `url` is the API behind it. An endpoint with `payment: null` is free and left out.
 */
function expandGroup(item: JsonObject): JsonObject[] {
  const groupEndpoints = item.endpoints;
  const serviceUrl = text(item.serviceUrl, 2048);
  const ownAddress = item.url ?? item.resource ?? item.path ?? item.route ?? item.accepts;
  if (!Array.isArray(groupEndpoints) || (ownAddress !== undefined && serviceUrl === undefined)) return [item];
  const baseUrl = serviceUrl ?? text(item.baseUrl ?? item.base_url, 2048);
  const base = baseUrl && withoutSlashes(baseUrl);
  return groupEndpoints.flatMap((one) => {
    const endpoint = typeof one === "string" ? parseLine(one) : isObject(one) ? one : null;
    if (endpoint === null || endpoint.payment === null) return [];
    const address = text(endpoint.url ?? endpoint.path, 4096);
    const fullUrl = base && address?.startsWith("/") ? { url: `${base}${address}` } : {};
    return [{ ...withWrittenRow(endpoint), ...fullUrl }];
  });
}

/** Reads a list of texts or objects, or a map from path to object, as items. */
function readList(value: unknown): ListItems {
  const rejectedRows: Rejected[] = [];
  if (Array.isArray(value)) {
    const items = value.flatMap((item) => {
      if (typeof item === "string") return [parseLine(item)];
      if (isObject(item)) return expandGroup(withWrittenRow(item));
      rejectedRows.push(rejectRow("not_an_item", item));
      return [];
    });
    return { items, rejected: rejectedRows, hasList: true };
  }
  if (!isObject(value)) return { items: [], rejected: [], hasList: false };
  const items = Object.entries(value).flatMap(([name, item]) =>
    isObject(item) && /^(?:[A-Za-z]{3,10}\s+)?(?:\/|https?:)/.test(name)
      ? [withWrittenRow({ ...parseLine(name), ...item })]
      : [],
  );
  return { items, rejected: [], hasList: items.length > 0 };
}

const hasMethod = (item: JsonObject): boolean => (resourceOf(item)?.declared.method ?? null) !== null;
const pathOf = (item: JsonObject): string => {
  const { writtenAddress = "" } = resourceOf(item) ?? {};
  return parseUrl(writtenAddress, "http://relative.invalid")?.pathname ?? writtenAddress;
};

/**
 * Completes the first list of a document. If no item of the first list names a method and items of another list do
 * (`resources` beside `endpoints`), the other list's items replace items of the first with equal paths.
 */
function addListWithMethods(first: ListItems, others: readonly ListItems[]): ListItems {
  const listWithMethods = first.items.some(hasMethod) ? undefined : others.find(({ items }) => items.some(hasMethod));
  if (listWithMethods === undefined) return first;
  const pathsWithMethods = new Set(listWithMethods.items.map(pathOf));
  const otherItems = first.items.filter((item) => !pathsWithMethods.has(pathOf(item)));
  return {
    ...first,
    items: [...listWithMethods.items, ...otherItems],
    rejected: [...first.rejected, ...listWithMethods.rejected],
  };
}

/**
 * Reads the items of a seller's `/.well-known/x402`. Sellers write it in many forms: a list of objects, of "METHOD
 * /path" or of urls, under one of several names or at the top level; a map by path; or a single item. Empty for any
 * other document. An item without an `x402Version` gets that of the document.
 */
export function readItems(document: unknown): ListItems {
  const version = get(document, "x402Version");
  const withVersion = (read: ListItems): ListItems => ({
    ...read,
    items: read.items.map((item) => (version === undefined ? item : { x402Version: version, ...item })),
  });
  if (Array.isArray(document)) return withVersion(readList(document));
  const lists = LIST_MEMBERS.map((name) => readList(get(document, name)));
  const [first, ...others] = lists.filter((read) => read.items.length > 0);
  if (first) return withVersion(addListWithMethods(first, others));
  const hasAnyList = lists.some((read) => read.hasList);
  const address =
    isObject(document) &&
    (document.resource ?? document.url ?? document.path ?? get(document.accepts, "0", "resource"));
  if (isObject(document) && document.accepts !== undefined && address) {
    return withVersion({ items: [withWrittenRow(document)], rejected: [], hasList: true });
  }
  const map = readList(document);
  return withVersion({ ...map, hasList: hasAnyList || map.hasList });
}

const BASE_MEMBERS = ["baseUrl", "base_url", "base", "apiBase", "api_base", "server", "origin", "endpoint", "url"];

/** Finds the base of a document's relative addresses, if the document names one as an http address. */
export function findBase(document: unknown): string | undefined {
  for (const name of BASE_MEMBERS) {
    const base = text(get(document, name), 2048);
    if (base && /^https?:\/\/[^/]/.test(base)) return base;
  }
  return undefined;
}

/** Largest number of endpoints of one agent card that are read. */
const MAX_CARD_ITEMS = 500;

/** Is this an agent card (A2A), or one of the documents that sellers put in its place? */
export const isAgentCard = (document: unknown): document is JsonObject =>
  isObject(document) &&
  typeof (document.name ?? document.display_name ?? document.name_for_model) === "string" &&
  (Array.isArray(document.skills) ||
    document.protocolVersion !== undefined ||
    /a2a/i.test(String(document.schema_version ?? "")) ||
    (isObject(document.capabilities) && document.resources === undefined && document.endpoints === undefined));

const asList = (value: unknown): unknown[] => (Array.isArray(value) ? value : value === undefined ? [] : [value]);

/** Matches words and numbers that mean a price of zero. */
export const ZERO_PRICE = /^(?:free|none|false|\$?0+(?:\.0+)?)$/i;
const PRICE_MEMBERS = ["price", "pricing", "cost", "payment", "accepts"];

/**
 * Is this part of an agent card declared free (`free`, a price of 0, no authentication)? Then it is no paid endpoint.
 */
function isFree(part: unknown): boolean {
  const price = PRICE_MEMBERS.map((name) => get(part, name)).find((value) => value !== undefined);
  const amount = isObject(price) ? (get(price, "amount") ?? get(price, "type") ?? get(price, "mode")) : price;
  const tags = get(part, "tags");
  return (
    get(part, "free") === true ||
    ZERO_PRICE.test(String(amount ?? "")) ||
    (price === undefined &&
      (authenticationSchemes(part).some((one) => /^none$/i.test(one)) ||
        (Array.isArray(tags) && tags.includes("free"))))
  );
}

/**
 * Reads the authentication schemes of a card or a part of it, from `schemes` and `type` of `authentication` or `auth`.
 */
function authenticationSchemes(part: unknown): string[] {
  const places = [get(part, "authentication"), get(part, "auth")];
  const schemes = places.flatMap((place) => [...asList(get(place, "schemes")), ...asList(get(place, "type"))]);
  return schemes.filter((one) => typeof one === "string").slice(0, 64);
}

/** Reads the endpoints of a skill, a tool or a capability, under `endpoint` or `endpoints`: objects, paths or urls. */
function readEndpoints(part: unknown): JsonObject[] {
  if (isFree(part)) return [];
  const description = text(get(part, "description"), 2000);
  const endpoints = [...asList(get(part, "endpoint")), ...asList(get(part, "endpoints"))];
  const ownUrl = get(part, "url") ?? get(part, "path");
  if (endpoints.length === 0 && typeof ownUrl === "string") endpoints.push({ url: ownUrl });
  return endpoints.flatMap((one): JsonObject[] => {
    const item = typeof one === "string" ? { url: one } : isObject(one) ? one : null;
    if (item === null || isFree(item)) return [];
    const method = item.method ?? get(part, "method");
    return [{ ...(description ? { description } : {}), ...(method === undefined ? {} : { method }), ...item }];
  });
}

/** Does the card name x402 or mpp in a place meant for it (extensions, payments, security, tags)? */
function isPaid(card: JsonObject): boolean {
  const members = [card.capabilities, card.payments, card.payment, card.securitySchemes, card.tags, card.skills];
  const places = [...members, authenticationSchemes(card)];
  return places.some((place) => place !== undefined && /x402|\bmpp\b/i.test(show(place)));
}

/**
 * Reads the paid endpoints of an agent card: those that its skills, tools and capabilities name, and every interface
 * that speaks x402; if there are none, the agent itself at its address (JSON-RPC over POST), which A2A 1.0 has in an
 * interface. For a card that is not marked as paid, only endpoints with their own terms are listed. Parts that are free
 * are left out.
 */
export function readAgentCard(card: JsonObject): JsonObject[] {
  const capabilities = isObject(card.capabilities) ? Object.values(card.capabilities).filter(isObject) : [];
  const parts = [...asList(card.skills), ...asList(card.tools), ...capabilities];
  const namedItems = parts.flatMap(readEndpoints);
  // A card that is itself free lists only endpoints that have their own terms.
  if (!isPaid(card) || isFree(card))
    return namedItems.filter((item) => item.accepts !== undefined).slice(0, MAX_CARD_ITEMS);
  const interfaces = [...asList(card.supportedInterfaces), ...asList(card.additionalInterfaces)];
  const interfacesOf = (binding: string): { url: string; description: string | undefined }[] =>
    interfaces.flatMap((one) => {
      const stated = get(one, "protocol") ?? get(one, "protocolBinding") ?? "";
      const url = text(get(one, "url"), 4096);
      if (!url || String(stated).toLowerCase() !== binding) return [];
      return [{ url, description: text(get(one, "description"), 2000) }];
    });
  const interfaceItems: JsonObject[] = interfacesOf("x402");
  const restUrl = interfacesOf("http+json")[0]?.url;
  const agentUrl =
    text(card.url, 4096) ??
    interfacesOf("jsonrpc")[0]?.url ??
    (restUrl === undefined ? undefined : `${withoutSlashes(restUrl)}/message:send`);
  const agentItem =
    namedItems.length + interfaceItems.length === 0 && agentUrl
      ? [{ url: agentUrl, method: "POST", description: card.description }]
      : [];
  return [...namedItems, ...interfaceItems, ...agentItem].slice(0, MAX_CARD_ITEMS);
}
