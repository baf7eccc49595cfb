import { parseUrl } from "../../infra/url.ts";
import type { Buy, CheckAnswer } from "./answers.ts";
import { isSafe, type Question, type Service } from "./ask.ts";
import { Carrier, type PaidRequest, type Patience } from "./carrier.ts";
import { microOf } from "./concerns.ts";

/**
 * not_offered: the service does not sell this call now. over_cap: the call costs more than the cap. bad_cap: the cap is
 * not a decimal number such as `0.05`.
 */
export type BuyFault = "not_offered" | "over_cap" | "bad_cap";

/** Thrown when a purchase is refused before the call is sent and before a payment is signed. */
export class BuyRefused extends Error {
  constructor(
    readonly code: BuyFault,
    says: string,
  ) {
    super(says);
    this.name = "BuyRefused";
  }
}

/**
 * What the buyer expects of the answer, in addition to the service's check. If one member is not met, the answer does
 * not pass and nothing is charged.
 */
export interface BuyersExpectation {
  /** JSON Schema (draft 7, 2019-09 or 2020-12) against which the answer must be valid. */
  schema?: Record<string, unknown>;
  /** A JSONPath (RFC 9535) that must select at least one value; all of them must equal `value`, if it is given. */
  jsonpath?: { path: string; value?: unknown };
  /** A regular expression (RE2) that must match somewhere in the answer's text. */
  regex?: string;
  /** Smallest length of the answer, bytes. */
  min_length?: number;
}

export interface BuyOptions extends Question {
  /** Largest charge, fee included, in USDC, such as `0.05`. */
  cap: string;
  /**
   * Wraps a fetch with your wallet: `(fetch) => wrapFetchWithPayment(fetch, client)`. The fetch that is wrapped sends a
   * payment again unchanged if the answer to it was lost, so the wallet does not sign a second payment.
   */
  pay: (fetch: typeof globalThis.fetch) => typeof globalThis.fetch;
  /** Headers for the seller. */
  headers?: Record<string, string>;
  /** Body for the seller. For a tool of an MCP server (`url#tool`): its arguments, a JSON object. */
  body?: string | Uint8Array<ArrayBuffer>;
  /** Values of the variables, if `url` is a listed template: `{ city: "Oslo" }`. */
  variables?: Record<string, string>;
  /** What you expect of the answer; at most 4,096 characters as JSON. */
  expect?: BuyersExpectation;
  /** Publishes the call in the record, request and answer included. Default false. */
  publish?: boolean;
  patience?: Partial<Patience>;
}

/** Settlement of a payment (x402 specification version 2, SettlementResponse). */
export interface Settlement {
  success: boolean;
  errorReason?: string;
  payer?: string;
  /** Hash or signature of the transaction; empty if nothing was settled. */
  transaction: string;
  /** CAIP-2 id. */
  network: string;
  /** Settled amount in atomic units, if it differs from the signed one. */
  amount?: string;
  extensions?: Record<string, unknown>;
}

/**
 * Outcome of a purchase. delivered: the answer passed, and the buyer was charged. not_delivered: the answer did not
 * pass, and nothing was charged. not_paid: no payment was sent, or it was not accepted; `response` gives the reason,
 * such as a 403 for a price over the cap. expired: a payment that was sent again had been charged, and the service does
 * not keep the answer any more (410); the order still has its hash.
 */
export interface Bought {
  outcome: "delivered" | "not_delivered" | "not_paid" | "expired";
  /** The seller's answer if the outcome is `delivered`, else a problem document. */
  response: Response;
  /**
   * Kind of check that the answer passed or failed: `truth` (compared with the right answer to your input), `schema`,
   * `class`, `parses` or `status`; null if the service did not report it.
   */
  judged_by: string | null;
  /** Id of the order at the service (`GET /v1/orders/{id}`); null if there is none. */
  order: string | null;
  /** Settlement of the buyer's payment; null if nothing was charged. */
  receipt: Settlement | null;
  /** The check answer from which the price was taken. */
  answer: CheckAnswer;
}

/**
 * Buys a call through the service, which pays the seller, checks the answer, and charges the buyer only if the answer
 * passed. If the service's answer is lost, the request is sent again with the same payment, by which the service finds
 * the order. While the outcome is open (202), the order is read until it has ended.
 * @throws ServiceFault if the check of the endpoint fails; BuyRefused before the call is sent; BuyUnknown if a payment
 * was sent and its outcome is still open when `patience` ends: pass `paid` of that error to {@link resumeThrough}
 */
export async function buyThrough(service: Service, options: BuyOptions): Promise<Bought> {
  const { url, method, payTo, cap, pay, headers = {}, body, variables = {}, publish = false, patience } = options;
  const { expect } = options;
  const most = microOf(/^\d+$/.test(cap) ? `${cap}.0` : cap);
  if (most === null) throw new BuyRefused("bad_cap", `the cap must be a decimal number such as 0.05: ${cap}`);
  const answer = await service.check({ url, method, payTo });
  const { buy } = answer;
  if (!buy) {
    const why = answer.not_bought ?? answer.why;
    throw new BuyRefused("not_offered", `the service does not sell this call now: ${why}`);
  }
  const total = microOf(buy.total);
  if (total === null || total > most)
    throw new BuyRefused("over_cap", `the call costs ${buy.total} USDC, more than the cap of ${cap}`);

  const carrier = new Carrier(service, most, patience);
  const sent = new Headers(headers);
  if (publish) sent.set(...publishHeader(buy.publish));
  if (expect) sent.set("touchstone-expect", asciiJson(expect));
  const init: RequestInit = { method: buy.method, headers: sent, ...(body === undefined ? {} : { body }) };
  const response = await pay(carrier.fetch)(viaUrl(buy, url, variables), init);
  return { ...outcomeOf(response, carrier), answer };
}

/**
 * Sends a payment again unchanged (`BuyUnknown.paid`), later or from another machine, and follows it to its outcome.
 * Nothing is signed, so nothing can be paid twice.
 * @throws BuyUnknown as {@link buyThrough}
 */
export async function resumeThrough(
  service: Service,
  { url, method, headers, body }: PaidRequest,
  patience?: Partial<Patience>,
): Promise<Omit<Bought, "answer">> {
  const carrier = new Carrier(service, null, patience);
  const response = await carrier.fetch(url, { method, headers, ...(body === null ? {} : { body }) });
  return outcomeOf(response, carrier);
}

function outcomeOf(response: Response, carrier: Carrier): Omit<Bought, "answer"> {
  const receipt = receiptOf(response);
  let outcome: Bought["outcome"] = response.status === 410 ? "expired" : "not_delivered";
  if (receipt?.success) outcome = "delivered";
  else if (!carrier.hasPaid || response.status === 402) outcome = "not_paid";
  const order = response.headers.get("touchstone-order") ?? carrier.order;
  return { outcome, response, judged_by: response.headers.get("touchstone-judged-by"), order, receipt };
}

/** Returns the value as JSON for a header: characters that are not printable ASCII are escaped. */
const asciiJson = (value: unknown): string =>
  JSON.stringify(value).replace(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

/**
 * Returns the url at the service to which the call is sent: with the query of the seller's url and the values of that
 * url's variables. A tool of an MCP server takes no query.
 */
function viaUrl({ url: via, tool }: Buy, asked: string, variables: Record<string, string>): string {
  const url = new URL(via);
  if (!isSafe(url)) throw new BuyRefused("not_offered", `the service's url for the call is not https: ${via}`);
  const sellerUrl = parseUrl(asked);
  if (sellerUrl !== null && tool === undefined) {
    // The service fills a template's placeholders in the query, as it does in the path.
    for (const [name, value] of [...sellerUrl.searchParams])
      if (/\{.*\}/.test(value)) sellerUrl.searchParams.delete(name);
    url.search = [url.search, sellerUrl.search].flatMap((search) => search.slice(1) || []).join("&");
  }
  for (const [name, value] of Object.entries(variables)) url.searchParams.set(name, value);
  return url.href;
}

/**
 * Splits the header that the check answer gives as `Name: value`. For text of another form it returns the header that
 * the service uses by default.
 */
function publishHeader(text: string): [string, string] {
  const found = /^([A-Za-z0-9-]{1,64}): ?([\x21-\x7e]{1,64})$/.exec(text);
  return found ? [found[1]!, found[2]!] : ["Touchstone-Publish", "true"];
}

/** Reads the settlement in `PAYMENT-RESPONSE` (x402 version 2) or `X-PAYMENT-RESPONSE` (1); null if there is none. */
export function receiptOf({ headers }: Response): Settlement | null {
  const header = headers.get("payment-response") ?? headers.get("x-payment-response");
  if (header === null) return null;
  try {
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(header), (char) => char.charCodeAt(0))));
  } catch {
    return null;
  }
}

const ESCROW = "auth-capture";
/** Known escrow contracts of this scheme, versions 1.0 and 1.1. Another contract may not give the money back. */
const ESCROWS = ["0xbdea0d1bcc5966192b070fdf62ab4ef5b4420cff", "0xf96815976523e00e65be8f34ca5e64b4f41eb19c"];
/** Longest time until the buyer can take the money back: half an hour, and five minutes for differing clocks. */
const MAX_HOLD_S = 1800 + 300;

/** The members of an entry of `accepts` (an offer in a 402) that are used here. */
interface Entry {
  scheme: string;
  extra?: Record<string, unknown>;
}

/** A policy of the official client: returns the offers of a 402 that may be paid. */
export type OfferPolicy = <E extends Entry>(version: number, offers: E[]) => E[];

/** Is this an escrow from which the buyer can take the money back after half an hour, without anybody's help? */
function isSoundEscrow({ scheme, extra }: Entry, now_s: number): boolean {
  const { authCaptureEscrow, captureDeadline, refundDeadline } = extra ?? {};
  const [capture, refund] = [Number(captureDeadline), Number(refundDeadline)];
  const isKnown = typeof authCaptureEscrow === "string" && ESCROWS.includes(authCaptureEscrow.toLowerCase());
  return scheme === ESCROW && isKnown && capture > now_s && capture <= now_s + MAX_HOLD_S && refund >= capture;
}

/**
 * Returns a policy for the official client (`client.registerPolicy(...)`) that chooses how a purchase is paid if the
 * service offers both ways. `delivery`: the service keeps the signed payment and settles it after the answer passed; no
 * money leaves the wallet before. `escrow`: an escrow contract holds the money until the answer passed, and the buyer
 * can take it back after half an hour. An escrow is chosen only if its contract is a known one and the buyer can take
 * the money back by then.
 *
 * A selector of the official client would not do: if there are other offers, the client drops those of the scheme
 * `auth-capture` before it calls the selector.
 */
export function payBy(prefer: "delivery" | "escrow", now: () => number = Date.now): OfferPolicy {
  return (_version, offers) => {
    const sound = offers.filter((offer) => isSoundEscrow(offer, Math.floor(now() / 1000)));
    const others = offers.filter(({ scheme }) => scheme !== ESCROW);
    const [first, second] = prefer === "escrow" ? [sound, others] : [others, sound];
    return first.length > 0 ? first : second;
  };
}
