import { get, isObject, isPlainBase64, parseBase64Json, text } from "../json.ts";
import { looksLikeEntry } from "./entries.ts";
import { joinDemands, offersOf, type PaymentDemand, parseBoundedJson, readMppOffers } from "./offers.ts";

/**
 * Demands for payment that were found in the answer of an MCP tool. They may be in the structured content of the
 * tool's result, in a text of the result, in its member `paymentRequired` (the two bindings of x402's MCP transport), in
 * a member of `_meta` (`x402/error` of Cloudflare's agents, `org.paymentauth/payment-required` of mpp), or in the `data`
 * of a JSON-RPC error (402 of x402, -32042 and -32043 of mpp).
 */
export interface ToolDemands {
  /** x402 terms, in the order in which they were found. */
  terms: unknown[];
  /** mpp challenges, with their requests as objects or in base64. */
  challenges: unknown[];
  /** Does the answer have more content than is read? */
  isUnread: boolean;
}

/** Members that may hold terms or challenges. */
const WRAPPER_MEMBERS = [
  "x402",
  "x402/error",
  "x402/payment-required",
  "org.paymentauth/payment-required",
  "paymentRequired",
  "payment_required",
  "error",
  "data",
];
/**
 * Largest number of levels of wrapper members that are searched, as in `{"x402/error": {"code": 402, "data": {..}}}`.
 */
const MAX_WRAPPED = 3;
/** Largest number of parts of a result's content that are read. */
const MAX_PARTS = 64;

function collectDemands(value: unknown, demands: ToolDemands, levels = MAX_WRAPPED): void {
  if (!isObject(value)) return;
  const accepts = get(value, "accepts");
  if (typeof accepts === "object" && accepts !== null) demands.terms.push(value);
  const challenges = get(value, "challenges");
  if (Array.isArray(challenges)) {
    demands.challenges.push(...challenges.slice(0, MAX_PARTS));
    if (challenges.length > MAX_PARTS) demands.isUnread = true;
  }
  if (levels === 0) return;
  for (const name of WRAPPER_MEMBERS) collectDemands(get(value, name), demands, levels - 1);
}

function collectFromText(content: unknown, demands: ToolDemands): void {
  if (typeof content !== "string") return;
  const parsed = parseBoundedJson(content);
  if (parsed === null) demands.isUnread = true;
  else collectDemands(parsed.value, demands);
}

const createDemands = (): ToolDemands => ({ terms: [], challenges: [], isUnread: false });

/** Finds demands in the result of a `tools/call`, whether or not the result is marked as an error. */
export function findDemandsInResult(result: unknown): ToolDemands {
  const demands = createDemands();
  collectDemands(get(result, "structuredContent"), demands);
  collectDemands(get(result, "paymentRequired"), demands);
  const content = get(result, "content");
  const parts = Array.isArray(content) ? content : [];
  if (parts.length > MAX_PARTS && get(result, "isError") === true) demands.isUnread = true;
  for (const part of parts.slice(0, MAX_PARTS)) {
    collectFromText(get(part, "text"), demands);
    collectFromText(get(part, "resource", "text"), demands);
  }
  const meta = get(result, "_meta");
  collectDemands(meta, demands);
  // Each member of `_meta` belongs to one extension, and an extension of any name may hold terms.
  for (const name of Object.keys(isObject(meta) ? meta : {}).slice(0, MAX_PARTS)) {
    if (!WRAPPER_MEMBERS.includes(name)) collectDemands(get(meta, name), demands, 0);
  }
  return demands;
}

/**
 * Finds demands in a JSON-RPC error, received from a server or thrown by a client.
 * @param data member `data` of the error
 */
export function findDemandsInError(data: unknown): ToolDemands {
  const demands = createDemands();
  collectDemands(data, demands);
  return demands;
}

/**
 * Members of `_meta` that hold a settlement or a receipt. A result with one of them is the paid answer, even if it
 * contains terms.
 */
const RECEIPT_MEMBERS = ["x402/payment-response", "org.paymentauth/receipt"];

/**
 * Does a tool's result demand payment? It does if it is marked as an error or as `payment_required` and has terms or
 * challenges, if `_meta` demands payment, or if it has terms with a version and no receipt. The conditions are strict
 * because a paid answer must never be taken for a demand.
 */
export function demandsPayment(result: unknown, { terms, challenges }: ToolDemands): boolean {
  if (get(result, "isError") === true || get(result, "resultType") === "payment_required")
    return terms.length > 0 || challenges.length > 0;
  if (get(result, "_meta", "org.paymentauth/payment-required") !== undefined && challenges.length > 0) return true;
  if (RECEIPT_MEMBERS.some((name) => get(result, "_meta", name) !== undefined)) return false;
  return terms.some((one) => typeof get(one, "x402Version") === "number" && looksLikeEntry(get(one, "accepts", "0")));
}

/** Converts the demands that were found to offers, read as a wallet would sign them. */
export function readToolDemand({ terms, challenges, isUnread }: ToolDemands): PaymentDemand {
  const readChallengeOffers = (challenge: unknown) => {
    const { method, intent, expires, request } = isObject(challenge) ? challenge : {};
    return readMppOffers({
      method: text(method, 60) === method ? (method as string) : null,
      intent: intent === undefined ? undefined : String(intent),
      expires: expires === undefined ? undefined : String(expires),
      request: typeof request === "string" && isPlainBase64(request) ? parseBase64Json(request) : request,
    });
  };
  const unread = isUnread ? "the tool's answer holds more than is read" : null;
  const offers = [...terms.flatMap((one) => offersOf(one)), ...challenges.flatMap(readChallengeOffers)];
  return joinDemands([{ offers, unread }]);
}
