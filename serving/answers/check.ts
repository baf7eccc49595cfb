import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { isId } from "../../pipelines/record/ids.ts";
import { DAY_MS, rfc3339 } from "../../pipelines/record/time.ts";
import { BadUrl, normaliseUrl, toolInUrl } from "../../pipelines/record/url.ts";
import { AnswerCache, type CacheBounds, type CachedAnswer, CHECK_CACHE_BOUNDS } from "../http/answer-cache.ts";
import { Problem } from "../http/problem.ts";
import type { Buy, CheckAnswer, CheckFacts, CheckQuery } from "../schemas/check.ts";
import { headlineOf } from "../tables/entry.ts";
import { hasTools, type Match, matchUrl } from "../tables/match.ts";
import type { View } from "../tables/view.ts";
import type { AskReply, Asks } from "./asks.ts";
import type { Demand } from "./demand.ts";
import { knownFacts, unknownFacts } from "./facts.ts";

/** Largest number of characters of a host name in the DNS (RFC 1035 section 2.3.4). */
const MAX_HOST_LENGTH = 253;

export interface CheckDeps {
  /** Returns the newest view, the state of the record that answers are made from. */
  view: () => View;
  /** Queues urls that clients asked about for a free probe. */
  asks: Pick<Asks, "put">;
  /** Counts which endpoints clients check; absent: nothing is counted. */
  demand?: Pick<Demand, "count"> | undefined;
  /** Reports whether a url may be probed at all, and if not, why. */
  validateUrl: Egress["validate"];
  /**
   * Returns how an endpoint is bought through the service, or why it cannot be; absent: answers do not mention buying.
   * `under` is a normalised url that matches the endpoint's template.
   */
  termsOf?: ((view: View, cap: string, under?: string) => Buy | { says: string }) | undefined;
  /** Signs answers. */
  signer: Signer;
  clock: Clock;
  bounds?: CacheBounds;
}

/** Returns the cache key of a query. Only the url may contain a space, so it comes last. */
const cacheKey = ({ method, pay_to }: CheckQuery, url: string): string => `${method ?? ""} ${pay_to ?? ""} ${url}`;

/** A cached answer to one spelling of its url. */
interface SpelledAnswer extends CachedAnswer {
  /** The url in the answer's member `asked`. */
  asked: string;
}

/** The url of a query after normalisation and look-up. */
interface ResolvedQuery {
  /** The url normalised; null for a capability id. */
  normalised: string | null;
  /**
   * The url in the cache key: the normalised url, followed by the requested tool's name if the record has tools of
   * that MCP server; or the capability id.
   */
  url: string;
}

/** Answers GET /v1/check: what the record holds about a url or an id, signed. Answers are cached for a minute. */
export class Checks {
  readonly #cache: AnswerCache<SpelledAnswer>;
  /**
   * Answers that are being made, by cache key. Clients that send the same query meanwhile share the answer, and its
   * url is queued once.
   */
  readonly #underway = new Map<string, Promise<SpelledAnswer>>();

  constructor(private readonly deps: CheckDeps) {
    this.#cache = new AnswerCache(deps.bounds ?? CHECK_CACHE_BOUNDS, () => deps.clock.monotonic());
  }

  /** Returns the cached answer to this query, if there is one, and counts the check for {@link Demand}. */
  getCached(query: CheckQuery, client: string): CachedAnswer | undefined {
    const cached = this.#cache.get(cacheKey(query, query.url));
    // The entry of a normalised url may hold the answer to another spelling.
    return cached?.asked === query.url ? this.#countAnswer(cached, client) : undefined;
  }

  /**
   * Answers a valid query: synchronously, unless the url has to be queued for a probe, which takes an append to the
   * log.
   * @throws Problem bad_request for a text that is not a url
   */
  answer(query: CheckQuery, client: string): CachedAnswer | Promise<CachedAnswer> {
    const cached = this.getCached(query, client);
    if (cached) return cached;
    // Two spellings of one url share the cached answer; their answers differ only in `asked`.
    const resolved = this.#resolve(query.url);
    const key = cacheKey(query, resolved.url);
    const cachedForUrl = this.#cache.get(key);
    if (cachedForUrl) return this.#countAnswer(this.#respell(cachedForUrl, query), client);
    const underway = this.#underway.get(key);
    if (underway) return underway.then((original) => this.#respell(original, query));
    const facts = this.#facts(query, resolved.normalised, client);
    if (!(facts instanceof Promise)) return this.#countAnswer(this.#signAndCache(query, key, facts), client);
    const pending = facts
      .then((known) => this.#signAndCache(query, key, known))
      .finally(() => this.#underway.delete(key));
    this.#underway.set(key, pending);
    return pending;
  }

  /** Normalises and looks up the url or id of a query. @throws Problem bad_request */
  #resolve(asked: string): ResolvedQuery {
    if (isId("cap", asked)) return { normalised: null, url: asked };
    const normalised = normaliseAsked(asked);
    const tool = toolInUrl(asked);
    const hasTool = tool !== null && hasTools(this.deps.view(), normalised);
    return { normalised, url: hasTool ? `${normalised}#${encodeURIComponent(tool)}` : normalised };
  }

  #countAnswer(answer: CachedAnswer, client: string): CachedAnswer {
    if (answer.cap !== undefined) this.deps.demand?.count(answer.cap, client);
    return answer;
  }

  /** Makes the answer for another spelling of its url: only `asked` and the signature differ. */
  #respell(made: SpelledAnswer, query: CheckQuery): SpelledAnswer {
    if (made.asked === query.url) return made;
    const { signature: _, ...answer } = JSON.parse(made.bytes.toString("utf8")) as CheckAnswer;
    const respelled: SpelledAnswer = {
      ...made,
      ...bytesOf(this.deps.signer, { ...answer, asked: query.url }),
      asked: query.url,
    };
    this.#cache.set(cacheKey(query, query.url), respelled);
    return respelled;
  }

  /** Returns the age of an answer, ms. */
  age(answer: CachedAnswer): number {
    return this.deps.clock.monotonic() - answer.madeAt;
  }

  /**
   * Returns what the record holds about a valid query, without date and signature. The result is not cached. As
   * {@link answer}, it is synchronous unless the url has to be queued for a probe.
   * @throws Problem (or rejects with it), as {@link answer} does
   */
  facts(query: CheckQuery, client: string): CheckFacts | Promise<CheckFacts> {
    return this.#facts(query, isId("cap", query.url) ? null : normaliseAsked(query.url), client);
  }

  #facts(query: CheckQuery, normalised: string | null, client: string): CheckFacts | Promise<CheckFacts> {
    const view = this.deps.view();
    const factsOfUnknown = (reply: { queued?: boolean; next: string }): CheckFacts =>
      unknownFacts(view, query, { url: normalised, ...reply }, this.deps.clock.now());
    if (normalised === null) {
      if (view.has(query.url)) return this.#factsOfKnown(view, query, { cap: query.url, matched: "exact" }, client);
      return factsOfUnknown({ next: "No endpoint in the record has this id. Ask by its url instead." });
    }
    const match = matchUrl(view, normalised, query.method, toolInUrl(query.url));
    if (match) return this.#factsOfKnown(view, query, match, client);
    const refusalReason = this.#whyRefused(normalised);
    if (refusalReason) return factsOfUnknown(neverProbedReply(refusalReason));
    const ask = { url: withoutSecrets(query.url), normalised, method: query.method };
    return this.deps.asks.put(ask, client).then(factsOfUnknown);
  }

  /**
   * Returns what the record holds about a known endpoint. The endpoint is queued for a probe if it was never probed,
   * or if no probe was answered with a 402 and the last one is a day old (see {@link whyProbeAgain}).
   */
  #factsOfKnown(view: View, query: CheckQuery, match: Match, client: string): CheckFacts | Promise<CheckFacts> {
    const now = this.deps.clock.now();
    const urlInTemplate = match.matched === "path" ? normaliseAsked(query.url) : undefined;
    const terms = this.deps.termsOf?.(view, match.cap, urlInTemplate);
    const purchaseFields = terms === undefined ? {} : "says" in terms ? { not_bought: terms.says } : { buy: terms };
    const facts = { ...knownFacts(view, query, match, now), ...purchaseFields };
    const probeReason = whyProbeAgain(view, match, now);
    const { url } = facts;
    if (probeReason === null || url === undefined) return facts;
    const refusalReason = this.#whyRefused(url);
    if (refusalReason)
      return probeReason === ASKED_NO_PAYMENT ? facts : withNext(facts, neverProbedReply(refusalReason));
    const entry = view.entry(match.cap);
    const knownEndpoint = { cap: match.cap, tool: entry?.listing?.tool ?? null };
    const ask = { url, normalised: url, method: entry?.listing?.method ?? view.row(match.cap)?.method, knownEndpoint };
    return this.deps.asks
      .put(ask, client)
      .then(({ queued, next }) => withNext(facts, { queued, next: `${probeReason} ${next}` }));
  }

  /** Returns why this url is never probed, in words, or null. */
  #whyRefused(normalised: string): string | null {
    if (new URL(normalised).hostname.length > MAX_HOST_LENGTH) return "its host name is longer than any in the DNS";
    const verdict = this.deps.validateUrl(normalised);
    return verdict.ok ? null : verdict.says.replace(/\.$/, "");
  }

  /** Dates and signs an answer, and caches it under the normalised url and under the requested spelling. */
  #signAndCache(query: CheckQuery, key: string, facts: CheckFacts): SpelledAnswer {
    const { signer, clock } = this.deps;
    const signed: SpelledAnswer = {
      ...bytesOf(signer, { ...facts, asked: query.url, answered_at: rfc3339(clock.now()) }),
      ...{ cap: facts.capabilityId, madeAt: clock.monotonic(), asked: query.url },
    };
    this.#cache.set(key, signed);
    if (key !== cacheKey(query, query.url)) this.#cache.set(cacheKey(query, query.url), signed);
    return signed;
  }
}

/** Returns the bytes of a signed answer, and their etag. */
function bytesOf(signer: Signer, answer: object): Pick<CachedAnswer, "bytes" | "etag"> {
  const bytes = signedBytes(signer, answer);
  return { bytes, etag: `"${sha256hex(bytes).slice(0, 32)}"` };
}

const neverProbedReply = (refusalReason: string) => ({
  queued: false,
  next: `We never probe this address: ${refusalReason}.`,
});

/** Sets `queued`, and appends what the client should do next to the text of `next`. */
const withNext = (facts: CheckFacts, { queued, next }: AskReply): CheckFacts => ({
  ...facts,
  queued,
  next: [...(facts.next === undefined ? [] : [facts.next]), next].join(" "),
});

const NEVER_PROBED = "No free handshake of it is in the record yet.";
const ASKED_NO_PAYMENT = "It asked for no payment a day ago.";

/**
 * Returns why an endpoint in the record should be probed because a client asked for it, as a sentence: it was never
 * probed or paid, or it is unlisted and answered no probe with a 402, the last one a day ago. Null otherwise.
 */
function whyProbeAgain(view: View, { cap, matched }: Match, now: Date): string | null {
  const row = view.row(cap);
  const entry = view.entry(cap);
  if (!row?.probes && !row?.paid_calls && !(entry && headlineOf(entry))) return NEVER_PROBED;
  if (!row || row.last_seen === null || entry?.listed || matched !== "exact") return null;
  const shouldProbeAgain =
    row.asked_for_payment === 0 && row.paid_calls === 0 && row.last_seen <= now.getTime() - DAY_MS;
  return shouldProbeAgain ? ASKED_NO_PAYMENT : null;
}

function normaliseAsked(url: string): string {
  try {
    return normaliseUrl(url);
  } catch (error) {
    if (!(error instanceof BadUrl)) throw error;
    const detail = url.startsWith("cap_") ? "is neither a capability id nor an http(s) url" : error.says;
    throw new Problem("bad_request", `url: ${detail}`, { errors: [{ pointer: "/url", detail }] });
  }
}

/** Returns the requested url without user name, password and fragment, which are not recorded. */
function withoutSecrets(text: string): string {
  const url = new URL(text);
  url.username = "";
  url.password = "";
  url.hash = "";
  return url.href;
}

/**
 * Copies a value with the members of every object in the order of RFC 8785 (UTF-16 code units). None of our member
 * names looks like an array index; JavaScript would move such a name to the front.
 */
function sortMembers(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortMembers);
  if (typeof value !== "object" || value === null) return value;
  const members = value as Record<string, unknown>;
  const ordered: Record<string, unknown> = {};
  for (const name of Object.keys(members).sort()) ordered[name] = sortMembers(members[name]);
  return ordered;
}

function signedBytes(signer: Signer, answer: object): Buffer {
  const unsigned = { ...answer, signing_key_id: signer.kid, canonicalization: "RFC8785" };
  const bytes = Buffer.from(JSON.stringify(sortMembers(unsigned)));
  const signature = Buffer.from(signer.sign(bytes)).toString("base64url");
  return Buffer.concat([bytes.subarray(0, -1), Buffer.from(`,"signature":"${signature}"}`)]);
}

/**
 * Returns the JSON text of an answer, signed as `signObject` signs. Once the members are in order, JSON.stringify
 * prints exactly the RFC 8785 text, which is sent with the signature appended. This saves 100 us a check against
 * canonicalizing separately. The answer may hold JSON values only and no lone surrogate: JSON.stringify would print it
 * as an escape, and no verifier would accept the answer.
 */
export const signedText = (signer: Signer, answer: object): string => signedBytes(signer, answer).toString("utf8");
