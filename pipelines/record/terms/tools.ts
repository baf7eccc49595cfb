import { get, isObject, isPlainBase64, parseBase64Json, text } from "../json.ts";
import { looksLikeEntry } from "./entries.ts";
import { boundedJson, type Demanded, joined, mppOffersOf, offersOf } from "./offers.ts";

/**
 * Where a tool of an MCP server may demand payment, whichever client reads it: the structured content of its result, a text
 * of it (x402's MCP transport), a member of its `_meta` (`x402/error` of Cloudflare's agents, `org.paymentauth/payment-required`
 * of mpp), and the `data` of a JSON-RPC error (402 of x402, -32042 and -32043 of mpp).
 */
export interface Places {
  /** Terms of x402, in the order in which they stand. */
  terms: unknown[];
  /** Challenges of mpp, their requests as objects or in base64. */
  challenges: unknown[];
  /** Was there a text that is more than is read? */
  isUnread: boolean;
}

/** Members that hold terms or challenges inside of something else. */
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
/** How deep they are looked for: `{"x402/error": {"code": 402, "data": {..}}}`. */
const MAX_WRAPPED = 3;
/** Parts of a result's content that are read. */
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

/** What the result of a `tools/call` demands, whether or not it says that it is an error. */
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
  // Whatever a client calls its own: each member of `_meta` belongs to one extension.
  if (!isObject(meta)) return places;
  for (const name of Object.keys(meta).slice(0, MAX_PARTS)) {
    if (!WRAPPERS.includes(name)) lookInto(meta[name], places, 0);
  }
  return places;
}

/** What a JSON-RPC error demands, as it came or as a client throws it. @param data member `data` of the error */
export function inError(data: unknown): Places {
  const places = none();
  lookInto(data, places);
  return places;
}

/** Settlement or receipt: a result that has one beside it is the answer that was paid for, although it holds terms. */
const RECEIPTS = ["x402/payment-response", "org.paymentauth/receipt"];

/**
 * Does the result of a tool demand payment, for a reader that must not take an answer for a demand? It says that it is an
 * error, or carries challenges, or holds terms with their version and no receipt stands beside them.
 */
export function isDemand(result: unknown, { terms, challenges }: Places): boolean {
  if (get(result, "isError") === true) return terms.length > 0 || challenges.length > 0;
  if (get(result, "_meta", "org.paymentauth/payment-required") !== undefined && challenges.length > 0) return true;
  if (RECEIPTS.some((name) => get(result, "_meta", name) !== undefined)) return false;
  return terms.some((one) => typeof get(one, "x402Version") === "number" && looksLikeEntry(get(one, "accepts", "0")));
}

/** What the places ask for, as a wallet that finds it there would sign it. */
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
