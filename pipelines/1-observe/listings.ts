import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import type { Claims } from "../record/bodies.ts";
import type { ListedCap, Memory } from "../record/memory.ts";
import { dayOf } from "../record/time.ts";
import { registrableDomain } from "../record/url.ts";
import { readCatalogue } from "./bazaar.ts";
import { BoundedMap } from "./bounded.ts";
import { claimOf, claimOf402, type ListedClaim, type Source } from "./claims.ts";
import { hashOf } from "./json.ts";
import type { Listed } from "./listings/documents.ts";
import { delistingDraft, listingDraft } from "./listings/drafts.ts";
import { expand } from "./listings/expand.ts";
import { type Rejected, rejected } from "./listings/reasons.ts";
import { readSellerDocuments } from "./listings/seller.ts";
import { isSignedByPayee } from "./listings/signed.ts";
import { type SourceRows, Standings } from "./listings/standing.ts";
import { originOf } from "./places.ts";
import { type Draft, Recorder } from "./recorder.ts";
import type { ReadTerms } from "./terms.ts";

/** Endpoints of one registrable domain that enter by discovery; more only by an operator's hand (records.md). */
export const MAX_PER_DOMAIN = 200;
/** Sellers' own claims that are kept whole, to be newer than the lake. */
const MAX_OWN = 20_000;
/** An origin is not read again within this long (ms of the record), however many of its 402s differ from its listing. */
const REREAD_MS = 60_000;
const BATCH = 200;

export interface IntakeReport {
  /** Items that were read, records that were new, items that could not be taken. */
  items: number;
  appended: number;
  refused: number;
  /** Items that say what stands already. */
  same: number;
  /** Rows that the source no longer names. */
  delisted: number;
  /** The refused ones, whole, with the reason. */
  rejected: Rejected[];
  /** Claims that were read, in order: the caller may act on those it asked for. */
  claims: ListedClaim[];
  says?: string;
}

export const emptyReport = (says?: string): IntakeReport => ({
  items: 0,
  appended: 0,
  refused: 0,
  same: 0,
  delisted: 0,
  rejected: [],
  claims: [],
  ...(says === undefined ? {} : { says }),
});

/** Rejected rows that a report over many sources keeps; all of them are counted. */
const MAX_TOLD = 10_000;

/** Adds what was read of one more source. */
export function addReport(to: IntakeReport, more: IntakeReport): void {
  to.items += more.items;
  to.appended += more.appended;
  to.refused += more.refused;
  to.same += more.same;
  to.delisted += more.delisted;
  for (const row of more.rejected) if (to.rejected.length < MAX_TOLD) to.rejected.push(row);
  for (const claim of more.claims) to.claims.push(claim);
}

interface Fresh {
  one: Draft;
  claim: ListedClaim;
}

export interface IntakeParts {
  egress: Egress;
  rail: Pick<Rail, "canPay" | "network">;
  recorder: Recorder;
  metrics: Metrics;
  /** What sources have said before; without it every source is new. */
  memory?: Pick<Memory, "listingsOf">;
  /** Lower-case addresses that 402s of an endpoint named to us, for rows that their payee signed. */
  payTosOf?: (cap: string) => Promise<ReadonlySet<string>>;
}

/** Takes in what catalogues, sellers, operators and 402s claim. Unchanged content is not written again. */
export class Intake {
  readonly #standings: Standings;
  readonly #domains = new Map<string, Set<string>>();
  readonly #own = new BoundedMap<string, { eventId: string; claims: Claims }>(MAX_OWN);
  readonly #rereadAt = new BoundedMap<string, number>(MAX_OWN);
  /** Listings that stand in the record already. */
  #standing: ReadonlySet<string> = new Set();

  constructor(private readonly with_: IntakeParts) {
    // A 402 is a source of its own for every endpoint: its rows are known by their ids, never read whole.
    this.#standings = new Standings(async (source, day) =>
      source === "402" || !with_.memory ? [] : with_.memory.listingsOf(source, day),
    );
  }

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
    const read = await readSellerDocuments(this.with_.egress, origin);
    const report = emptyReport(read.says);
    for (const { url, listed } of read.documents) {
      addReport(report, await this.take(listed, { name: url, ownOrigin: origin }, clock));
    }
    return report;
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
    const now = clock.now().getTime();
    const last = this.#rereadAt.get(origin);
    if (last === undefined || Math.abs(now - last) > REREAD_MS) {
      this.#rereadAt.set(origin, now);
      await this.readSeller(origin, clock);
    }
    return this.current(one);
  }

  /** Every row of a Bazaar catalogue, as a third party's claim. */
  async readCatalogue(catalogue: string, clock: Clock, byHand = false): Promise<IntakeReport> {
    const read = await readCatalogue(this.with_.egress, catalogue);
    // A catalogue that names nothing at all is taken for broken, not for an empty market.
    const whole = read.stable && read.rows.length > 0;
    const report = await this.take({ items: read.rows, rejected: [], whole }, { name: catalogue, byHand }, clock);
    return read.says === undefined ? report : { ...report, says: read.says };
  }

  /** What a 402 declares of itself. */
  async note402(cap: string, url: string, method: Claims["method"], read: ReadTerms, clock: Clock): Promise<void> {
    await this.#write([claimOf402(cap, url, method, read)], { name: "402" }, false, clock);
  }

  /**
   * Takes the rows of one document. When the document was read whole, what it named before and names no longer is
   * delisted.
   * @throws NotRecorded when the log does not take a record; what was appended before stays
   */
  async take(
    document: Pick<Listed, "rejected" | "whole" | "base"> & { items: readonly unknown[] },
    source: Source,
    clock: Clock,
  ): Promise<IntakeReport> {
    const { egress, metrics, rail } = this.with_;
    const from: Source = {
      judge: (url) => egress.judge(url),
      ...(document.base ? { base: document.base } : {}),
      ...source,
    };
    const claims: ListedClaim[] = [];
    const refused: Rejected[] = [...document.rejected];
    const items = document.items.flatMap(expand);
    for (const item of items) {
      const taken = claimOf(item, from, rail);
      if ("claim" in taken) claims.push(source.signedRows ? await this.#vouched(item, taken.claim) : taken.claim);
      else refused.push(taken.rejected);
    }
    const written = await this.#write(claims, source, document.whole, clock);
    refused.push(...written.unkept);
    metrics.count("observe_listings_total", { result: "refused" }, refused.length);
    return {
      items: items.length + document.rejected.length,
      appended: written.appended,
      refused: refused.length,
      same: claims.length - written.appended - written.unkept.length,
      delisted: written.delisted,
      rejected: refused,
      claims,
    };
  }

  /**
   * The claim, under the seller's control when its payee signed the row. Only of an operator's file: a row that
   * was signed once stays signed, and a catalogue could hold a seller to what it said long ago.
   */
  async #vouched(item: unknown, claim: ListedClaim): Promise<ListedClaim> {
    const payTos = async () => (await this.with_.payTosOf?.(claim.cap)) ?? new Set<string>();
    if (claim.body.seller_controlled || !(await isSignedByPayee(item, payTos))) return claim;
    return { ...claim, body: { ...claim.body, seller_controlled: true } };
  }

  /** Does the endpoint's domain take it? What stands already always may stay. */
  #admits(claim: ListedClaim, source: Source, state: SourceRows): boolean {
    const caps = this.#domain(claim.body.normalised_url);
    const stands = state.rows.get(claim.body.source_id);
    const known = caps.has(claim.cap) || (stands?.cap === claim.cap && !stands.gone);
    if (!known && !source.byHand && caps.size >= MAX_PER_DOMAIN) return false;
    caps.add(claim.cap);
    return true;
  }

  /** Appends what is new. Remembered only once it is durable: a claim that was not written is tried at the next read. */
  async #write(claims: readonly ListedClaim[], source: Source, whole: boolean, clock: Clock) {
    const name = claims[0]?.body.source ?? source.name.slice(0, 300);
    const state = await this.#standings.of(name, dayOf(clock.now()));
    const fresh = new Map<string, Fresh>();
    const named = new Set<string>();
    const unkept: Rejected[] = [];
    for (const claim of claims) {
      const id = claim.body.source_id;
      named.add(id);
      if (!this.#admits(claim, source, state)) {
        this.with_.metrics.count("observe_listings_total", { result: "domain_full" });
        unkept.push(rejected("domain_full", claim.body.claims));
        continue;
      }
      const content = hashOf([claim.body.seller_controlled, claim.body.claims, claim.body.defects] as unknown);
      if (content === null) {
        unkept.push(rejected("unkeepable", claim.body.claims));
        continue;
      }
      const made = listingDraft(claim, content, state, this.#standing, clock.now());
      // The last of several items with one source id stands, as if they had been read one after the other.
      if ("standing" in made) {
        fresh.delete(id);
        this.#keepOwn(claim, made.standing);
      } else fresh.set(id, { one: made, claim });
    }
    const all = [...fresh.values()];
    for (let i = 0; i < all.length; i += BATCH) {
      const batch = all.slice(i, i + BATCH);
      await this.with_.recorder.append(batch.map(({ one }) => one));
      for (const { one, claim } of batch) {
        const eventId = Recorder.idOf(one);
        this.#standings.note(state, claim.body.source_id, { cap: claim.cap, eventId, gone: false });
        this.#keepOwn(claim, eventId);
      }
    }
    this.with_.metrics.count("observe_listings_total", { result: "appended" }, all.length);
    const delisted = whole ? await this.#delist(name, state, named, clock) : 0;
    return { appended: all.length, unkept, delisted };
  }

  /** Rows that the source named before and, read whole, names no longer. */
  async #delist(name: string, state: SourceRows, named: ReadonlySet<string>, clock: Clock): Promise<number> {
    const gone = [...state.rows].filter(([id, stands]) => !stands.gone && !named.has(id));
    for (let i = 0; i < gone.length; i += BATCH) {
      const drafts = gone
        .slice(i, i + BATCH)
        .map(([id, stands]) => ({ id, cap: stands.cap, one: delistingDraft(name, id, stands, state, clock.now()) }));
      await this.with_.recorder.append(drafts.map(({ one }) => one));
      for (const { id, cap, one } of drafts) {
        this.#standings.note(state, id, { cap, eventId: Recorder.idOf(one), gone: true });
        this.#own.delete(cap);
      }
    }
    if (gone.length > 0) this.with_.metrics.count("observe_listings_total", { result: "delisted" }, gone.length);
    return gone.length;
  }

  #keepOwn(claim: ListedClaim, eventId: string): void {
    const { seller_controlled, claims } = claim.body;
    if (seller_controlled) this.#own.set(claim.cap, { eventId, claims });
  }
}
