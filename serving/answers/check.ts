import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { isId } from "../../pipelines/record/ids.ts";
import { DAY_MS, rfc3339 } from "../../pipelines/record/time.ts";
import { BadUrl, normaliseUrl } from "../../pipelines/record/url.ts";
import { AnswerCache, type CacheBounds, type CachedAnswer, CHECK_CACHE } from "../http/answer-cache.ts";
import { Problem } from "../http/problem.ts";
import type { CheckFacts, CheckQuery } from "../schemas/check.ts";
import { matchUrl } from "../tables/match.ts";
import type { View } from "../tables/view.ts";
import type { Asks } from "./asks.ts";
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
  judge: Egress["validate"];
  /** The answers key. */
  signer: Signer;
  clock: Clock;
  bounds?: CacheBounds;
}

/** GET /v1/check: what the record holds about a url or id, signed, and kept for its minute. */
export class Checks {
  readonly #cache: AnswerCache;
  /** Answers being made, so that two who ask at once get the same bytes and one ask is written. */
  readonly #underway = new Map<string, Promise<CachedAnswer>>();

  constructor(private readonly deps: CheckDeps) {
    this.#cache = new AnswerCache(deps.bounds ?? CHECK_CACHE, () => deps.clock.monotonic());
  }

  /**
   * The answer to a valid query. Synchronous when it is there or the url is known.
   * @throws Problem (or rejects with one): bad_request for a url that is none, and what {@link Asks.put} refuses.
   */
  answer(query: CheckQuery, client: string): CachedAnswer | Promise<CachedAnswer> {
    // A space can stand in none of the parts but the url, which comes last.
    const key = `${query.method ?? ""} ${query.pay_to ?? ""} ${query.url}`;
    const kept = this.#cache.get(key);
    if (kept?.cap !== undefined) this.deps.demand?.count(kept.cap, client);
    const cached = kept ?? this.#underway.get(key);
    if (cached) return cached;
    const facts = this.facts(query, client);
    if (!(facts instanceof Promise)) {
      if (facts.capabilityId !== undefined) this.deps.demand?.count(facts.capabilityId, client);
      return this.#sign(key, facts);
    }
    const made = facts.then((known) => this.#sign(key, known)).finally(() => this.#underway.delete(key));
    this.#underway.set(key, made);
    return made;
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
    const view = this.deps.view();
    const now = this.deps.clock.now();
    if (isId("cap", query.url)) {
      if (view.has(query.url)) return knownFacts(view, query, { cap: query.url, matched: "exact" }, now);
      return unknownFacts(view, query, { next: "No endpoint in the record has this id. Ask by its url instead." });
    }
    const normalised = normaliseAsked(query.url);
    const match = matchUrl(view, normalised, query.method);
    if (match) {
      const known = knownFacts(view, query, match, now);
      const again = match.matched === "exact" && foundWanting(view, match.cap, now) && !this.#refused(normalised);
      return again ? this.#askAgain(known, query, normalised, client) : known;
    }
    const refused = this.#refused(normalised);
    if (refused) return unknownFacts(view, query, { queued: false, next: `We never probe this address: ${refused}.` });
    return this.#ask(view, query, normalised, client);
  }

  /** Why this url is never fetched, in words, or null. */
  #refused(normalised: string): string | null {
    if (new URL(normalised).hostname.length > MAX_HOST) return "its host name is longer than any in the DNS";
    const verdict = this.deps.judge(normalised);
    return verdict.ok ? null : verdict.says.replace(/\.$/, "");
  }

  async #ask(view: View, query: CheckQuery, normalised: string, client: string): Promise<CheckFacts> {
    const ask = { url: withoutSecrets(query.url), normalised, method: query.method };
    const hours = await this.deps.asks.put(ask, client);
    const when = hours === 1 ? "in about an hour" : `in about ${hours} hours: many urls of this domain are in line`;
    return unknownFacts(view, query, { queued: true, next: `In line for a free handshake. Ask again ${when}.` });
  }

  /** Somebody asks again for what had nothing to buy a day ago: it is put in line again. Known, so no limit refuses it. */
  async #askAgain(known: CheckFacts, query: CheckQuery, normalised: string, client: string): Promise<CheckFacts> {
    const ask = { url: withoutSecrets(query.url), normalised, method: query.method };
    try {
      await this.deps.asks.put(ask, client);
    } catch (error) {
      if (error instanceof Problem) return known;
      throw error;
    }
    return { ...known, queued: true, next: "It asked for no payment a day ago. In line for another free handshake." };
  }

  #sign(key: string, facts: CheckFacts): CachedAnswer {
    const text = signedText(this.deps.signer, { ...facts, answered_at: rfc3339(this.deps.clock.now()) });
    const made: CachedAnswer = {
      text,
      cap: facts.capabilityId,
      etag: `"${sha256hex(text).slice(0, 32)}"`,
      madeAt: this.deps.clock.monotonic(),
    };
    this.#cache.set(key, made);
    return made;
  }
}

/** Was it probed because somebody asked, with nothing to pay for and in no listing, a day ago or longer? */
function foundWanting(view: View, cap: string, now: Date): boolean {
  const row = view.row(cap);
  if (!row || row.last_seen === null || view.entry(cap)?.listed) return false;
  return row.asked_for_payment === 0 && row.paid_calls === 0 && row.last_seen <= now.getTime() - DAY_MS;
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

/**
 * JSON text of an answer, signed as `signObject` signs. Once members are in order, JSON.stringify prints exactly the
 * RFC 8785 text, and that text is sent too, with the signature behind it: 100 us less a check than canonicalizing
 * apart. The answer must hold JSON values only, and no lone surrogate: those JSON.stringify would print as escapes,
 * and no verifier would take them.
 */
export function signedText(signer: Signer, answer: object): string {
  const signed = JSON.stringify(inOrder({ ...answer, signing_key_id: signer.kid, canonicalization: "RFC8785" }));
  const signature = Buffer.from(signer.sign(Buffer.from(signed))).toString("base64url");
  return `${signed.slice(0, -1)},"signature":"${signature}"}`;
}
