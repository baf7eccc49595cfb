import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { isId } from "../../pipelines/record/ids.ts";
import { DAY_MS, rfc3339 } from "../../pipelines/record/time.ts";
import { BadUrl, normaliseUrl } from "../../pipelines/record/url.ts";
import { AnswerCache, type CacheBounds, type CachedAnswer, CHECK_CACHE } from "../http/answer-cache.ts";
import { Problem } from "../http/problem.ts";
import type { Buy, CheckAnswer, CheckFacts, CheckQuery } from "../schemas/check.ts";
import { headlineOf } from "../tables/entry.ts";
import { hasTools, type Match, matchUrl, toolInUrl } from "../tables/match.ts";
import type { View } from "../tables/view.ts";
import type { Asks, Place } from "./asks.ts";
import type { Demand } from "./demand.ts";
import { knownFacts, unknownFacts } from "./facts.ts";

/** Characters of a host name in the DNS (RFC 1035 section 2.3.4). */
const MAX_HOST = 253;

export interface CheckDeps {
  /** Returns the current view. */
  view: () => View;
  asks: Pick<Asks, "put">;
  /** Counts which endpoints are asked for; nothing is counted when absent. */
  demand?: Pick<Demand, "count"> | undefined;
  /** May this url be fetched at all? */
  validateUrl: Egress["validate"];
  /**
   * How an endpoint is bought through the service, or why it is not; absent: nothing is said of it. `under`: a normalised
   * url that falls under its template.
   */
  termsOf?: ((view: View, cap: string, under?: string) => Buy | { says: string }) | undefined;
  /** The answers key. */
  signer: Signer;
  clock: Clock;
  bounds?: CacheBounds;
}

/** Key of a query in the cache. Only the url may contain a space, so it comes last. */
const keyOf = ({ method, pay_to }: CheckQuery, url: string): string => `${method ?? ""} ${pay_to ?? ""} ${url}`;

/** An answer for one spelling of its url. */
interface SpelledAnswer extends CachedAnswer {
  /** The url in the answer's member `asked`. */
  asked: string;
}

/** A query's url, resolved. */
interface Meant {
  /** The url normalised; null for a capability id. */
  normalised: string | null;
  /** Key under which answers are cached: the normalised url, with the tool where it matters; or the capability id. */
  url: string;
}

/** GET /v1/check: what the record holds about a url or id, signed. Answers are cached for a minute. */
export class Checks {
  readonly #cache: AnswerCache<SpelledAnswer>;
  /** Answers that are being made: two clients that ask at once get one answer, and one ask is written. */
  readonly #underway = new Map<string, Promise<SpelledAnswer>>();

  constructor(private readonly deps: CheckDeps) {
    this.#cache = new AnswerCache(deps.bounds ?? CHECK_CACHE, () => deps.clock.monotonic());
  }

  /** The cached answer to this query, if there is one. */
  kept(query: CheckQuery, client: string): CachedAnswer | undefined {
    const kept = this.#cache.get(keyOf(query, query.url));
    // The entry of a normalised url may hold the answer to another spelling.
    return kept?.asked === query.url ? this.#counted(kept, client) : undefined;
  }

  /**
   * The answer to a valid query. Returned at once when it is cached or the url is known; otherwise a promise.
   * @throws Problem bad_request for a text that is no url
   */
  answer(query: CheckQuery, client: string): CachedAnswer | Promise<CachedAnswer> {
    const kept = this.kept(query, client);
    if (kept) return kept;
    // Two spellings of one url share the cached answer, and their answers differ in `asked` only.
    const meant = this.#meant(query.url);
    const key = keyOf(query, meant.url);
    const same = this.#cache.get(key);
    if (same) return this.#counted(this.#respelled(same, query), client);
    const underway = this.#underway.get(key);
    if (underway) return underway.then((made) => this.#respelled(made, query));
    const facts = this.#facts(query, meant.normalised, client);
    if (!(facts instanceof Promise)) return this.#counted(this.#made(query, key, facts), client);
    const made = facts.then((known) => this.#made(query, key, known)).finally(() => this.#underway.delete(key));
    this.#underway.set(key, made);
    return made;
  }

  /** @throws Problem bad_request */
  #meant(asked: string): Meant {
    if (isId("cap", asked)) return { normalised: null, url: asked };
    const normalised = normaliseAsked(asked);
    const tool = toolInUrl(asked);
    const named = tool !== null && hasTools(this.deps.view(), normalised);
    return { normalised, url: named ? `${normalised}#${encodeURIComponent(tool)}` : normalised };
  }

  #counted(answer: CachedAnswer, client: string): CachedAnswer {
    if (answer.cap !== undefined) this.deps.demand?.count(answer.cap, client);
    return answer;
  }

  /** The cached answer for another spelling of its url: only `asked` and the signature differ. */
  #respelled(made: SpelledAnswer, query: CheckQuery): SpelledAnswer {
    if (made.asked === query.url) return made;
    const { signature: _, ...answer } = JSON.parse(made.bytes.toString("utf8")) as CheckAnswer;
    const again: SpelledAnswer = {
      ...made,
      ...bytesOf(this.deps.signer, { ...answer, asked: query.url }),
      asked: query.url,
    };
    this.#cache.set(keyOf(query, query.url), again);
    return again;
  }

  /** Milliseconds since an answer was made. */
  age(answer: CachedAnswer): number {
    return this.deps.clock.monotonic() - answer.madeAt;
  }

  /**
   * What the record holds about a valid query, without date and signature, and not cached. Returned at once where the
   * url is known.
   * @throws Problem (or rejects with one), as {@link answer} does
   */
  facts(query: CheckQuery, client: string): CheckFacts | Promise<CheckFacts> {
    return this.#facts(query, isId("cap", query.url) ? null : normaliseAsked(query.url), client);
  }

  #facts(query: CheckQuery, normalised: string | null, client: string): CheckFacts | Promise<CheckFacts> {
    const view = this.deps.view();
    const unknown = (place: { queued?: boolean; next: string }): CheckFacts =>
      unknownFacts(view, query, { url: normalised, ...place }, this.deps.clock.now());
    if (normalised === null) {
      if (view.has(query.url)) return this.#known(view, query, { cap: query.url, matched: "exact" }, client);
      return unknown({ next: "No endpoint in the record has this id. Ask by its url instead." });
    }
    const match = matchUrl(view, normalised, query.method, toolInUrl(query.url));
    if (match) return this.#known(view, query, match, client);
    const refused = this.#refused(normalised);
    if (refused) return unknown(neverProbed(refused));
    const ask = { url: withoutSecrets(query.url), normalised, method: query.method };
    return this.deps.asks.put(ask, client).then(unknown);
  }

  /**
   * What the record holds of a known endpoint. If it has no handshake, or none that asked for payment, a look is
   * queued.
   */
  #known(view: View, query: CheckQuery, match: Match, client: string): CheckFacts | Promise<CheckFacts> {
    const now = this.deps.clock.now();
    const under = match.matched === "path" ? normaliseAsked(query.url) : undefined;
    const terms = this.deps.termsOf?.(view, match.cap, under);
    const sold = terms === undefined ? {} : "says" in terms ? { not_bought: terms.says } : { buy: terms };
    const facts = { ...knownFacts(view, query, match, now), ...sold };
    const why = wantsLook(view, match, now);
    const { url } = facts;
    if (why === null || url === undefined) return facts;
    const refused = this.#refused(url);
    if (refused) return why === WANTING ? facts : withNext(facts, neverProbed(refused));
    const entry = view.entry(match.cap);
    const known = { cap: match.cap, tool: entry?.listing?.tool ?? null };
    const ask = { url, normalised: url, method: entry?.listing?.method ?? view.row(match.cap)?.method, known };
    return this.deps.asks
      .put(ask, client)
      .then(({ queued, next }) => withNext(facts, { queued, next: `${why} ${next}` }));
  }

  /** Why this url is never fetched, in words, or null. */
  #refused(normalised: string): string | null {
    if (new URL(normalised).hostname.length > MAX_HOST) return "its host name is longer than any in the DNS";
    const verdict = this.deps.validateUrl(normalised);
    return verdict.ok ? null : verdict.says.replace(/\.$/, "");
  }

  /** Dates and signs an answer, and caches it under the normalised url and under the spelling that was asked. */
  #made(query: CheckQuery, key: string, facts: CheckFacts): SpelledAnswer {
    const { signer, clock } = this.deps;
    const made: SpelledAnswer = {
      ...bytesOf(signer, { ...facts, asked: query.url, answered_at: rfc3339(clock.now()) }),
      ...{ cap: facts.capabilityId, madeAt: clock.monotonic(), asked: query.url },
    };
    this.#cache.set(key, made);
    if (key !== keyOf(query, query.url)) this.#cache.set(keyOf(query, query.url), made);
    return made;
  }
}

/** The bytes of a signed answer, and their etag. */
function bytesOf(signer: Signer, answer: object): Pick<CachedAnswer, "bytes" | "etag"> {
  const bytes = signedBytes(signer, answer);
  return { bytes, etag: `"${sha256hex(bytes).slice(0, 32)}"` };
}

const neverProbed = (refused: string) => ({ queued: false, next: `We never probe this address: ${refused}.` });

/** Adds the next step to the facts, after those that they hold already. */
const withNext = (facts: CheckFacts, { queued, next }: Place): CheckFacts => ({
  ...facts,
  queued,
  next: [...(facts.next === undefined ? [] : [facts.next]), next].join(" "),
});

const NEVER_PROBED = "No free handshake of it is in the record yet.";
const WANTING = "It asked for no payment a day ago.";

/** Why an endpoint in the record is queued for a look because a client asked for it, in words; or null. */
function wantsLook(view: View, { cap, matched }: Match, now: Date): string | null {
  const row = view.row(cap);
  const entry = view.entry(cap);
  if (!row?.probes && !row?.paid_calls && !(entry && headlineOf(entry))) return NEVER_PROBED;
  if (!row || row.last_seen === null || entry?.listed || matched !== "exact") return null;
  const wanting = row.asked_for_payment === 0 && row.paid_calls === 0 && row.last_seen <= now.getTime() - DAY_MS;
  return wanting ? WANTING : null;
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

/** The url as it was asked, without a password or a fragment of the client's, which are not passed on. */
function withoutSecrets(text: string): string {
  const url = new URL(text);
  url.username = "";
  url.password = "";
  url.hash = "";
  return url.href;
}

/**
 * A copy with the members of every object in the order of RFC 8785 (UTF-16 code units). No member name of ours looks
 * like an array index, which JavaScript would move to the front.
 */
function inOrder(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inOrder);
  if (typeof value !== "object" || value === null) return value;
  const members = value as Record<string, unknown>;
  const ordered: Record<string, unknown> = {};
  for (const name of Object.keys(members).sort()) ordered[name] = inOrder(members[name]);
  return ordered;
}

function signedBytes(signer: Signer, answer: object): Buffer {
  const whole = { ...answer, signing_key_id: signer.kid, canonicalization: "RFC8785" };
  const bytes = Buffer.from(JSON.stringify(inOrder(whole)));
  const signature = Buffer.from(signer.sign(bytes)).toString("base64url");
  return Buffer.concat([bytes.subarray(0, -1), Buffer.from(`,"signature":"${signature}"}`)]);
}

/**
 * JSON text of an answer, signed as `signObject` signs. Once the members are in order, JSON.stringify prints exactly
 * the RFC 8785 text; that text is sent, with the signature appended. This saves 100 us a check against canonicalizing
 * separately. The answer must hold JSON values only, and no lone surrogate: JSON.stringify would print it as an escape,
 * and no verifier would accept that.
 */
export const signedText = (signer: Signer, answer: object): string => signedBytes(signer, answer).toString("utf8");
