import { parseUrl } from "../../infra/url.ts";
import type { Buy, CheckAnswer } from "./answers.ts";
import { isSafe, type Question, type Service } from "./ask.ts";
import { Carrier, type PaidRequest, type Patience } from "./carrier.ts";
import { microOf } from "./concerns.ts";

/**
 * not_offered: the service does not sell this call now. over_cap: it costs more than was allowed. bad_cap: the cap is
 * no money string with a dot.
 */
export type BuyFault = "not_offered" | "over_cap" | "bad_cap";

/** The purchase was refused before anything was sent or signed. */
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
 * What you yourself expect of the answer, beside the service's own check. Each member must hold, else the answer does not
 * pass and nothing is charged.
 */
export interface BuyersExpectation {
  /** JSON Schema (draft 7, 2019-09 or 2020-12) that the answer fits. */
  schema?: Record<string, unknown>;
  /** A JSONPath (RFC 9535) that selects something, and nothing but `value`, if that is given. */
  jsonpath?: { path: string; value?: unknown };
  /** An expression of RE2 that is found somewhere in the answer's text. */
  regex?: string;
  /** Least length of the answer, bytes. */
  min_length?: number;
}

export interface BuyOptions extends Question {
  /** Most that may be charged, with the fee, in USDC, such as `0.05`. */
  cap: string;
  /**
   * Puts your wallet on top of a fetch: `(fetch) => wrapFetchWithPayment(fetch, client)`. The fetch below it is ours: a
   * payment whose answer was lost must be sent again as it was, and never be signed anew.
   */
  pay: (fetch: typeof globalThis.fetch) => typeof globalThis.fetch;
  /** Headers for the seller. The query comes from `url`. */
  headers?: Record<string, string>;
  /** Of a tool of an MCP server (`url#tool`): its arguments, a JSON object. */
  body?: string | Uint8Array<ArrayBuffer>;
  /** Values of the variables of a listed template, where `url` is the template: `{ city: "Oslo" }`. */
  variables?: Record<string, string>;
  /** What you yourself expect of the answer; at most 4,096 characters as JSON. */
  expect?: BuyersExpectation;
  /** Publishes the call in the record, with its bytes. Default false. */
  publish?: boolean;
  patience?: Partial<Patience>;
}

/** Settlement of a payment, in x402's form (specification version 2, SettlementResponse). */
export interface Settlement {
  success: boolean;
  errorReason?: string;
  payer?: string;
  /** Hash or signature of the transaction; empty where nothing was settled. */
  transaction: string;
  /** CAIP-2 id. */
  network: string;
  /** Atomic units, where the settled amount differs from the signed one. */
  amount?: string;
  extensions?: Record<string, unknown>;
}

/**
 * delivered: the answer passed and was charged. not_delivered: it did not pass, and nothing was charged. not_paid: no
 * payment was sent, or it was not accepted; `response` tells why, such as a 403 for a price over the cap.
 */
export interface Bought {
  outcome: "delivered" | "not_delivered" | "not_paid";
  /** The seller's answer if it was delivered, else a problem document. */
  response: Response;
  /**
   * What judged the answer: `truth` (the right answer was computed from your input), `schema`, `class`, `parses` or
   * `status`; null where the service does not say.
   */
  judged_by: string | null;
  /** Id of the order, if there is one; `GET /v1/orders/{id}` shows the order. */
  order: string | null;
  /** Settlement of the charge. */
  receipt: Settlement | null;
  /** The check from which the price was taken. */
  answer: CheckAnswer;
}

/**
 * Buys a call through the service, which pays the seller, checks the answer, and charges only if it passed. If the
 * service's answer is lost, the request is sent again with the same payment, by which the service knows the order.
 * While the outcome is open (202), the order is read until it has ended.
 * @throws ServiceFault when the check fails; BuyRefused before anything is sent; BuyUnknown when the patience ends with
 * a payment sent and its outcome open: it holds what is needed to ask again
 */
export async function buyThrough(service: Service, options: BuyOptions): Promise<Bought> {
  const { url, method, payTo, cap, pay, headers = {}, body, variables = {}, publish = false, patience } = options;
  const { expect } = options;
  const most = microOf(/^\d+$/.test(cap) ? `${cap}.0` : cap);
  if (most === null) throw new BuyRefused("bad_cap", `not an amount of money: ${cap}`);
  const answer = await service.check({ url, method, payTo });
  const { buy } = answer;
  if (!buy) {
    const why = answer.not_bought ?? answer.why;
    throw new BuyRefused("not_offered", `not for sale through the service now: ${why}`);
  }
  const total = microOf(buy.total);
  if (total === null || total > most) throw new BuyRefused("over_cap", `it costs ${buy.total} USDC, over ${cap}`);

  const carrier = new Carrier(service, most, patience);
  const sent = new Headers(headers);
  if (publish) sent.set(...publishHeader(buy.publish));
  if (expect) sent.set("touchstone-expect", asciiJson(expect));
  const init: RequestInit = { method: buy.method, headers: sent, ...(body === undefined ? {} : { body }) };
  const response = await pay(carrier.fetch)(viaUrl(buy, url, variables), init);
  return { ...outcomeOf(response, carrier), answer };
}

/**
 * Sends a payment again as it was sent (`BuyUnknown.paid`), later or from elsewhere, and follows it to its outcome. Nothing is
 * signed, so nothing can be paid twice.
 * @throws BuyUnknown as {@link buyThrough}
 */
export async function resumeThrough(
  service: Service,
  { url, method, headers, body }: PaidRequest,
  patience?: Partial<Patience>,
): Promise<Omit<Bought, "answer">> {
  const carrier = new Carrier(service, 0n, patience);
  const response = await carrier.fetch(url, { method, headers, ...(body === null ? {} : { body }) });
  return outcomeOf(response, carrier);
}

function outcomeOf(response: Response, carrier: Carrier): Omit<Bought, "answer"> {
  const receipt = receiptOf(response);
  const outcome = receipt?.success
    ? "delivered"
    : carrier.hasPaid && response.status !== 402
      ? "not_delivered"
      : "not_paid";
  const order = response.headers.get("touchstone-order") ?? carrier.order;
  return { outcome, response, judged_by: response.headers.get("touchstone-judged-by"), order, receipt };
}

/** JSON that a header can hold: what is not ASCII is escaped. */
const asciiJson = (value: unknown): string =>
  JSON.stringify(value).replace(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

/**
 * The address at the service, with the query that is meant for the seller and the values of its url's variables. A tool
 * takes no query.
 */
function viaUrl({ url: via, tool }: Buy, asked: string, variables: Record<string, string>): string {
  const url = new URL(via);
  if (!isSafe(url)) throw new BuyRefused("not_offered", `a payment is not sent over http: ${via}`);
  const meant = parseUrl(asked);
  if (meant !== null && tool === undefined) {
    // Placeholders of a template in the query are filled by the service, as those in its path are.
    for (const [name, value] of [...meant.searchParams]) if (/\{.*\}/.test(value)) meant.searchParams.delete(name);
    url.search = [url.search, meant.search].flatMap((search) => search.slice(1) || []).join("&");
  }
  for (const [name, value] of Object.entries(variables)) url.searchParams.set(name, value);
  return url.href;
}

/** Name and value of the header that the check answer gives as `Name: value`. */
function publishHeader(text: string): [string, string] {
  const found = /^([A-Za-z0-9-]{1,64}): ?([\x21-\x7e]{1,64})$/.exec(text);
  return found ? [found[1]!, found[2]!] : ["Touchstone-Publish", "true"];
}

/** The settlement in `PAYMENT-RESPONSE` (x402 version 2) or `X-PAYMENT-RESPONSE` (1); null where none can be read. */
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
/** Known escrow contracts of the scheme, 1.0 and 1.1. Money in any other contract has no such guarantee. */
const ESCROWS = ["0xbdea0d1bcc5966192b070fdf62ab4ef5b4420cff", "0xf96815976523e00e65be8f34ca5e64b4f41eb19c"];
/** Longest time until the buyer can take the money back: half an hour, and five minutes for clocks that differ. */
const MAX_HOLD_S = 1800 + 300;

/** The members of an entry of `accepts` that are read. */
interface Entry {
  scheme: string;
  extra?: Record<string, unknown>;
}

/** A policy of the official client: returns those offers of a 402 that may be taken. */
export type OfferPolicy = <E extends Entry>(version: number, offers: E[]) => E[];

/** Is this an escrow from which the buyer can take the money back within half an hour, whatever happens? */
function isSoundEscrow({ scheme, extra }: Entry, now_s: number): boolean {
  const { authCaptureEscrow, captureDeadline, refundDeadline } = extra ?? {};
  const [capture, refund] = [Number(captureDeadline), Number(refundDeadline)];
  const isKnown = typeof authCaptureEscrow === "string" && ESCROWS.includes(authCaptureEscrow.toLowerCase());
  return scheme === ESCROW && isKnown && capture > now_s && capture <= now_s + MAX_HOLD_S && refund >= capture;
}

/**
 * A policy for the official client (`client.registerPolicy(...)`) that decides how a purchase on delivery is paid where
 * both ways are offered. `delivery`: the service keeps the signed payment and settles it after the answer passed;
 * nothing leaves the wallet before. `escrow`: the money is held by the escrow contract, so the service can count on it,
 * and the buyer can take it back after half an hour; used only if the contract is a known one and the deadline no later
 * than that.
 *
 * It must be a policy, since the client drops offers of the flow `escrow` before it calls its selector if there are
 * others.
 */
export function payBy(prefer: "delivery" | "escrow", now: () => number = Date.now): OfferPolicy {
  return (_version, offers) => {
    const sound = offers.filter((offer) => isSoundEscrow(offer, Math.floor(now() / 1000)));
    const others = offers.filter(({ scheme }) => scheme !== ESCROW);
    const [first, second] = prefer === "escrow" ? [sound, others] : [others, sound];
    return first.length > 0 ? first : second;
  };
}
