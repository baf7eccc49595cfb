import type { Clock } from "../../../infra/clock.ts";
import type { Metrics } from "../../../infra/telemetry.ts";
import type { Claims } from "../../record/bodies.ts";
import type { ListedCap, Memory } from "../../record/memory.ts";
import { dayOf } from "../../record/time.ts";
import { registrableDomain } from "../../record/url.ts";
import { BoundedMap } from "../bounded.ts";
import type { ListedClaim, Source } from "../claims.ts";
import { hashOf } from "../json.ts";
import { type Draft, Recorder } from "../recorder.ts";
import { delistingDraft, listingDraft } from "./drafts.ts";
import { type Rejected, rejected } from "./reasons.ts";
import { type SourceRows, Standings } from "./standing.ts";

/** Endpoints of one registrable domain that enter by discovery; more only by an operator's hand (records.md). */
export const MAX_PER_DOMAIN = 200;
/** Sellers' own claims that are kept whole, to be newer than the lake. */
const MAX_OWN = 20_000;
const BATCH = 200;

export interface WriterParts {
  recorder: Recorder;
  metrics: Metrics;
  /** What sources have said before; without it every source is new. */
  memory?: Pick<Memory, "listingsOf">;
}

/** A claim, and the row that it was read from. */
export interface Row {
  claim: ListedClaim;
  row: unknown;
}

export interface Written {
  appended: number;
  unkept: Rejected[];
  delisted: number;
}

interface Fresh {
  one: Draft;
  claim: ListedClaim;
}

/** Writes what is new of the claims of a source, and what it names no longer. */
export class ListingWriter {
  readonly #standings: Standings;
  readonly #domains = new Map<string, Set<string>>();
  readonly #own = new BoundedMap<string, { eventId: string; claims: Claims }>(MAX_OWN);
  /** Listings that stand in the record already. */
  #standing: ReadonlySet<string> = new Set();

  constructor(private readonly with_: WriterParts) {
    // A 402 is a source of its own for every endpoint: its rows are known by their ids, never read whole.
    this.#standings = new Standings(async (source, day) =>
      source === "402" || !with_.memory ? [] : with_.memory.listingsOf(source, day),
    );
  }

  /** What is listed already. */
  know(listed: readonly ListedCap[]): void {
    this.#standing = new Set(listed.flatMap((one) => one.standing));
    for (const one of listed) this.#domain(one.url).add(one.cap);
  }

  /** The newest listing of its own that a seller gave this process for an endpoint. */
  own(cap: string): { eventId: string; claims: Claims } | undefined {
    return this.#own.get(cap);
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
  async write(rows: readonly Row[], source: Source, whole: boolean, clock: Clock): Promise<Written> {
    const name = source.name.slice(0, 300);
    const state = await this.#standings.of(name, dayOf(clock.now()));
    const fresh = new Map<string, Fresh>();
    const named = new Set<string>();
    const unkept: Rejected[] = [];
    for (const { claim, row } of rows) {
      const id = claim.body.source_id;
      named.add(id);
      if (!this.#admits(claim, source, state)) {
        this.with_.metrics.count("observe_listings_total", { result: "domain_full" });
        unkept.push(rejected("domain_full", row));
        continue;
      }
      const content = hashOf([claim.body.seller_controlled, claim.body.claims, claim.body.defects] as unknown);
      if (content === null) {
        unkept.push(rejected("unkeepable", row));
        continue;
      }
      const made = listingDraft(claim, content, state, this.#standing, clock.now());
      // The last of several items with one source id stands, as if they had been read one after the other.
      if ("standing" in made) {
        fresh.delete(id);
        this.#keepOwn(claim, made.standing);
      } else fresh.set(id, { one: made, claim });
    }
    await this.#append([...fresh.values()], state);
    const delisted = whole ? await this.#delist(name, state, named, clock) : 0;
    return { appended: fresh.size, unkept, delisted };
  }

  async #append(all: readonly Fresh[], state: SourceRows): Promise<void> {
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
