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
  /** Sends the requests; default the runtime's own fetch. Never pass one that pays: a check is free. */
  fetch?: Fetch;
  /** Time for one question, with its answer's body and the keys. Default 2000. */
  timeout_ms?: number;
  /** The keys document, if you have it from a more trusted source than `base`. Then it is not read from there. */
  keys?: Jwks;
  /** Largest difference between our clock and the time of a signed answer. Default 300. */
  maxAge_s?: number;
  /**
   * A witness policy, of `witnessPolicy` in `touchstone-client/proof`: an answer with a card is believed only if the card is
   * proven to be in a log that enough of the policy's witnesses have seen. One more request for each check.
   */
  policy?: AnswerProver;
  /** Most answers that are cached (for a minute each); the oldest is dropped first. Default 500. */
  maxHeld?: number;
  /** Returns milliseconds since 1970; default `Date.now`. */
  now?: () => number;
}

/** Proves the card behind an answer with the service's card bundle. */
export interface AnswerProver {
  /** @throws Error with the reason */
  proveAnswer(answer: CheckAnswer, bundle: unknown, now_ms: number): Promise<unknown>;
}

export interface Question {
  /** Url that is about to be paid, or a capability id. */
  url: string;
  method?: "GET" | "POST" | undefined;
  /** payTo of the 402 that is about to be paid. */
  payTo?: string | undefined;
}

/** What is sought beside the words. */
export interface SearchOptions {
  /** Class of what is sold, as answers name it. */
  class?: string | undefined;
  /** This letter or a better one. `UNRATED`: only those without a letter. */
  band?: CheckAnswer["band"] | undefined;
  /** In USDC, such as `0.05`. */
  max_price?: string | undefined;
  /** A CAIP-2 id, or a name such as `base`. */
  network?: string | undefined;
  order?: SearchOrder | undefined;
  /** 1 to 50; default 10. */
  limit?: number | undefined;
}

const MAX_URL = 2048;
const CACHED_MS = 60_000;
const MAX_HELD = 500;
const MAX_CHECK_BYTES = 256 * 1024;
const MAX_REPORT_BYTES = 4 * 1024 * 1024;
/** A report of two hundred dependencies gets this many times the time of one question. */
const REPORT_TIMES = 5;

/** The form that the service takes as `pay_to` (interface, GET /v1/check). */
const PAY_TO = /^(?:0x[0-9a-fA-F]{40}|[1-9A-HJ-NP-Za-km-z]{32,44})$/;
export const isPayTo = (address: string): boolean => PAY_TO.test(address);

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

/** Is this address reached over https, or on this machine, so that others on the way do not see what is sent? */
export const isSafe = ({ protocol, hostname }: URL): boolean =>
  protocol === "https:" || (protocol === "http:" && LOOPBACK.test(hostname));

/** @throws TypeError for text that is no https address, and for http to another machine */
function readBase(text: string): string {
  const url = new URL(text);
  if (!isSafe(url)) throw new TypeError(`the service is asked over https: ${text}`);
  if (url.username || url.password || url.search || url.hash)
    throw new TypeError(`not the address of a service: ${text}`);
  return `${url.origin}${url.pathname.replace(/\/$/, "")}`;
}

/**
 * The url in the form in which the service is asked: without user and password, which are for the seller only; and,
 * where it is longer than the service takes, without its query, since origin and path alone match too (`matched:
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

interface Cached {
  at: number;
  answer: Promise<CheckAnswer>;
}

/** Asks the service. Every answer is bounded in size and time, and is returned only when its signature is valid. */
export class Service {
  readonly base: string;
  readonly keys: KeySet;
  readonly now: () => number;
  readonly #fetch: Fetch;
  readonly #timeout_ms: number;
  readonly #maxAge_ms: number;
  readonly #maxHeld: number;
  readonly #policy: AnswerProver | undefined;
  readonly #cache = new Map<string, Cached>();

  /** @throws TypeError when `base` is not https (or http on this machine) */
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

  /**
   * What the record holds about a url (GET /v1/check), with the signature verified. Answers are cached for a minute,
   * and one question is not sent twice at once.
   * @throws ServiceFault
   */
  check(question: Question): Promise<CheckAnswer> {
    const { url, method, payTo } = question;
    const query = new URLSearchParams({ url: urlToAsk(url) });
    if (method) query.set("method", method);
    if (payTo) query.set("pay_to", payTo);
    const name = query.toString();
    const held = this.#cache.get(name);
    const age = held ? this.now() - held.at : -1;
    if (held && age >= 0 && age < CACHED_MS) return held.answer;
    const answer = this.#checkNow(query, method);
    this.#keep(name, answer);
    return answer;
  }

  #keep(name: string, answer: Promise<CheckAnswer>): void {
    this.#cache.delete(name);
    if (this.#cache.size >= this.#maxHeld) this.#cache.delete(this.#cache.keys().next().value!);
    const entry = { at: this.now(), answer };
    this.#cache.set(name, entry);
    // A failed question is not cached, so it can be asked again at once.
    answer.catch(() => {
      if (this.#cache.get(name) === entry) this.#cache.delete(name);
    });
  }

  async #checkNow(query: URLSearchParams, method: Question["method"]): Promise<CheckAnswer> {
    const { body } = await this.ask(`/v1/check?${query}`, {}, { max_bytes: MAX_CHECK_BYTES });
    const answer = (await this.verified(body, "answers", "answered_at")) as CheckAnswer;
    if (!Array.isArray(answer.defects) || typeof answer.band !== "string" || typeof answer.why !== "string") {
      throw new ServiceFault("bad_answer", "signed, but no check answer");
    }
    // There are thousands of signed answers to other questions. None of them must be taken for the answer to this one.
    const payTo = query.get("pay_to");
    const isOther = answer.asked !== query.get("url") || (payTo !== null && !isAbout(answer, payTo));
    if (isOther) throw new ServiceFault("other_answer", `signed, but about ${String(answer.asked).slice(0, 200)}`);
    if (method && !(await isOfMethod(answer, method))) {
      throw new ServiceFault("other_answer", `signed, but about another method than ${method}`);
    }
    await this.#prove(answer);
    return answer;
  }

  /** Without a letter and a card an answer claims nothing that a log could hold. @throws ServiceFault */
  async #prove(answer: CheckAnswer): Promise<void> {
    if (!this.#policy || (answer.band === "UNRATED" && !answer.scorecard)) return;
    const path = `/v1/trust/${encodeURIComponent(answer.capabilityId ?? "")}/bundle`;
    const { body } = await this.ask(path, {}, { max_bytes: MAX_CHECK_BYTES });
    await this.#policy.proveAnswer(answer, body, this.now()).catch((error: Error) => {
      throw new ServiceFault("unproven", error.message);
    });
  }

  /**
   * What the record holds about up to 200 dependencies, summed up by payee (POST /v1/exposure), with the signature
   * verified.
   * @throws ServiceFault
   */
  async exposure(dependencies: readonly (string | Dependency)[]): Promise<ExposureReport> {
    const init = postOf({ dependencies });
    const limits = { max_bytes: MAX_REPORT_BYTES, timeout_ms: this.#timeout_ms * REPORT_TIMES };
    const { body } = await this.ask("/v1/exposure", init, limits);
    const report = (await this.verified(body, "answers", "answered_at")) as ExposureReport;
    if (report.schema !== "svc.exposure.v1" || report.lines?.length !== dependencies.length) {
      throw new ServiceFault("other_answer", "signed, but not the report that was asked for");
    }
    return report;
  }

  /**
   * Paid endpoints by what they do, in words (GET /v1/search), the best first. This answer is not signed: check the endpoint
   * that you choose, or let the guard do it, before you pay.
   * @throws ServiceFault
   */
  async search(q: string, options: SearchOptions = {}): Promise<SearchAnswer> {
    const query = new URLSearchParams({ q });
    for (const [name, value] of Object.entries(options)) if (value !== undefined) query.set(name, String(value));
    const { body } = await this.ask(`/v1/search?${query}`, {}, { max_bytes: MAX_REPORT_BYTES });
    const answer = body as SearchAnswer | null;
    if (!Array.isArray(answer?.capabilities)) throw new ServiceFault("bad_answer", "no answer to a search");
    return answer;
  }

  /** One exchange with the service. The answer is not verified. @throws ServiceFault */
  ask(path: string, init: RequestInit = {}, limits: Partial<Limits> = {}): Promise<JsonAnswer> {
    const all = { timeout_ms: this.#timeout_ms, max_bytes: MAX_CHECK_BYTES, ...limits };
    return askJson(this.#fetch, this.base + path, init, all);
  }

  /**
   * Returns the object if its signature is valid and not old.
   * @throws ServiceFault bad_signature, stale, or those of reading the keys
   */
  async verified(object: unknown, purpose: Purpose, member: string): Promise<object> {
    const at = (object as Record<string, unknown> | null)?.[member];
    const verdict = await this.keys.verify(object, { purpose, at: typeof at === "string" ? at : "" });
    if (!verdict.ok) throw new ServiceFault("bad_signature", WORDS[verdict.reason]);
    const age_ms = Math.abs(this.now() - Date.parse(at as string));
    if (age_ms > this.#maxAge_ms) throw new ServiceFault("stale", `signed at ${at}, ${age_ms} ms from our clock`);
    return object as object;
  }
}

const isAbout = ({ payee }: CheckAnswer, payTo: string): boolean =>
  typeof payee?.address === "string" && addressKey(payee.address) === addressKey(payTo);

/** Makes a POST of JSON. */
export const postOf = (body: unknown): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});

const WORDS: Readonly<Record<VerifyFault, string>> = {
  malformed: "the answer is not signed as answers of the service are",
  canonicalization: "the answer has no canonical bytes",
  unknown_key: "no published key has the id that the answer names",
  wrong_purpose: "the key that the answer names signs other things",
  bad_key: "the published key is not fit for use",
  not_yet_valid: "the key was not valid yet when the answer was given",
  retired: "the key was retired when the answer was given",
  bad_signature: "the signature does not hold: something was changed on the way",
};
