import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { isId } from "../../pipelines/record/ids.ts";
import { DAY_MS, rfc3339 } from "../../pipelines/record/time.ts";
import { BadUrl, normaliseUrl } from "../../pipelines/record/url.ts";
import { AnswerCache, type CacheBounds, type CachedAnswer, CHECK_CACHE } from "../http/answer-cache.ts";
import { Problem } from "../http/problem.ts";
import type { CheckAnswer, CheckFacts, CheckQuery } from "../schemas/check.ts";
import { headlineOf } from "../tables/entry.ts";
import { hasTools, type Match, matchUrl, toolAsked } from "../tables/match.ts";
import type { View } from "../tables/view.ts";
import type { Asks, Place } from "./asks.ts";
import type { Demand } from "./demand.ts";
import { knownFacts, unknownFacts } from "./facts.ts";

/** Characters of a host name in the DNS (RFC 1035 section 2.3.4). */
const MAX_HOST = 253;

export interface CheckDeps {
  /** The view of this moment. */
  view: () => View;
  asks: Pick<Asks, "put">;
  /** Who is asked for most; not counted when absent. */
  demand?: Pick<Demand, "count"> | undefined;
  /** Would this url be fetched at all? */
  validateUrl: Egress["validate"];
  /** How an endpoint is bought through the service; absent where nothing is sold. */
  buy?: ((view: View, cap: string) => CheckFacts["buy"]) | undefined;
  /** The answers key. */
  signer: Signer;
  clock: Clock;
  bounds?: CacheBounds;
}

/** A space can stand in none of the parts but the url, which comes last. */
const keyOf = ({ method, pay_to }: CheckQuery, url: string): string => `${method ?? ""} ${pay_to ?? ""} ${url}`;

/** An answer in one spelling of its url. */
interface SpelledAnswer extends CachedAnswer {
  /** The url as this answer says that it was asked. */
  asked: string;
}

/** What a query means. */
interface Meant {
  /** The url normalised; null for a capability id. */
  normalised: string | null;
  /** The same with the tool, where that decides: what answers are kept under. An id as it is. */
  url: string;
}

/** GET /v1/check: what the record holds about a url or id, signed, and kept for its minute. */
export class Checks {
  readonly #cache: AnswerCache<SpelledAnswer>;
  /** Answers being made, so that two who ask at once get the same answer and one ask is written. */
  readonly #underway = new Map<string, Promise<SpelledAnswer>>();

  constructor(private readonly deps: CheckDeps) {
    this.#cache = new AnswerCache(deps.bounds ?? CHECK_CACHE, () => deps.clock.monotonic());
  }

  /** The answer to this query, where its bytes are at hand. */
  kept(query: CheckQuery, client: string): CachedAnswer | undefined {
    const kept = this.#cache.get(keyOf(query, query.url));
    // Under a normalised url the answer to another spelling may stand.
    return kept?.asked === query.url ? this.#counted(kept, client) : undefined;
  }

  /**
   * The answer to a valid query. Synchronous when it is there or the url is known.
   * @throws Problem bad_request for a url that is none
   */
  answer(query: CheckQuery, client: string): CachedAnswer | Promise<CachedAnswer> {
    const kept = this.kept(query, client);
    if (kept) return kept;
    // Two spellings of one url are one question: they share the kept answer, and differ in `asked` alone.
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
    const tool = toolAsked(asked);
    const named = tool !== null && hasTools(this.deps.view(), normalised);
    return { normalised, url: named ? `${normalised}#${encodeURIComponent(tool)}` : normalised };
  }

  #counted(answer: CachedAnswer, client: string): CachedAnswer {
    if (answer.cap !== undefined) this.deps.demand?.count(answer.cap, client);
    return answer;
  }

  /** The same answer, given at the same moment, to the url as this client wrote it: only `asked` and the signature differ. */
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
   * What the record holds about a valid query, neither dated nor signed, and not kept. Synchronous where the url is known.
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
    const match = matchUrl(view, normalised, query.method, toolAsked(query.url));
    if (match) return this.#known(view, query, match, client);
    const refused = this.#refused(normalised);
    if (refused) return unknown(neverProbed(refused));
    const ask = { url: withoutSecrets(query.url), normalised, method: query.method };
    return this.deps.asks.put(ask, client).then(unknown);
  }

  /** What the record holds; where it holds no handshake, or none that asked for payment, a look is put in line. */
  #known(view: View, query: CheckQuery, match: Match, client: string): CheckFacts | Promise<CheckFacts> {
    const now = this.deps.clock.now();
    const buy = this.deps.buy?.(view, match.cap);
    const facts = { ...knownFacts(view, query, match, now), ...(buy ? { buy } : {}) };
    const why = wantsLook(view, match, now);
    const { url } = facts;
    if (why === null || url === undefined) return facts;
    const refused = this.#refused(url);
    if (refused) return why === WANTING ? facts : withNext(facts, neverProbed(refused));
    const entry = view.entry(match.cap);
    const known = { cap: match.cap, tool: entry?.tool ?? null };
    const ask = { url, normalised: url, method: entry?.method ?? view.row(match.cap)?.method, known };
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

  /** Dates, signs and keeps what the record holds: under the normalised url, and as it was asked. */
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

/** An answer, signed, as it is sent and named. */
function bytesOf(signer: Signer, answer: object): Pick<CachedAnswer, "bytes" | "etag"> {
  const bytes = signedBytes(signer, answer);
  return { bytes, etag: `"${sha256hex(bytes).slice(0, 32)}"` };
}

const neverProbed = (refused: string) => ({ queued: false, next: `We never probe this address: ${refused}.` });

/** What is to be done next, behind what the facts say already. */
const withNext = (facts: CheckFacts, { queued, next }: Place): CheckFacts => ({
  ...facts,
  queued,
  next: [...(facts.next === undefined ? [] : [facts.next]), next].join(" "),
});

const NEVER_PROBED = "No free handshake of it is in the record yet.";
const WANTING = "It asked for no payment a day ago.";

/** Why an endpoint of the record is put in line because somebody asked for it, in words, or null. */
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

/** The url as asked, but never a password or a fragment of the asker's: those are nobody's business and not sent. */
function withoutSecrets(text: string): string {
  const url = new URL(text);
  url.username = "";
  url.password = "";
  url.hash = "";
  return url.href;
}

/**
 * The same value with the members of every object in the order of RFC 8785 (UTF-16 code units). No name of ours looks
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
 * JSON text of an answer, signed as `signObject` signs. Once members are in order, JSON.stringify prints exactly the
 * RFC 8785 text, and that text is sent too, with the signature behind it: 100 us less a check than canonicalizing
 * apart. The answer must hold JSON values only, and no lone surrogate: those JSON.stringify would print as escapes,
 * and no verifier would take them.
 */
export const signedText = (signer: Signer, answer: object): string => signedBytes(signer, answer).toString("utf8");
