import type { Offer } from "../../pipelines/record/terms/offers.ts";
import type { Service } from "./ask.ts";
import { isUsdc, unreadIn } from "./concerns.ts";
import { read402 } from "./demands.ts";
import { readBounded, retryAfter, ServiceFault } from "./http.ts";

/** How long, and how often, an open outcome is asked for. */
export interface Patience {
  /** Time from the first sending of the payment. Default 300,000. */
  within_ms: number;
  /** Time for one answer, with a slow seller, the check and the settlement. Default 150,000. */
  answer_ms: number;
  /**
   * Pause before asking again; it doubles each time, up to sixteen times as long, and `Retry-After` is honoured.
   * Default 1000.
   */
  wait_ms: number;
  /** Most times that the payment is sent. Default 8. */
  sends: number;
}

const PATIENCE: Patience = { within_ms: 300_000, answer_ms: 150_000, wait_ms: 1000, sends: 8 };

/**
 * The request as it was sent with its payment. Sending these bytes again asks for the same order, and pays only once.
 */
export interface PaidRequest {
  url: string;
  method: string;
  headers: [string, string][];
  body: Uint8Array<ArrayBuffer> | null;
}

/** A payment was sent, and its outcome is not known yet. Sending `paid` again as it is charges nothing twice. */
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

/** States in which no more money moves, so that the order's answer can be fetched. Unknown states count as open. */
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
const MAX_ORDER_BYTES = 256 * 1024;
/** Longest answer of a seller that the service takes, bytes. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
const TERMS_WITHIN_MS = 5000;
const MAX_WAIT_TIMES = 16;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const problem = (status: number, title: string, detail: string): Response =>
  new Response(JSON.stringify({ type: "about:blank", title, status, detail, refused_by: "touchstone-client" }), {
    status,
    headers: { "content-type": "application/problem+json", "cache-control": "no-store" },
  });

/** The fetch below a wallet: refuses prices above the cap, and follows a payment that was sent to its outcome. */
export class Carrier {
  /** Id of the order, once the service has named it. */
  order: string | null = null;
  /** Was a payment sent? */
  hasPaid = false;
  readonly #patience: Patience;
  #unknown: BuyUnknown | null = null;

  constructor(
    private readonly service: Service,
    private readonly cap_micro: bigint,
    patience: Partial<Patience> = {},
  ) {
    this.#patience = { ...PATIENCE, ...patience };
  }

  readonly fetch = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    // A wallet that tries again by itself would sign a second payment while the first may still be charged.
    if (this.#unknown) throw this.#unknown;
    const request = new Request(input, init);
    const sent: PaidRequest = {
      url: request.url,
      method: request.method,
      headers: [...request.headers],
      body: request.body === null ? null : new Uint8Array(await request.arrayBuffer()),
    };
    if (PAYMENT_HEADERS.some((name) => request.headers.has(name))) return this.#carry(sent, request.signal);
    const response = await this.#send(sent, request.signal);
    return response.status === 402 ? this.#withinCap(response) : response;
  };

  /** Checks the price quoted for the call, which may differ from the check's estimate, against the cap. */
  async #withinCap(response: Response): Promise<Response> {
    const { offers, unread } = await read402(response, TERMS_WITHIN_MS);
    const fits = (offer: Offer): boolean => {
      const { asset, network, amount } = offer;
      if (unreadIn(offer).length > 0 || asset === null || network === null || amount === null) return false;
      return isUsdc(asset, [network]) && amount <= this.cap_micro;
    };
    if (unread === null && offers.length > 0 && offers.every(fits)) return response;
    response.body?.cancel().catch(() => {});
    const asks = offers.map(({ amount, asset }) => `${amount} of ${asset}`).join(", ");
    return problem(403, "Over the cap", `it asks ${asks || "nothing that can be read"}; the cap is ${this.cap_micro}`);
  }

  #send({ url, method, headers, body }: PaidRequest, signal: AbortSignal): Promise<Response> {
    const timed = AbortSignal.any([signal, AbortSignal.timeout(this.#patience.answer_ms)]);
    return globalThis.fetch(url, { method, headers, body, redirect: "manual", signal: timed });
  }

  /** Sends a payment until its outcome is known. Nothing is signed here, so nothing can be paid twice. */
  async #carry(paid: PaidRequest, signal: AbortSignal): Promise<Response> {
    this.hasPaid = true;
    const { sends, within_ms, wait_ms } = this.#patience;
    const until = performance.now() + within_ms;
    let state: string | null = null;
    let cause: unknown;
    for (let n = 0; n < sends && performance.now() < until && !signal.aborted; n++) {
      let wait = wait_ms * Math.min(2 ** n, MAX_WAIT_TIMES);
      try {
        const response = await this.#whole(await this.#send(paid, signal));
        if (!isOpen(response)) return response;
        wait = Math.max(wait, (retryAfter(response.headers) ?? 0) * 1000);
        if (response.status === 202) state = await this.#settled(response, until);
        // The order has ended: the payment is sent once more at once, which fetches the answer.
        if (state !== null && FINAL.has(state)) continue;
      } catch (error) {
        cause = error;
      }
      await sleep(Math.max(0, Math.min(wait, until - performance.now())));
    }
    this.#unknown = new BuyUnknown(this.order, state, paid, { cause });
    throw this.#unknown;
  }

  /** Reads an answer to its end, since one that breaks off is as lost as none. */
  async #whole(response: Response): Promise<Response> {
    const { status, statusText } = response;
    const body = (await readBounded(response.body, MAX_ANSWER_BYTES)) as Uint8Array<ArrayBuffer>;
    const headers = new Headers(response.headers);
    // These headers describe the bytes on the wire; the body here is decoded.
    for (const name of ["content-encoding", "content-length"]) headers.delete(name);
    if (status === 0) throw new ServiceFault("redirected", "the service answered with a redirect");
    const isBodyless = status === 204 || status === 205 || status === 304;
    return new Response(isBodyless ? null : body, { status, statusText, headers });
  }

  /** Reads the order that a 202 names until it has ended or time is up. @returns its newest state */
  async #settled(response: Response, until: number): Promise<string | null> {
    const begun = (await response.json()) as { order_id?: unknown; state?: unknown };
    if (typeof begun.order_id !== "string" || !/^[\w-]{1,100}$/.test(begun.order_id)) return null;
    this.order = begun.order_id;
    let state = typeof begun.state === "string" ? begun.state : null;
    for (let n = 0; performance.now() < until && !(state !== null && FINAL.has(state)); n++) {
      const wait = this.#patience.wait_ms * Math.min(2 ** n, MAX_WAIT_TIMES);
      await sleep(Math.max(0, Math.min(wait, until - performance.now())));
      try {
        const { body } = await this.service.ask(`/v1/orders/${this.order}`, {}, { max_bytes: MAX_ORDER_BYTES });
        const read = (body as { state?: unknown } | null)?.state;
        if (typeof read === "string") state = read;
      } catch (error) {
        // The service does not know this order, so only the payment itself is left to ask with.
        if (error instanceof ServiceFault && error.status === 404) return null;
      }
    }
    return state;
  }
}

/**
 * Is the outcome still open? A 202 means that; after a 429 or 503 the request was not looked at; a 5xx that is no
 * problem document comes from a proxy in between. A 502 of the service itself means that nothing was delivered and
 * nobody charged.
 */
function isOpen({ status, headers }: Response): boolean {
  if (status === 202) return headers.get("payment-response") === null;
  if (status === 429 || status === 503) return true;
  const isProblem = (headers.get("content-type") ?? "").startsWith("application/problem+json");
  return status === 500 || status === 504 || (status === 502 && !isProblem);
}
