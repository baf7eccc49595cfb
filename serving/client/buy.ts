import { parseUrl } from "../../infra/url.ts";
import type { CheckAnswer } from "./answers.ts";
import { isSafe, type Question, type Service } from "./ask.ts";
import { Carrier, type Patience } from "./carrier.ts";
import { microOf } from "./concerns.ts";

/**
 * not_offered: the service would not buy this now. over_cap: it costs more than was allowed. bad_cap: no money string, with
 * a dot.
 */
export type BuyFault = "not_offered" | "over_cap" | "bad_cap";

/** Nothing was sent and nothing signed. */
export class BuyRefused extends Error {
  constructor(
    readonly code: BuyFault,
    says: string,
  ) {
    super(says);
    this.name = "BuyRefused";
  }
}

export interface BuyOptions extends Question {
  /** The most that may be charged, fee included, in USDC, such as `0.05`. */
  cap: string;
  /**
   * Puts your wallet on top of a fetch: `(fetch) => wrapFetchWithPayment(fetch, client)`. The fetch below it is ours, since
   * a payment whose answer was lost must be sent again as it was, and never signed anew.
   */
  pay: (fetch: typeof globalThis.fetch) => typeof globalThis.fetch;
  /** What the seller is sent, besides the query of `url`. */
  headers?: Record<string, string>;
  body?: string | Uint8Array<ArrayBuffer>;
  /** Puts the call in the public record, bytes and all. Default false: nothing of it is published. */
  publish?: boolean;
  patience?: Partial<Patience>;
}

/** Settlement of a payment, as x402 words it (specification version 2, SettlementResponse). */
export interface Settlement {
  success: boolean;
  errorReason?: string;
  payer?: string;
  /** Hash or signature; empty where nothing was settled. */
  transaction: string;
  /** CAIP-2. */
  network: string;
  /** Atomic units, where another amount was settled than was signed. */
  amount?: string;
  extensions?: Record<string, unknown>;
}

/**
 * delivered: the answer passed and was charged. not_delivered: it did not, and nothing was charged. not_paid: no payment was
 * sent or taken; `response` says why, such as a 403 for a price past the cap.
 */
export interface Bought {
  outcome: "delivered" | "not_delivered" | "not_paid";
  /** The seller's answer where it was delivered, else a problem document. */
  response: Response;
  /** Id of the order, where one was made: opens it at `GET /v1/orders/{id}`. */
  order: string | null;
  /** Settlement of the charge. */
  receipt: Settlement | null;
  /** The check that the price came from. */
  answer: CheckAnswer;
}

/**
 * Buy a call through the service: it pays the seller, checks the answer, and charges only for what passed. An answer that
 * is lost is asked for again with the same payment, which the service knows for the same order; while its outcome is open
 * (202) the order is read until it is not.
 * @throws ServiceFault where the check fails, BuyRefused before anything is sent, BuyUnknown when patience ends with a
 * payment sent and its outcome open: it holds what is needed to ask again
 */
export async function buyThrough(service: Service, options: BuyOptions): Promise<Bought> {
  const { url, method, payTo, cap, pay, headers = {}, body, publish = false, patience } = options;
  const most = microOf(/^\d+$/.test(cap) ? `${cap}.0` : cap);
  if (most === null) throw new BuyRefused("bad_cap", `not an amount of money: ${cap}`);
  const answer = await service.check({ url, method, payTo });
  const { buy } = answer;
  if (!buy) throw new BuyRefused("not_offered", `not for sale through the service now: ${answer.why}`);
  const total = microOf(buy.total);
  if (total === null || total > most) throw new BuyRefused("over_cap", `it costs ${buy.total} USDC, over ${cap}`);

  const carrier = new Carrier(service, most, patience);
  const sent = new Headers(headers);
  if (publish) sent.set(...publishHeader(buy.publish));
  const init: RequestInit = { method: buy.method, headers: sent, ...(body === undefined ? {} : { body }) };
  const response = await pay(carrier.fetch)(viaUrl(buy.url, url), init);
  const receipt = receiptOf(response);
  const outcome = receipt?.success
    ? "delivered"
    : carrier.hasPaid && response.status !== 402
      ? "not_delivered"
      : "not_paid";
  return { outcome, response, order: response.headers.get("touchstone-order") ?? carrier.order, receipt, answer };
}

/** The address at the service, with the query that was meant for the seller. */
function viaUrl(via: string, asked: string): string {
  const url = new URL(via);
  if (!isSafe(url)) throw new BuyRefused("not_offered", `a payment is not sent over http: ${via}`);
  const meant = parseUrl(asked);
  if (meant !== null) url.search = meant.search;
  return url.href;
}

/** `Name: value`, as the check answer words it. */
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
/** Deployments of the scheme's escrow contract, 1.0 and 1.1: money that is held anywhere else is not held by that contract. */
const ESCROWS = ["0xbdea0d1bcc5966192b070fdf62ab4ef5b4420cff", "0xf96815976523e00e65be8f34ca5e64b4f41eb19c"];
/** Half an hour, after which the buyer can take it back, and five minutes for clocks that differ. */
const MAX_HOLD_S = 1800 + 300;

/** As much of an entry of `accepts` as is looked at. */
interface Entry {
  scheme: string;
  extra?: Record<string, unknown>;
}

/** A policy of the official client: the offers that are left, of those that a 402 makes. */
export type OfferPolicy = <E extends Entry>(version: number, offers: E[]) => E[];

/** An escrow from which the buyer can have the money back in half an hour, whatever happens. */
function isSoundEscrow({ scheme, extra }: Entry, now_s: number): boolean {
  const { authCaptureEscrow, captureDeadline, refundDeadline } = extra ?? {};
  const [capture, refund] = [Number(captureDeadline), Number(refundDeadline)];
  const isKnown = typeof authCaptureEscrow === "string" && ESCROWS.includes(authCaptureEscrow.toLowerCase());
  return scheme === ESCROW && isKnown && capture > now_s && capture <= now_s + MAX_HOLD_S && refund >= capture;
}

/**
 * A policy for the official client (`client.registerPolicy(...)`) that says how a purchase on delivery is paid where both
 * ways are offered. `delivery`: the service holds the signed payment and settles it after the answer passed; nothing leaves
 * the wallet before. `escrow`: the money waits in the contract, where the service can count on it and the buyer can have it
 * back after half an hour; taken only where the contract is a known one and the deadline no later than that.
 *
 * It must be a policy: the client drops offers of the flow `escrow` before it asks its selector, wherever another is left.
 */
export function payBy(prefer: "delivery" | "escrow", now: () => number = Date.now): OfferPolicy {
  return (_version, offers) => {
    const sound = offers.filter((offer) => isSoundEscrow(offer, Math.floor(now() / 1000)));
    const others = offers.filter(({ scheme }) => scheme !== ESCROW);
    const [first, second] = prefer === "escrow" ? [sound, others] : [others, sound];
    return first.length > 0 ? first : second;
  };
}
