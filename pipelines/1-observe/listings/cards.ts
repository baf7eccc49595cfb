import { get, isObject, type JsonObject, show, text } from "../json.ts";

const MAX_ITEMS = 500;

/** Is this an agent card (A2A), or one of the documents that sellers put in its place? */
export const isAgentCard = (document: unknown): document is JsonObject =>
  isObject(document) &&
  typeof (document.name ?? document.display_name ?? document.name_for_model) === "string" &&
  (Array.isArray(document.skills) ||
    document.protocolVersion !== undefined ||
    /a2a/i.test(String(document.schema_version ?? "")) ||
    (isObject(document.capabilities) && document.resources === undefined && document.endpoints === undefined));

const asList = (value: unknown): unknown[] => (Array.isArray(value) ? value : value === undefined ? [] : [value]);

/** Addresses that a skill, a tool or a capability names: `endpoint` or `endpoints`, an object, a path or a url. */
function endpointsOf(part: unknown): JsonObject[] {
  const description = text(get(part, "description"), 2000);
  const named = [...asList(get(part, "endpoint")), ...asList(get(part, "endpoints"))];
  const own = get(part, "url") ?? get(part, "path");
  if (named.length === 0 && typeof own === "string") named.push({ url: own });
  return named.flatMap((one): JsonObject[] => {
    const item = typeof one === "string" ? { url: one } : isObject(one) ? one : null;
    if (item === null) return [];
    const method = item.method ?? get(part, "method");
    return [{ ...(description ? { description } : {}), ...(method === undefined ? {} : { method }), ...item }];
  });
}

/** Does the card say anywhere it is meant to (extensions, payments, security, tags) that it is paid by x402 or mpp? */
function isPaid(card: JsonObject): boolean {
  const places = [card.capabilities, card.payments, card.payment, card.securitySchemes, card.tags, card.skills];
  return places.some((place) => place !== undefined && /x402|\bmpp\b/i.test(show(place)));
}

/**
 * Endpoints of an agent card: what its skills, tools and capabilities name; else, when the card says it is paid, the
 * agent itself at its address (JSON-RPC over POST) and every interface that speaks x402. A card that says nothing of
 * payment lists nothing.
 */
export function cardItems(card: JsonObject): JsonObject[] {
  const capabilities = isObject(card.capabilities) ? Object.values(card.capabilities).filter(isObject) : [];
  const parts = [...asList(card.skills), ...asList(card.tools), ...capabilities];
  const named = parts.flatMap(endpointsOf);
  if (!isPaid(card)) return named.filter((item) => item.accepts !== undefined).slice(0, MAX_ITEMS);
  const interfaces = [...asList(card.supportedInterfaces), ...asList(card.additionalInterfaces)].filter((one) =>
    /^x402$/i.test(String(get(one, "protocol") ?? get(one, "protocolBinding") ?? "")),
  );
  const others = interfaces.flatMap((one): JsonObject[] => {
    const url = text(get(one, "url"), 4096);
    return url ? [{ url, description: text(get(one, "description"), 2000) }] : [];
  });
  const whole = text(card.url, 4096);
  const self =
    named.length + others.length === 0 && whole ? [{ url: whole, method: "POST", description: card.description }] : [];
  return [...named, ...others, ...self].slice(0, MAX_ITEMS);
}
