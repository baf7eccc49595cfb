import { get, isObject, isPlainBase64, parseBase64Json, text } from "../json.ts";
import { looksLikeEntry } from "./entries.ts";
import { boundedJson, type Demanded, joined, mppOffersOf, offersOf } from "./offers.ts";

/**
 * Places where a tool of an MCP server may demand payment, for any client: the structured content of its result, a text
 * in it (x402's MCP transport), a member of its `_meta` (`x402/error` of Cloudflare's agents,
 * `org.paymentauth/payment-required` of mpp), and the `data` of a JSON-RPC error (402 of x402, -32042 and -32043 of
 * mpp).
 */
export interface Places {
  /** x402 terms, in the order in which they were found. */
  terms: unknown[];
  /** mpp challenges, with their requests as objects or in base64. */
  challenges: unknown[];
  /** Was there more than is read? */
  isUnread: boolean;
}

/** Members that may hold terms or challenges. */
const WRAPPERS = [
  "x402",
  "x402/error",
  "x402/payment-required",
  "org.paymentauth/payment-required",
  "paymentRequired",
  "payment_required",
  "error",
  "data",
];
/** Levels of such members that are searched: `{"x402/error": {"code": 402, "data": {..}}}`. */
const MAX_WRAPPED = 3;
/** Most parts of a result's content that are read. */
const MAX_PARTS = 64;

function lookInto(value: unknown, places: Places, depth = MAX_WRAPPED): void {
  if (!isObject(value)) return;
  const accepts = get(value, "accepts");
  if (typeof accepts === "object" && accepts !== null) places.terms.push(value);
  const challenges = get(value, "challenges");
  if (Array.isArray(challenges)) places.challenges.push(...challenges.slice(0, MAX_PARTS));
  if (Array.isArray(challenges) && challenges.length > MAX_PARTS) places.isUnread = true;
  if (depth === 0) return;
  for (const name of WRAPPERS) lookInto(get(value, name), places, depth - 1);
}

function lookIntoText(said: unknown, places: Places): void {
  if (typeof said !== "string") return;
  const read = boundedJson(said);
  if (read === null) places.isUnread = true;
  else lookInto(read.value, places);
}

const none = (): Places => ({ terms: [], challenges: [], isUnread: false });

/** Finds demands in the result of a `tools/call`, whether or not it is marked as an error. */
export function inResult(result: unknown): Places {
  const places = none();
  lookInto(get(result, "structuredContent"), places);
  const content = get(result, "content");
  const parts = Array.isArray(content) ? content : [];
  if (parts.length > MAX_PARTS && get(result, "isError") === true) places.isUnread = true;
  for (const part of parts.slice(0, MAX_PARTS)) {
    lookIntoText(get(part, "text"), places);
    lookIntoText(get(part, "resource", "text"), places);
  }
  const meta = get(result, "_meta");
  lookInto(meta, places);
  // Each member of `_meta` belongs to one extension, and an extension of any name may hold terms.
  if (!isObject(meta)) return places;
  for (const name of Object.keys(meta).slice(0, MAX_PARTS)) {
    if (!WRAPPERS.includes(name)) lookInto(meta[name], places, 0);
  }
  return places;
}

/**
 * Finds demands in a JSON-RPC error, as it was received or as a client throws it.
 * @param data member `data` of the error
 */
export function inError(data: unknown): Places {
  const places = none();
  lookInto(data, places);
  return places;
}

/**
 * Members for a settlement or receipt. A result with one of them is the answer that was paid for, even if it holds
 * terms.
 */
const RECEIPTS = ["x402/payment-response", "org.paymentauth/receipt"];

/**
 * Does a tool's result demand payment? This must not take an answer for a demand: the result is marked as an error; or
 * it carries challenges; or it holds terms with their version and no receipt.
 */
export function isDemand(result: unknown, { terms, challenges }: Places): boolean {
  if (get(result, "isError") === true) return terms.length > 0 || challenges.length > 0;
  if (get(result, "_meta", "org.paymentauth/payment-required") !== undefined && challenges.length > 0) return true;
  if (RECEIPTS.some((name) => get(result, "_meta", name) !== undefined)) return false;
  return terms.some((one) => typeof get(one, "x402Version") === "number" && looksLikeEntry(get(one, "accepts", "0")));
}

/** What the places demand, in the form in which a wallet would sign it. */
export function demandedIn({ terms, challenges, isUnread }: Places): Demanded {
  const ofChallenge = (challenge: unknown) => {
    const { method, intent, expires, request } = isObject(challenge) ? challenge : {};
    return mppOffersOf({
      method: text(method, 60) === method ? (method as string) : null,
      intent: intent === undefined ? undefined : String(intent),
      expires: expires === undefined ? undefined : String(expires),
      request: typeof request === "string" && isPlainBase64(request) ? parseBase64Json(request) : request,
    });
  };
  const unread = isUnread ? "the tool's answer holds more than is read" : null;
  const offers = [...terms.flatMap((one) => offersOf(one)), ...challenges.flatMap(ofChallenge)];
  return joined([{ offers, unread }]);
}
