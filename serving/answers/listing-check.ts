import { BoundedMap } from "../../infra/bounded-map.ts";
import type { Clock } from "../../infra/clock.ts";
import { DEFAULT_LIMITS, type Limits } from "../../infra/config.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { type Place, Places } from "../../infra/shares.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import type { ProbeDeps } from "../../pipelines/1-observe/probe/probe.ts";
import { PLATFORM_CAP_FACTOR, platformOf, registrableDomain } from "../../pipelines/record/url.ts";
import { Limiter, takeOfEach } from "../http/limits.ts";
import { badField, Problem } from "../http/problem.ts";
import { normalisedUrl } from "../http/request.ts";
import type { ListingAnswer, ListingQuestion } from "../schemas/listing.ts";
import { matchUrl } from "../tables/match.ts";
import type { View } from "../tables/view.ts";
import { listingAnswer } from "./listing-look.ts";

export interface ListingCheckDeps {
  /** The parts needed to probe a listing; null: this process probes nothing. */
  probeDeps: ProbeDeps | null;
  /** Addresses of this service. Endpoints under their domains are never probed. */
  ownAddresses: readonly string[];
  view: () => View;
  validateUrl: Egress["validate"];
  clock: Clock;
  metrics: Pick<Metrics, "count">;
  limits?: Partial<Limits>;
}

/** How long an answer is cached, ms. */
const CACHE_MS = 60_000;
/** Largest number of cached answers. */
const MAX_CACHED = 500;
/** Seconds after which a running probe has most likely ended; sent as Retry-After. */
const RETRY_S = 10;

/**
 * Answers POST /v1/listings/validate: probes an endpoint once for a seller that waits. Only the answer is kept, for a
 * minute.
 */
export class ListingChecks {
  readonly #cache = new BoundedMap<string, { answer: ListingAnswer; madeAt: number }>(MAX_CACHED);
  readonly #underway = new Map<string, Promise<ListingAnswer>>();
  readonly #places: Places;
  readonly #limits: Limits;
  readonly #perDomain: Limiter;
  readonly #perPlatform: Limiter;
  readonly #ownDomains: ReadonlySet<string>;

  constructor(private readonly deps: ListingCheckDeps) {
    this.#limits = { ...DEFAULT_LIMITS, ...deps.limits };
    const { clock, ownAddresses } = deps;
    const quota = this.#limits.looks_per_domain_minute;
    const monotonicNow = () => clock.monotonic();
    this.#perDomain = new Limiter({ name: "looks at one domain", quota, windowS: 60 }, monotonicNow);
    const platformLimit = { name: "looks at one platform", quota: PLATFORM_CAP_FACTOR * quota, windowS: 60 };
    this.#perPlatform = new Limiter(platformLimit, monotonicNow);
    this.#places = new Places({ name: "looks", size: this.#limits.looks_at_once, most: { domain: 1 } });
    this.#ownDomains = new Set(ownAddresses.map(registrableDomain));
  }

  /**
   * Returns the cached answer, or probes the endpoint.
   * @throws Problem bad_request with a pointer; too_many_requests (the domain was probed too often, or is being
   * probed); unavailable (too many probes are running, or this process probes nothing)
   */
  answer({ url, method }: ListingQuestion, client: string): Promise<ListingAnswer> {
    const normalised = normalisedUrl(url);
    const key = `${method ?? ""} ${normalised}`;
    const cached = this.#cache.get(key);
    if (cached && this.deps.clock.monotonic() - cached.madeAt < CACHE_MS) return Promise.resolve(cached.answer);
    const underway = this.#underway.get(key);
    if (underway) return underway;
    const place = this.#admit(normalised, client);
    const pending = this.#probe(normalised, method ?? null)
      .then((answer) => this.#cacheAnswer(key, answer))
      .finally(() => {
        place.leave();
        this.#underway.delete(key);
      });
    this.#underway.set(key, pending);
    return pending;
  }

  /** Reserves one of the places for probes that run at once. @throws Problem when the url may not be probed now */
  #admit(url: string, client: string): Place {
    const domain = registrableDomain(url);
    if (this.#ownDomains.has(domain)) throw badField("/url", "is an address of this service");
    const verdict = this.deps.validateUrl(url);
    if (!verdict.ok) throw badField("/url", `is never fetched: ${verdict.says.replace(/\.$/, "")}`);
    if (!this.deps.probeDeps)
      throw new Problem("unavailable", "this server does not look at listings; ask the service itself");
    const retry = { headers: { "retry-after": String(RETRY_S) } };
    const place = this.#places.tryTake({ client, domain });
    if (!place) {
      if (this.#places.heldCountOf({ domain }) > 0) {
        throw new Problem("too_many_requests", `${domain} is being looked at`, retry);
      }
      const detail = "as many looks are under way as there are places for, or as one client's share of them";
      throw new Problem("unavailable", detail, retry);
    }
    const refusal = takeOfEach([this.#perPlatform, platformOf(url)], [this.#perDomain, domain]);
    if (!refusal) return place;
    place.leave();
    throw new Problem(
      "too_many_requests",
      `${domain} was looked at ${this.#limits.looks_per_domain_minute} times in a minute, or its platform as often as may be`,
      {
        headers: { "retry-after": String(refusal.resetS) },
      },
    );
  }

  async #probe(url: string, method: "GET" | "POST" | null): Promise<ListingAnswer> {
    const { probeDeps, clock, metrics, view } = this.deps;
    const findCap = (calledMethod: ListingAnswer["method"]) => matchUrl(view(), url, calledMethod)?.cap ?? null;
    const answer = await listingAnswer(probeDeps!, url, method, clock, findCap);
    metrics.count("touchstone_listing_looks_total", { state: answer.state });
    return answer;
  }

  #cacheAnswer(key: string, answer: ListingAnswer): ListingAnswer {
    this.#cache.set(key, { answer, madeAt: this.deps.clock.monotonic() });
    return answer;
  }
}
