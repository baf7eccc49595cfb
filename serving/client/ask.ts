import type { VerifyFault } from "../../infra/keys/examine.ts";
import type { Jwks, Purpose } from "../../infra/keys/jwk.ts";
import { parseUrl } from "../../infra/url.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import type { CheckAnswer, Dependency, ExposureReport, SearchAnswer, SearchOrder } from "./answers.ts";
import { askJson, type Fetch, type JsonAnswer, type Limits, ServiceFault } from "./http.ts";
import { isOfMethod } from "./method.ts";
import { KeySet } from "./verify.ts";

export interface ServiceOptions {
  /** Address of the service, such as `https://HOST`. Plain http only on this machine. */
  base: string;
  /** Sends the requests. Default: the runtime's fetch. Never pass a fetch that pays: a check is free. */
  fetch?: Fetch;
  /**
   * Time limit of each request to the service, its response body included. Default 2000. A call that also fetches the
   * keys or a card bundle sends several requests.
   */
  timeout_ms?: number;
  /**
   * The keys document, if you have it from a source that you trust more than `base`. Then it is not fetched from
   * `base`.
   */
  keys?: Jwks;
  /** Largest allowed difference between `now` and the time of a signed answer. Default 300. */
  maxAge_s?: number;
  /**
   * A witness policy, made by `witnessPolicy` of `touchstone-client/proof`. With it, an answer with a card (signed
   * grade) is accepted only if the card is proven to be in a log that enough of the policy's witnesses have signed.
   * The proof costs one more request for each check that is not cached.
   */
  policy?: AnswerProver;
  /** Largest number of cached answers. Each is cached for a minute; the oldest is dropped first. Default 500. */
  maxHeld?: number;
  /** Returns milliseconds since 1970; default `Date.now`. */
  now?: () => number;
}

/** Proves the card behind an answer with the card bundle (the card and its proof) that the service returns. */
export interface AnswerProver {
  /** Proves the card of an answer from a bundle. @throws Error with the reason if the card is not proven */
  proveAnswer(answer: CheckAnswer, bundle: unknown, now_ms: number): Promise<unknown>;
}

export interface Question {
  /** Url of the endpoint that is about to be paid, or its capability id. */
  url: string;
  method?: "GET" | "POST" | undefined;
  /** payTo of the 402 that is about to be paid. */
  payTo?: string | undefined;
}

/** Filters and order of a search. */
export interface SearchOptions {
  /** Class of what an endpoint sells, as in `class` of an endpoint that was found. */
  class?: string | undefined;
  /** Lowest letter (grade from A to F). `UNRATED`: only endpoints without a letter. */
  band?: CheckAnswer["band"] | undefined;
  /** Highest price of a call in USDC, such as `0.05`. */
  max_price?: string | undefined;
  /** A CAIP-2 id, or a name such as `base`. */
  network?: string | undefined;
  order?: SearchOrder | undefined;
  /** Most results, 1 to 50; default 10. */
  limit?: number | undefined;
}

const MAX_URL = 2048;
const CACHE_MS = 60_000;
const MAX_HELD = 500;
const MAX_CHECK_BYTES = 256 * 1024;
const MAX_REPORT_BYTES = 4 * 1024 * 1024;
/** The time limit of an exposure report, with up to 200 dependencies, is this many times that of another request. */
const REPORT_TIMES = 5;

/** An address that the service accepts as `pay_to` of GET /v1/check: of an EVM chain or of Solana. */
const PAY_TO = /^(?:0x[0-9a-fA-F]{40}|[1-9A-HJ-NP-Za-km-z]{32,44})$/;
export const isPayTo = (address: string): boolean => PAY_TO.test(address);

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

/** Is this url https, or http on this machine, so that nobody on the network can read what is sent? */
export const isSafe = ({ protocol, hostname }: URL): boolean =>
  protocol === "https:" || (protocol === "http:" && LOOPBACK.test(hostname));

/**
 * Returns the address of a service without a trailing slash.
 * @throws TypeError for http to another machine, and for a url with a user, a password, a query or a fragment
 */
function readBase(text: string): string {
  const url = new URL(text);
  if (!isSafe(url)) throw new TypeError(`the address of the service must be https: ${text}`);
  if (url.username || url.password || url.search || url.hash)
    throw new TypeError(`the address of the service must have no user, password, query or fragment: ${text}`);
  return `${url.origin}${url.pathname.replace(/\/$/, "")}`;
}

/**
 * Returns the url that is sent to the service: without user and password, which are for the seller only; and, if it is
 * longer than the service accepts, without its query, since the service also matches by origin and path (`matched:
 * path`).
 */
function urlToAsk(text: string): string {
  const url = parseUrl(text);
  if (url === null) return text;
  url.username = "";
  url.password = "";
  if (url.href.length > MAX_URL) url.search = "";
  return url.href;
}

interface CachedAnswer {
  at: number;
  answer: Promise<CheckAnswer>;
}

/**
 * A client of one service. Every response is bounded in size and time. `check` and `exposure` return an answer only if
 * its signature is valid.
 */
export class Service {
  readonly base: string;
  readonly keys: KeySet;
  readonly now: () => number;
  readonly #fetch: Fetch;
  readonly #timeout_ms: number;
  readonly #maxAge_ms: number;
  readonly #maxHeld: number;
  readonly #policy: AnswerProver | undefined;
  readonly #cache = new Map<string, CachedAnswer>();

  /** @throws TypeError for a `base` that is not https, or has a query */
  constructor(options: ServiceOptions) {
    this.base = readBase(options.base);
    this.now = options.now ?? Date.now;
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
    this.#timeout_ms = options.timeout_ms ?? 2000;
    this.#maxAge_ms = (options.maxAge_s ?? 300) * 1000;
    this.#maxHeld = options.maxHeld ?? MAX_HELD;
    this.#policy = options.policy;
    const { base, now } = this;
    this.keys = new KeySet({ base, now, fetch: this.#fetch, timeout_ms: this.#timeout_ms, pinned: options.keys });
  }

  /** Checks a url (GET /v1/check). Equal questions within a minute share one request. @throws ServiceFault */
  check(question: Question): Promise<CheckAnswer> {
    const { url, method, payTo } = question;
    const query = new URLSearchParams({ url: urlToAsk(url) });
    if (method) query.set("method", method);
    if (payTo) query.set("pay_to", payTo);
    const name = query.toString();
    const held = this.#cache.get(name);
    const age = held ? this.now() - held.at : -1;
    if (held && age >= 0 && age < CACHE_MS) return held.answer;
    const answer = this.#checkNow(query, method);
    this.#keep(name, answer);
    return answer;
  }

  #keep(name: string, answer: Promise<CheckAnswer>): void {
    this.#cache.delete(name);
    if (this.#cache.size >= this.#maxHeld) this.#cache.delete(this.#cache.keys().next().value!);
    const entry = { at: this.now(), answer };
    this.#cache.set(name, entry);
    // A failed request is removed from the cache, so that the caller can try again at once.
    answer.catch(() => {
      if (this.#cache.get(name) === entry) this.#cache.delete(name);
    });
  }

  async #checkNow(query: URLSearchParams, method: Question["method"]): Promise<CheckAnswer> {
    const { body } = await this.ask(`/v1/check?${query}`, {}, { max_bytes: MAX_CHECK_BYTES });
    const answer = (await this.verified(body, "answers", "answered_at")) as CheckAnswer;
    if (!Array.isArray(answer.defects) || typeof answer.band !== "string" || typeof answer.why !== "string") {
      throw new ServiceFault("bad_answer", "the signed object is not a check answer");
    }
    // Somebody could replay a signed answer to another question, so the answer must name this question.
    const payTo = query.get("pay_to");
    const isOther = answer.asked !== query.get("url") || (payTo !== null && !isAbout(answer, payTo));
    if (isOther)
      throw new ServiceFault("other_answer", `the signed answer is about ${String(answer.asked).slice(0, 200)}`);
    if (method && !(await isOfMethod(answer, method))) {
      throw new ServiceFault("other_answer", `the signed answer is about another method than ${method}`);
    }
    await this.#prove(answer);
    return answer;
  }

  /** Proves the card of an answer under the policy. An answer with neither letter nor card needs no proof. */
  async #prove(answer: CheckAnswer): Promise<void> {
    if (!this.#policy || (answer.band === "UNRATED" && !answer.scorecard)) return;
    const path = `/v1/trust/${encodeURIComponent(answer.capabilityId ?? "")}/bundle`;
    const { body } = await this.ask(path, {}, { max_bytes: MAX_CHECK_BYTES });
    await this.#policy.proveAnswer(answer, body, this.now()).catch((error: Error) => {
      throw new ServiceFault("unproven", error.message);
    });
  }

  /**
   * Checks up to 200 dependencies (endpoints that the caller pays), with sums by payee (POST /v1/exposure). The signed
   * report must repeat each dependency: a report about other dependencies is refused.
   * @throws ServiceFault
   */
  async exposure(dependencies: readonly (string | Dependency)[]): Promise<ExposureReport> {
    const init = postOf({ dependencies });
    const limits = { max_bytes: MAX_REPORT_BYTES, timeout_ms: this.#timeout_ms * REPORT_TIMES };
    const { body } = await this.ask("/v1/exposure", init, limits);
    const report = (await this.verified(body, "answers", "answered_at")) as ExposureReport;
    const isOther =
      report.schema !== "svc.exposure.v1" ||
      report.lines?.length !== dependencies.length ||
      !dependencies.every((one, i) => isLineOf(report.lines[i]!, typeof one === "string" ? { url: one } : one));
    if (isOther) {
      throw new ServiceFault("other_answer", "the signed answer is no report on these dependencies");
    }
    return report;
  }

  /**
   * Searches endpoints by words (GET /v1/search), the best first. The answer is not signed: check an endpoint before
   * you pay it.
   * @throws ServiceFault
   */
  async search(q: string, options: SearchOptions = {}): Promise<SearchAnswer> {
    const query = new URLSearchParams({ q });
    for (const [name, value] of Object.entries(options)) if (value !== undefined) query.set(name, String(value));
    const { body } = await this.ask(`/v1/search?${query}`, {}, { max_bytes: MAX_REPORT_BYTES });
    const answer = body as SearchAnswer | null;
    if (!Array.isArray(answer?.capabilities)) throw new ServiceFault("bad_answer", "the answer is not a search answer");
    return answer;
  }

  /** Sends one request; the signature of the answer is not verified. @throws ServiceFault */
  ask(path: string, init: RequestInit = {}, limits: Partial<Limits> = {}): Promise<JsonAnswer> {
    const all = { timeout_ms: this.#timeout_ms, max_bytes: MAX_CHECK_BYTES, ...limits };
    return askJson(this.#fetch, this.base + path, init, all);
  }

  /**
   * Returns the object if its signature is valid and recent.
   * @param member name of the object's member with the time of signing
   * @throws ServiceFault
   */
  async verified(object: unknown, purpose: Purpose, member: string): Promise<object> {
    const at = (object as Record<string, unknown> | null)?.[member];
    const verdict = await this.keys.verify(object, { purpose, at: typeof at === "string" ? at : "" });
    if (!verdict.ok) throw new ServiceFault("bad_signature", FAULT_TEXT[verdict.reason]);
    const age_ms = Math.abs(this.now() - Date.parse(at as string));
    if (age_ms > this.#maxAge_ms)
      throw new ServiceFault("stale", `the answer was signed at ${at}, ${age_ms} ms from the time here`);
    return object as object;
  }
}

/** Does a line of a report repeat every member that the request has for this dependency, and no other? */
export const isLineOf = (
  line: ExposureReport["lines"][number],
  { url, calls_per_month, price, pay_to }: Dependency,
): boolean =>
  line.asked === url &&
  line.calls_per_month === (calls_per_month ?? null) &&
  line.price_given === (price === undefined ? undefined : sixDecimals(price)) &&
  (pay_to === undefined
    ? line.pay_to_seen_before === undefined
    : line.pay_to_seen_before !== undefined && line.pay_to === pay_to);

/** Returns an amount of dollars as the service prints it: "00.05" gives "0.050000". */
const sixDecimals = (price: string): string =>
  price.replace(/^0+(?=\d)/, "").replace(/\.\d+$/, (fraction) => fraction.padEnd(7, "0"));

const isAbout = ({ payee }: CheckAnswer, payTo: string): boolean =>
  typeof payee?.address === "string" && addressKey(payee.address) === addressKey(payTo);

/** Returns the options of a POST request with a JSON body. */
export const postOf = (body: unknown): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});

const FAULT_TEXT: Readonly<Record<VerifyFault, string>> = {
  malformed: "a member that every signed answer has is missing or malformed",
  canonicalization: "the answer has no RFC 8785 form",
  unknown_key: "no published key has the id that the answer names",
  wrong_purpose: "the key that the answer names is not for signing answers",
  bad_key: "the published key is invalid",
  not_yet_valid: "the key was not yet valid when the answer was signed",
  retired: "the key was already retired when the answer was signed",
  bad_signature: "the signature does not match the answer",
};
