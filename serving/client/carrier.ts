import type { Offer } from "../../pipelines/record/terms/offers.ts";
import type { Service } from "./ask.ts";
import { isUsdc, unreadIn } from "./concerns.ts";
import { read402 } from "./demands.ts";
import { readBounded, retryAfter, ServiceFault } from "./http.ts";

/** Limits for waiting until the outcome of a sent payment is known. */
export interface Patience {
  /** Time after the first sending of the payment in which further requests are sent. Default 300,000. */
  within_ms: number;
  /**
   * Time limit of one request, in which the seller answers, the answer is checked and the payment settles. Default
   * 150,000.
   */
  answer_ms: number;
  /**
   * First pause between two requests; it doubles each time, up to sixteen times as long. A longer `Retry-After` in an
   * answer to the payment is respected. Default 1000.
   */
  wait_ms: number;
  /** Largest number of times that the payment is sent. Default 8. */
  sends: number;
}

const PATIENCE: Patience = { within_ms: 300_000, answer_ms: 150_000, wait_ms: 1000, sends: 8 };

/**
 * A request as it was sent, with its payment. If it is sent again, the service finds the same order (the purchase that
 * the payment began), so it pays only once.
 */
export interface PaidRequest {
  url: string;
  method: string;
  headers: [string, string][];
  body: Uint8Array<ArrayBuffer> | null;
}

/** A payment was sent, and its outcome is not known yet. Sending `paid` again unchanged charges nothing twice. */
export class BuyUnknown extends Error {
  constructor(
    readonly order: string | null,
    readonly state: string | null,
    readonly paid: PaidRequest,
    options?: ErrorOptions,
  ) {
    super(`the outcome of ${order ?? "the order"} is not known yet${state ? ` (${state})` : ""}`, options);
    this.name = "BuyUnknown";
  }
}

/**
 * States of an order whose outcome for the buyer is decided, so that sending the payment again returns this outcome. An
 * order in a state that is not listed here is open.
 */
const FINAL = new Set([
  "settled",
  "released",
  "voided",
  "rejected",
  "hold_failed",
  "written_off",
  "refunded",
  "reclaimable",
]);

const PAYMENT_HEADERS = ["payment-signature", "x-payment"];
/** Longest order, bytes: a settled one has the answer of up to 1 MiB in base64. */
export const MAX_ORDER_BYTES = 4 * 1024 * 1024;
/** Longest answer to a payment that is read, bytes. The service accepts at most 1 MiB from a seller. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
const TERMS_TIMEOUT_MS = 5000;
const MAX_WAIT_TIMES = 16;
/**
 * Time in which a sending whose answer did not arrive may still create an order. Until then the service asks the seller
 * for its price (20 s) and waits for free places.
 */
const UNSEEN_MS = 60_000;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const problem = (status: number, title: string, detail: string): Response =>
  new Response(JSON.stringify({ type: "about:blank", title, status, detail, refused_by: "touchstone-client" }), {
    status,
    headers: { "content-type": "application/problem+json", "cache-control": "no-store" },
  });

/** Provides the fetch for a wallet. It refuses prices above the cap, and follows a sent payment to its outcome. */
export class Carrier {
  /** Id of the order; null until the service has returned it. */
  order: string | null = null;
  /** Was a payment sent, and not answered with a price above the cap? */
  hasPaid = false;
  readonly #patience: Patience;
  #unknown: BuyUnknown | null = null;

  constructor(
    private readonly service: Service,
    /** Largest amount that may be signed, micro-units of USDC; null where no wallet is on top of this fetch. */
    private readonly cap_micro: bigint | null,
    patience: Partial<Patience> = {},
  ) {
    this.#patience = { ...PATIENCE, ...patience };
  }

  readonly fetch = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    // A wallet that retries would sign a second payment while the first may still be charged.
    if (this.#unknown) throw this.#unknown;
    const request = new Request(input, init);
    const sent: PaidRequest = {
      url: request.url,
      method: request.method,
      headers: [...request.headers],
      body: request.body === null ? null : new Uint8Array(await request.arrayBuffer()),
    };
    const isPaid = PAYMENT_HEADERS.some((name) => request.headers.has(name));
    const response = await (isPaid ? this.#follow(sent, request.signal) : this.#send(sent, request.signal));
    return response.status === 402 ? this.#withinCap(response, isPaid) : response;
  };

  /**
   * Returns the 402 if all its offers are within the cap, else a 403. Its price may differ from the check's estimate,
   * and some wallets (mppx) sign the 402 that answers a payment too. A 402 that answers a payment and offers nothing is
   * returned, since there is nothing in it to sign.
   */
  async #withinCap(response: Response, isPaid: boolean): Promise<Response> {
    const { cap_micro } = this;
    if (cap_micro === null) return response;
    const { offers, unread } = await read402(response, TERMS_TIMEOUT_MS);
    const fits = (offer: Offer): boolean => {
      const { asset, network, amount } = offer;
      if (unreadIn(offer).length > 0 || asset === null || network === null || amount === null) return false;
      return isUsdc(asset, [network]) && amount <= cap_micro;
    };
    if (unread === null && (isPaid || offers.length > 0) && offers.every(fits)) return response;
    response.body?.cancel().catch(() => {});
    this.hasPaid = false;
    const asks = offers.map(({ amount, asset }) => `${amount} of ${asset}`).join(", ");
    return problem(403, "Over the cap", `the 402 asks ${asks || "nothing that can be read"}; the cap is ${cap_micro}`);
  }

  #send({ url, method, headers, body }: PaidRequest, signal: AbortSignal): Promise<Response> {
    const timed = AbortSignal.any([signal, AbortSignal.timeout(this.#patience.answer_ms)]);
    return globalThis.fetch(url, { method, headers, body, redirect: "manual", signal: timed });
  }

  /**
   * Sends a payment, again if necessary, until its outcome is known. Nothing is signed here, so nothing is paid twice.
   */
  async #follow(paid: PaidRequest, signal: AbortSignal): Promise<Response> {
    this.hasPaid = true;
    const { sends, within_ms, wait_ms } = this.#patience;
    const endMs = performance.now() + within_ms;
    let state: string | null = null;
    let cause: unknown;
    // A replica does not see what another one is about to buy. So a refusal that names no order ends nothing while an
    // earlier sending may still create one.
    let unseenUntilMs = 0;
    for (let n = 0; n < sends && performance.now() < endMs && !signal.aborted; n++) {
      let wait = wait_ms * Math.min(2 ** n, MAX_WAIT_TIMES);
      try {
        const response = await this.#readWhole(await this.#send(paid, signal));
        const isFinal = !isOpen(response);
        const isOrderKnown = this.order !== null || hasOrder(response);
        if (isFinal && (isOrderKnown || performance.now() >= unseenUntilMs)) return response;
        if (!isFinal && !isNotBegun(response)) unseenUntilMs = performance.now() + UNSEEN_MS;
        wait = Math.max(wait, (retryAfter(response.headers) ?? 0) * 1000);
        if (response.status === 202) state = await this.#awaitOrder(response, endMs);
        // The order has ended, so the payment is sent again at once, which fetches the answer.
        if (state !== null && FINAL.has(state)) continue;
      } catch (error) {
        cause = error;
        unseenUntilMs = performance.now() + UNSEEN_MS;
      }
      if (n + 1 < sends) await sleep(Math.max(0, Math.min(wait, endMs - performance.now())));
    }
    this.#unknown = new BuyUnknown(this.order, state, paid, { cause });
    throw this.#unknown;
  }

  /** Reads the body of a response to its end. @throws if the body breaks off */
  async #readWhole(response: Response): Promise<Response> {
    const { status, statusText } = response;
    const body = (await readBounded(response.body, MAX_ANSWER_BYTES)) as Uint8Array<ArrayBuffer>;
    const headers = new Headers(response.headers);
    // These headers describe the encoded body; the body here is decoded.
    for (const name of ["content-encoding", "content-length"]) headers.delete(name);
    if (status === 0) throw new ServiceFault("redirected", "the service answered with a redirect");
    const isBodyless = status === 204 || status === 205 || status === 304;
    return new Response(isBodyless ? null : body, { status, statusText, headers });
  }

  /** Reads the order that a 202 names until it has ended or time is up. @returns its newest state; null: not known */
  async #awaitOrder(response: Response, endMs: number): Promise<string | null> {
    const order = (await response.json()) as { order_id?: unknown; state?: unknown };
    if (typeof order.order_id !== "string" || !/^[\w-]{1,100}$/.test(order.order_id)) return null;
    this.order = order.order_id;
    let state = typeof order.state === "string" ? order.state : null;
    for (let n = 0; performance.now() < endMs && !(state !== null && FINAL.has(state)); n++) {
      const wait = this.#patience.wait_ms * Math.min(2 ** n, MAX_WAIT_TIMES);
      await sleep(Math.max(0, Math.min(wait, endMs - performance.now())));
      try {
        const { body } = await this.service.ask(`/v1/orders/${this.order}`, {}, { max_bytes: MAX_ORDER_BYTES });
        const read = (body as { state?: unknown } | null)?.state;
        if (typeof read === "string") state = read;
      } catch (error) {
        // A 404: the service does not know the order, so the payment is sent again.
        if (error instanceof ServiceFault && error.status === 404) return null;
      }
    }
    return state;
  }
}

const hasSettlement = ({ headers }: Response): boolean =>
  headers.has("payment-response") || headers.has("x-payment-response");

const hasOrder = (response: Response): boolean => response.headers.has("touchstone-order") || hasSettlement(response);

const isProblem = ({ headers }: Response): boolean =>
  (headers.get("content-type") ?? "").startsWith("application/problem+json");

/** Does this response state that the service did not begin to work on the request? */
const isNotBegun = (response: Response): boolean =>
  (response.status === 429 || response.status === 503) && isProblem(response);

/**
 * Is the outcome of a payment still open after this response? Only an answer of the service itself decides the outcome:
 * a response with a settlement or the id of an order, a 402 with terms, or a problem document. Any other response was
 * sent by something in between (a proxy, a CDN, the HTTP server below the service), which does not know whether the
 * service still works on the request. The outcome is also open after a 202 without a settlement, and after a 408, a 429
 * or a 5xx other than 502: the service itself sends these too, if it did not read the request or failed on the way.
 */
function isOpen(response: Response): boolean {
  const { status, headers } = response;
  if (hasSettlement(response)) return false;
  if (status === 202 || status === 408 || status === 429 || (status >= 500 && status !== 502)) return true;
  return !isProblem(response) && !hasOrder(response) && !(status === 402 && headers.has("payment-required"));
}
