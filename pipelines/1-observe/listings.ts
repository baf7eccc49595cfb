import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import type { Claims } from "../record/bodies.ts";
import type { ListedCap } from "../record/memory.ts";
import { registrableDomain } from "../record/url.ts";
import { readCatalogue } from "./bazaar.ts";
import { BoundedMap } from "./bounded.ts";
import { claimOf, claimOf402, type ListedClaim, type Source } from "./claims.ts";
import { hashOf, parseJson } from "./json.ts";
import { originOf } from "./places.ts";
import { type Draft, draft, Recorder } from "./recorder.ts";
import type { ReadTerms } from "./terms.ts";
import { itemsOf } from "./wellknown.ts";

/** Endpoints of one registrable domain that enter by discovery; more only by an operator's hand (records.md). */
export const MAX_PER_DOMAIN = 200;
/** Sellers' own claims that are kept whole, to be newer than the lake. */
const MAX_OWN = 20_000;
/** An origin is not read again within this long (real ms), however many of its 402s differ from its listing. */
const REREAD_MS = 60_000;
/** Listings whose newest content is remembered, so that it is not written again. */
const MAX_REMEMBERED = 250_000;
const BATCH = 200;

export interface IntakeReport {
  /** Items that were read, records that were new, items that could not be taken. */
  items: number;
  appended: number;
  refused: number;
  /** Claims that were read, in order: the caller may act on those it asked for. */
  claims: ListedClaim[];
  says?: string;
}

/** Content that stands for one (capability, source, source id): its id as first content, and its event id. */
interface Standing {
  base: string;
  eventId: string;
}

/** Takes in what catalogues, sellers and 402s claim. Unchanged content has the same event id and is not written again. */
export class Intake {
  /** (source, source id) -> event id of its newest content; event id -> how often that content came back. */
  readonly #newest = new BoundedMap<string, Standing>(MAX_REMEMBERED);
  readonly #returned = new BoundedMap<string, number>(MAX_REMEMBERED);
  readonly #domains = new Map<string, Set<string>>();
  readonly #own = new BoundedMap<string, { eventId: string; claims: Claims }>(MAX_OWN);
  readonly #rereadAt = new BoundedMap<string, number>(MAX_OWN);
  /** Listings that stand in the record already. */
  #standing: ReadonlySet<string> = new Set();

  constructor(
    private readonly with_: {
      egress: Egress;
      rail: Pick<Rail, "canPay" | "network">;
      recorder: Recorder;
      metrics: Metrics;
    },
  ) {}

  /** Tell it what is listed already: for the limit per domain, and so that a restart writes nothing twice. */
  know(listed: readonly ListedCap[]): void {
    this.#standing = new Set(listed.flatMap((one) => one.standing));
    for (const one of listed) this.#domain(one.url).add(one.cap);
  }

  #domain(url: string): Set<string> {
    const name = registrableDomain(url);
    let caps = this.#domains.get(name);
    if (!caps) {
      caps = new Set();
      this.#domains.set(name, caps);
    }
    return caps;
  }

  /** A seller's own listing at its origin. An answer that is none is no error: most sellers have none. */
  async readSeller(origin: string, clock: Clock): Promise<IntakeReport> {
    const url = `${origin}/.well-known/x402`;
    const result = await this.with_.egress.fetch({
      url,
      method: "GET",
      headers: { accept: "application/json" },
      profile: "handshake",
    });
    const none = { items: 0, appended: 0, refused: 0, claims: [] };
    if (result.outcome !== "answered") return { ...none, says: result.says };
    if (result.status !== 200) return { ...none, says: `status ${result.status}` };
    const document = parseJson(result.body);
    if (document === undefined) return { ...none, says: "not JSON" };
    return this.#take(itemsOf(document), { name: url, ownOrigin: origin }, clock);
  }

  /** The same endpoint with the newest listing of its own that this process has read: the lake may be behind. */
  current(one: ListedCap): ListedCap {
    const own = this.#own.get(one.cap);
    return own ? { ...one, claims: own.claims, sellerListing: own.eventId, sellerClaims: own.claims } : one;
  }

  /**
   * Reads the seller's own listing again and gives back what it says now. For a 402 that differs from what we know:
   * a seller that changed both is honest, and must not be called otherwise because we read its listing hours ago.
   */
  async reread(one: ListedCap, clock: Clock): Promise<ListedCap> {
    const origin = originOf(one.url);
    const last = this.#rereadAt.get(origin);
    if (last === undefined || performance.now() - last > REREAD_MS) {
      this.#rereadAt.set(origin, performance.now());
      await this.readSeller(origin, clock);
    }
    return this.current(one);
  }

  /** Every row of a Bazaar catalogue, as a third party's claim. */
  async readCatalogue(catalogue: string, clock: Clock): Promise<IntakeReport> {
    const read = await readCatalogue(this.with_.egress, catalogue);
    const report = await this.#take(read.rows, { name: catalogue }, clock);
    return read.says === undefined ? report : { ...report, says: read.says };
  }

  /** What a 402 declares of itself. */
  async note402(cap: string, url: string, method: Claims["method"], read: ReadTerms, clock: Clock): Promise<void> {
    await this.#write([claimOf402(cap, url, method, read)], clock);
  }

  async #take(items: readonly unknown[], source: Source, clock: Clock): Promise<IntakeReport> {
    const claims: ListedClaim[] = [];
    for (const item of items) {
      const claim = claimOf(item, source, this.with_.rail);
      if (claim) claims.push(claim);
    }
    const appended = await this.#write(claims, clock);
    this.with_.metrics.count("observe_listings_total", { result: "refused" }, items.length - claims.length);
    return { items: items.length, appended, refused: items.length - claims.length, claims };
  }

  /** Appends what is new. Remembered only once it is durable: a claim that was not written is tried at the next read. */
  async #write(claims: readonly ListedClaim[], clock: Clock): Promise<number> {
    const fresh = new Map<string, { one: Draft; key: string; base: string; times: number; claim: ListedClaim }>();
    for (const claim of claims) {
      const caps = this.#domain(claim.body.normalised_url);
      if (!caps.has(claim.cap) && caps.size >= MAX_PER_DOMAIN) {
        this.with_.metrics.count("observe_listings_total", { result: "domain_full" });
        continue;
      }
      caps.add(claim.cap);
      const { source, source_id } = claim.body;
      const content = hashOf([claim.body.seller_controlled, claim.body.claims, claim.body.defects] as unknown);
      if (content === null) continue;
      const slot = [source, source_id, content].join("\n");
      const base = Recorder.idOf({ type: "listing", cap: claim.cap, slot });
      const key = `${claim.cap}\n${source}\n${source_id}`;
      const standing = this.#newest.get(key) ?? (this.#standing.has(base) ? { base, eventId: base } : undefined);
      if (standing?.base === base) {
        this.#keepOwn(claim, standing.eventId);
        continue;
      }
      // Content that changes and changes back is news again; under the old id a reader would drop it as a copy.
      const times = (this.#returned.get(base) ?? -1) + 1;
      const one = draft({ type: "listing", cap: claim.cap, slot, attempt: times, at: clock.now(), body: claim.body });
      // The last of several items with one source id stands, as if they had been read one after the other.
      fresh.set(key, { one, key, base, times, claim });
    }
    const all = [...fresh.values()];
    for (let i = 0; i < all.length; i += BATCH) {
      const batch = all.slice(i, i + BATCH);
      await this.with_.recorder.append(batch.map(({ one }) => one));
      for (const { one, key, base, times, claim } of batch) {
        const eventId = Recorder.idOf(one);
        this.#newest.set(key, { base, eventId });
        this.#returned.set(base, times);
        this.#keepOwn(claim, eventId);
      }
    }
    this.with_.metrics.count("observe_listings_total", { result: "appended" }, all.length);
    return all.length;
  }

  #keepOwn(claim: ListedClaim, eventId: string): void {
    const { seller_controlled, claims } = claim.body;
    if (seller_controlled) this.#own.set(claim.cap, { eventId, claims });
  }
}
