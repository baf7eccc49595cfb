import { setImmediate } from "node:timers/promises";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { Metrics } from "../../../infra/telemetry.ts";
import { BODIES, type BodyOf, type Claims } from "../../record/bodies.ts";
import type { ListedCap, Memory, StandingListing } from "../../record/memory.ts";
import { dayOf } from "../../record/time.ts";
import { PLATFORM_TIMES, platformOf, registrableDomain } from "../../record/url.ts";
import { hashOf } from "../json.ts";
import { type Draft, draft, Recorder } from "../recorder.ts";
import { type ListedClaim, type Rejected, rejected, type Source } from "./claims.ts";

/** Sources whose rows are remembered, and rows of all of them together. */
const MAX_SOURCES = 100_000;
const MAX_ROWS = 500_000;

/** The newest record of one (source, source id). */
interface Stands {
  cap: string;
  eventId: string;
  gone: boolean;
}

/** What one source has said: by source id, and the event ids that a copy of today would be dropped for. */
interface SourceRows {
  rows: Map<string, Stands>;
  used: Set<string>;
}

/** Remembers what stands for each source: the record's word once, then this process's own, which is newer. */
class Standings {
  readonly #sources = new BoundedMap<string, SourceRows>(MAX_SOURCES);
  #rows = 0;

  /** @param read the record's rows of one source with the ids it used on that UTC day */
  constructor(private readonly read: (source: string, day: string) => Promise<readonly StandingListing[]>) {}

  async of(source: string, day: string): Promise<SourceRows> {
    const known = this.#sources.get(source);
    if (known) return known;
    const loaded: SourceRows = { rows: new Map(), used: new Set() };
    for (const { source_id, cap, event_id, gone, newest } of await this.read(source, day)) {
      loaded.used.add(event_id);
      if (newest) loaded.rows.set(source_id, { cap, eventId: event_id, gone });
    }
    this.#keep(source, loaded);
    return loaded;
  }

  /** Past the limit everything is forgotten and read from the record again: a copy has the same id and is dropped. */
  #keep(source: string, rows: SourceRows): void {
    this.#rows += rows.rows.size;
    if (this.#rows > MAX_ROWS) {
      this.#sources.clear();
      this.#rows = rows.rows.size;
    }
    this.#sources.set(source, rows);
  }

  /** A record that is durable now. */
  note(source: SourceRows, sourceId: string, stands: Stands): void {
    if (!source.rows.has(sourceId)) this.#rows++;
    source.rows.set(sourceId, stands);
    source.used.add(stands.eventId);
    // Ids of earlier days are only of use to readers that look across days: a long-lived process drops them.
    if (source.used.size > 1_000 + 8 * source.rows.size) {
      source.used = new Set([...source.rows.values()].map((one) => one.eventId));
    }
  }
}

/**
 * Endpoints of one registrable domain that enter by discovery, and of all under one hosting platform so many times as many;
 * more only by an operator's hand (records.md).
 */
export const MAX_PER_DOMAIN = 200;
const MAX_PER_PLATFORM = PLATFORM_TIMES * MAX_PER_DOMAIN;
/** Sellers' own claims that are kept whole, to be newer than the lake. */
const MAX_OWN = 20_000;
const BATCH = 200;
/** Rows after which others have their turn: a catalogue's take seconds together. */
const ROWS_A_TURN = 50;

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
    for (const { url, cap } of listed) for (const { caps } of this.#domainsOf(url)) caps.add(cap);
  }

  /** The newest listing of its own that a seller gave this process for an endpoint. */
  own(cap: string): { eventId: string; claims: Claims } | undefined {
    return this.#own.get(cap);
  }

  /** Endpoints of its domain, and of its platform where that is another. */
  #domainsOf(url: string): { caps: Set<string>; most: number }[] {
    const domain = registrableDomain(url);
    const platform = platformOf(url);
    const capsOf = (name: string): Set<string> => {
      const caps = this.#domains.get(name) ?? new Set();
      this.#domains.set(name, caps);
      return caps;
    };
    return [
      { caps: capsOf(domain), most: MAX_PER_DOMAIN },
      ...(platform === domain ? [] : [{ caps: capsOf(`all of ${platform}`), most: MAX_PER_PLATFORM }]),
    ];
  }

  /** Do the endpoint's domain and platform take it? What stands already always may stay. */
  #admits(claim: ListedClaim, source: Source, state: SourceRows): boolean {
    const domains = this.#domainsOf(claim.body.normalised_url);
    const stands = state.rows.get(claim.body.source_id);
    const known = domains[0]!.caps.has(claim.cap) || (stands?.cap === claim.cap && !stands.gone);
    if (!known && !source.byHand && domains.some(({ caps, most }) => caps.size >= most)) return false;
    for (const { caps } of domains) caps.add(claim.cap);
    return true;
  }

  /** Appends what is new. Remembered only once it is durable: a claim that was not written is tried at the next read. */
  async write(rows: readonly Row[], source: Source, whole: boolean, clock: Clock): Promise<Written> {
    const name = source.name.slice(0, 300);
    const state = await this.#standings.of(name, dayOf(clock.now()));
    const fresh = new Map<string, Fresh>();
    const named = new Set<string>();
    const unkept: Rejected[] = [];
    for (const [n, { claim, row }] of rows.entries()) {
      if (n > 0 && n % ROWS_A_TURN === 0) await setImmediate();
      const id = claim.body.source_id;
      named.add(id);
      if (!this.#admits(claim, source, state)) {
        this.with_.metrics.count("touchstone_observe_listings_total", { result: "domain_full" });
        unkept.push(rejected("domain_full", row));
        continue;
      }
      const content = hashOf([claim.body.seller_controlled, claim.body.claims, claim.body.defects] as unknown);
      // What the log would refuse is refused here: there it would take the whole batch with it.
      if (content === null || !BODIES.listing.safeParse(claim.body).success) {
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
    this.with_.metrics.count("touchstone_observe_listings_total", { result: "appended" }, all.length);
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
    if (gone.length > 0)
      this.with_.metrics.count("touchstone_observe_listings_total", { result: "delisted" }, gone.length);
    return gone.length;
  }

  #keepOwn(claim: ListedClaim, eventId: string): void {
    const { seller_controlled, claims } = claim.body;
    if (seller_controlled) this.#own.set(claim.cap, { eventId, claims });
  }
}

/** Attempts of one content that are recognised as the same content again. */
const MAX_KNOWN = 8;
/** A content that comes back more often within a day is dropped as a copy: a source that flaps is no news. */
const MAX_ATTEMPTS = 1_000;

/** The first attempt whose id no copy would be dropped for. */
function unused(of: Pick<Draft, "type" | "cap" | "slot">, used: ReadonlySet<string>): number {
  let attempt = 0;
  while (attempt < MAX_ATTEMPTS && used.has(Recorder.idOf({ ...of, attempt }))) attempt++;
  return attempt;
}

/**
 * The record of a listing, or the id of the one that says the same already. A reader drops a second record with one id
 * on one day, so content that went away and comes back gets the next attempt number; across a restart the record
 * tells which ids were used today.
 * @param standing ids of listings that stand, for sources whose rows are not read
 */
function listingDraft(
  claim: ListedClaim,
  content: string,
  state: SourceRows,
  standing: ReadonlySet<string>,
  at: Date,
): Draft | { standing: string } {
  const { cap, body } = claim;
  const slot = [body.source, body.source_id, content].join("\n");
  const of = { type: "listing" as const, cap, slot };
  const stands = state.rows.get(body.source_id);
  if (stands === undefined) {
    const base = Recorder.idOf(of);
    if (standing.has(base)) return { standing: base };
  } else if (!stands.gone && stands.cap === cap) {
    for (let attempt = 0; attempt < MAX_KNOWN; attempt++) {
      if (Recorder.idOf({ ...of, attempt }) === stands.eventId) return { standing: stands.eventId };
    }
  }
  return draft({ ...of, attempt: unused(of, state.used), at, body });
}

/** The record that a source no longer names a row. */
function delistingDraft(source: string, sourceId: string, stands: Stands, state: SourceRows, at: Date): Draft {
  const body: BodyOf<"delisting"> = {
    source,
    source_id: sourceId,
    reason: "the source, read whole, names it no longer",
  };
  const of = { type: "delisting" as const, cap: stands.cap, slot: hashOf(body) ?? "" };
  return draft({ ...of, attempt: unused(of, state.used), at, body });
}
