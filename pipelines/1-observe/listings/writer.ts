import { setImmediate } from "node:timers/promises";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { Metrics } from "../../../infra/telemetry.ts";
import { BODIES, type BodyOf, type Claims } from "../../record/bodies.ts";
import { capId } from "../../record/ids.ts";
import type { ListedCap, Memory, StandingListing } from "../../record/memory.ts";
import { dayOf } from "../../record/time.ts";
import { PLATFORM_CAP_FACTOR, platformOf, registrableDomain } from "../../record/url.ts";
import { hashOf } from "../json.ts";
import { createDraft, type Draft, Recorder } from "../recorder.ts";
import { type ListedClaim, type Rejected, rejectRow, type Source } from "./claims.ts";

/** Largest number of sources whose rows are remembered. */
const MAX_SOURCES = 100_000;
/** Largest number of remembered rows of all sources together. */
const MAX_ROWS = 500_000;

/** The newest record about one row. A row is identified by its source and source id. */
interface RowState {
  cap: string;
  eventId: string;
  delisted: boolean;
  /** Normalised url of the endpoint; null for a delisting. */
  url: string | null;
  /** Time of the record, unix ms. */
  at: number;
}

/**
 * The newest records of a source's rows by source id, and the event ids that were used today. A second record with one
 * of these ids would be dropped as a copy.
 */
interface SourceRows {
  source: string;
  rows: Map<string, RowState>;
  usedIds: Set<string>;
}

/**
 * The rows of each source. They are read from the lake (the database of the log's rows) at each use, since another
 * process (a command of the operator, another observer) may have changed them. They are also kept here, since the lake
 * may not have loaded yet what this process wrote. Of two records of a row the later one counts.
 */
class SourceStateCache {
  readonly #sources = new BoundedMap<string, SourceRows>(MAX_SOURCES);
  #rowCount = 0;

  /**
   * @param read reads the rows of a source from the record, with the event ids that records of the source got on that
   * UTC day
   */
  constructor(private readonly read: (source: string, day: string) => Promise<readonly StandingListing[]>) {}

  async load(source: string, day: string): Promise<SourceRows> {
    const recorded = await this.read(source, day);
    const cached = this.#sources.get(source);
    const loaded: SourceRows = cached ?? { source, rows: new Map(), usedIds: new Set() };
    const { rows, usedIds } = loaded;
    const rowsBefore = cached ? rows.size : 0;
    for (const { source_id, cap, event_id, gone, newest, url, at } of recorded) {
      usedIds.add(event_id);
      if (!newest || at <= (rows.get(source_id)?.at ?? Number.NEGATIVE_INFINITY)) continue;
      rows.set(source_id, { cap, eventId: event_id, delisted: gone, url: gone ? null : url, at });
    }
    this.#storeSource(loaded, rowsBefore);
    return loaded;
  }

  /**
   * Stores the rows of a source. Beyond {@link MAX_ROWS} all sources are removed, and read again when needed. If a
   * row is then recorded a second time, its record has the same id, and readers drop it.
   */
  #storeSource(sourceRows: SourceRows, rowsBefore: number): void {
    this.#rowCount += sourceRows.rows.size - rowsBefore;
    if (this.#rowCount > MAX_ROWS) {
      this.#sources.clear();
      this.#rowCount = sourceRows.rows.size;
    }
    this.#sources.set(sourceRows.source, sourceRows);
  }

  /**
   * Remembers a record that is durable. A source with many used ids is removed from the cache and read again at its
   * next use; then only the ids of that day are loaded.
   */
  noteRecorded(sourceRows: SourceRows, sourceId: string, rowState: RowState): void {
    const { source, rows, usedIds } = sourceRows;
    const isCached = this.#sources.get(source) === sourceRows;
    if (isCached && !rows.has(sourceId)) this.#rowCount++;
    rows.set(sourceId, rowState);
    usedIds.add(rowState.eventId);
    if (!isCached || usedIds.size <= 1_000 + 8 * rows.size) return;
    this.#sources.delete(source);
    this.#rowCount -= rows.size;
  }
}

/**
 * Largest number of endpoints of one registrable domain that discovery may add. All names under one hosting platform
 * together may have {@link PLATFORM_CAP_FACTOR} times as many. Only an operator can add more (records.md).
 */
export const MAX_PER_DOMAIN = 200;
const MAX_PER_PLATFORM = PLATFORM_CAP_FACTOR * MAX_PER_DOMAIN;
/**
 * Largest number of claims by sellers themselves that this process keeps in memory, since the lake (the database of the
 * log's rows) may not have loaded them yet.
 */
const MAX_OWN_CLAIMS = 20_000;
const RECORDS_PER_APPEND = 200;
/** Number of rows after which other work of this process gets a turn, since all rows of a catalogue take seconds. */
const ROWS_PER_TURN = 50;

export interface WriterParts {
  recorder: Recorder;
  metrics: Metrics;
  /** Reads what sources claimed before. Without it every source counts as new. */
  memory?: Pick<Memory, "listingsOf">;
}

/** A claim, and the row that it was read from. */
export interface ClaimRow {
  claim: ListedClaim;
  row: unknown;
}

/** What {@link ListingWriter.write} did with the rows of a source. */
export interface WriteResult {
  /** Number of new listings that were recorded. */
  appended: number;
  rejected: Rejected[];
  /** Number of rows that were delisted because the source names them no longer. */
  delisted: number;
}

/** A listing record that is to be appended, with its claim. */
interface NewListing {
  draft: Draft;
  claim: ListedClaim;
  /**
   * Record that delists the row under the endpoint that the row named before; null if it named no endpoint before, or
   * the endpoint of `claim`.
   */
  moveDraft: Draft | null;
}

/** Returns the state of a row after this record of it. */
const stateAfter = (record: Draft, { delisted, url }: Pick<RowState, "delisted" | "url">): RowState => ({
  ...{ cap: record.cap, eventId: Recorder.idOf(record), delisted, url, at: record.at.getTime() },
});

/** Records new claims of a source, and delists rows that the source names no longer. */
export class ListingWriter {
  readonly #states: SourceStateCache;
  /** Capability ids of the listed endpoints, by domain, and by `all of <platform>` for a hosting platform. */
  readonly #domains = new Map<string, Set<string>>();
  /** The newest listing by an endpoint's own seller that this process recorded, by capability id. */
  readonly #sellerListings = new BoundedMap<string, { eventId: string; claims: Claims }>(MAX_OWN_CLAIMS);
  /** Event ids of listings that are already in the record. */
  #recordedIds: ReadonlySet<string> = new Set();

  constructor(private readonly parts: WriterParts) {
    // The rows of source "402" are not read, since there is one for each endpoint. They are known by their event ids
    // (#recordedIds, set by rememberListed).
    this.#states = new SourceStateCache(async (source, day) =>
      source === "402" || !parts.memory ? [] : parts.memory.listingsOf(source, day),
    );
  }

  /** Remembers which endpoints are listed now, in place of those that were remembered before. */
  rememberListed(listed: readonly ListedCap[]): void {
    this.#domains.clear();
    this.#recordedIds = new Set(listed.flatMap((one) => one.standing));
    for (const { url, cap } of listed) for (const { endpointIds } of this.#domainsOf(url)) endpointIds.add(cap);
  }

  /** Returns the newest listing of an endpoint by its seller that this process recorded. */
  newestSellerListing(cap: string): { eventId: string; claims: Claims } | undefined {
    return this.#sellerListings.get(cap);
  }

  /** Returns the known endpoints of a url's domain, and of its hosting platform if it has one, each with the limit. */
  #domainsOf(url: string): { endpointIds: Set<string>; maxEndpoints: number }[] {
    const domain = registrableDomain(url);
    const platform = platformOf(url);
    const endpointIdsOf = (name: string): Set<string> => {
      const endpointIds = this.#domains.get(name) ?? new Set();
      this.#domains.set(name, endpointIds);
      return endpointIds;
    };
    return [
      { endpointIds: endpointIdsOf(domain), maxEndpoints: MAX_PER_DOMAIN },
      ...(platform === domain
        ? []
        : [{ endpointIds: endpointIdsOf(`all of ${platform}`), maxEndpoints: MAX_PER_PLATFORM }]),
    ];
  }

  /**
   * Counts the claim's endpoint in its domain and platform if there is room. Returns false if there is none. There is
   * always room for an endpoint that is already listed, and for another method of a url whose listed method was only
   * assumed, since that is no new endpoint.
   */
  #tryAdmit(claim: ListedClaim, source: Source, state: SourceRows): boolean {
    const { normalised_url: url, source_id } = claim.body;
    const domains = this.#domainsOf(url);
    const rowState = state.rows.get(source_id);
    const isListed =
      domains[0]!.endpointIds.has(claim.cap) ||
      (rowState !== undefined && !rowState.delisted && (rowState.cap === claim.cap || rowState.url === url)) ||
      (source.name === "402" && domains[0]!.endpointIds.has(capId("GET", url)));
    if (
      !isListed &&
      !source.byOperator &&
      domains.some(({ endpointIds, maxEndpoints }) => endpointIds.size >= maxEndpoints)
    )
      return false;
    if (rowState !== undefined && rowState.cap !== claim.cap) this.#forgetListed(rowState);
    for (const { endpointIds } of domains) endpointIds.add(claim.cap);
    return true;
  }

  /**
   * Stops counting the endpoint of a row in its domain and platform. If another source lists the endpoint too, it
   * counts again when that source is read or `rememberListed` names it.
   */
  #forgetListed({ cap, url }: RowState): void {
    if (url !== null) for (const { endpointIds } of this.#domainsOf(url)) endpointIds.delete(cap);
  }

  /**
   * Delists the rows that are missing, then appends the claims that are new. A claim is remembered only when it is
   * durable, so that a claim that was not written is tried again at the next read.
   */
  async write(rows: readonly ClaimRow[], source: Source, isWhole: boolean, clock: Clock): Promise<WriteResult> {
    const name = source.name.slice(0, 300);
    const state = await this.#states.load(name, dayOf(clock.now()));
    const newListings = new Map<string, NewListing>();
    const rejectedRows: Rejected[] = [];
    // Rows that the source names no longer are delisted first, so that their endpoints leave room in their domains.
    const namedIds = new Set(rows.map(({ claim }) => claim.body.source_id));
    const delisted = isWhole ? await this.#delist(name, state, namedIds, clock) : 0;
    for (const [n, { claim, row }] of rows.entries()) {
      if (n > 0 && n % ROWS_PER_TURN === 0) await setImmediate();
      const id = claim.body.source_id;
      if (!this.#tryAdmit(claim, source, state)) {
        this.parts.metrics.count("touchstone_observe_listings_total", { result: "domain_full" });
        rejectedRows.push(rejectRow("domain_full", row));
        continue;
      }
      const contentHash = hashOf([claim.body.seller_controlled, claim.body.claims, claim.body.defects] as unknown);
      // A malformed body is left out here, since the log would refuse its whole batch.
      if (contentHash === null || !BODIES.listing.safeParse(claim.body).success) {
        rejectedRows.push(rejectRow("unkeepable", row));
        continue;
      }
      const now = clock.now();
      const moveDraft = createMoveDraft(claim, state, now);
      // The listing gets a later time than the delisting, so that it is the newer record of the row: the two endpoints
      // may be in different partitions of the log, which have no common order.
      const at = moveDraft ? new Date(now.getTime() + 1) : now;
      const draft = createListingDraft(claim, contentHash, state, this.#recordedIds, at);
      // Of several items with one source id, the last one counts.
      if ("standing" in draft) {
        newListings.delete(id);
        this.#keepSellerListing(claim, draft.standing);
      } else newListings.set(id, { draft, claim, moveDraft });
    }
    await this.#append([...newListings.values()], state);
    return { appended: newListings.size, rejected: rejectedRows, delisted };
  }

  async #append(listings: readonly NewListing[], state: SourceRows): Promise<void> {
    for (let i = 0; i < listings.length; i += RECORDS_PER_APPEND) {
      const batch = listings.slice(i, i + RECORDS_PER_APPEND);
      // The delistings are durable before the listings. If the process dies in between, the rows are listed again at
      // the next read.
      const moves = batch.flatMap(({ moveDraft }) => moveDraft ?? []);
      if (moves.length > 0) await this.parts.recorder.append(moves);
      for (const { moveDraft, claim } of batch) {
        if (!moveDraft) continue;
        this.#states.noteRecorded(state, claim.body.source_id, stateAfter(moveDraft, { delisted: true, url: null }));
        this.#sellerListings.delete(moveDraft.cap);
      }
      await this.parts.recorder.append(batch.map(({ draft }) => draft));
      for (const { draft, claim } of batch) {
        const eventId = Recorder.idOf(draft);
        const { normalised_url: url, source_id } = claim.body;
        this.#states.noteRecorded(state, source_id, stateAfter(draft, { delisted: false, url }));
        this.#keepSellerListing(claim, eventId);
      }
    }
    this.parts.metrics.count("touchstone_observe_listings_total", { result: "appended" }, listings.length);
  }

  /** Records the delisting of rows that a completely read source named before and names no longer. */
  async #delist(name: string, state: SourceRows, namedIds: ReadonlySet<string>, clock: Clock): Promise<number> {
    const missingRows = [...state.rows].filter(([id, rowState]) => !rowState.delisted && !namedIds.has(id));
    for (let i = 0; i < missingRows.length; i += RECORDS_PER_APPEND) {
      const delistings = missingRows.slice(i, i + RECORDS_PER_APPEND).map(([id, rowState]) => ({
        id,
        rowState,
        draft: createDelistingDraft(
          { source: name, source_id: id, reason: NAMED_NO_LONGER },
          rowState,
          state,
          clock.now(),
        ),
      }));
      await this.parts.recorder.append(delistings.map(({ draft }) => draft));
      for (const { id, rowState, draft } of delistings) {
        this.#states.noteRecorded(state, id, stateAfter(draft, { delisted: true, url: null }));
        this.#forgetListed(rowState);
        this.#sellerListings.delete(rowState.cap);
      }
    }
    if (missingRows.length > 0)
      this.parts.metrics.count("touchstone_observe_listings_total", { result: "delisted" }, missingRows.length);
    return missingRows.length;
  }

  #keepSellerListing(claim: ListedClaim, eventId: string): void {
    const { seller_controlled, claims } = claim.body;
    if (seller_controlled) this.#sellerListings.set(claim.cap, { eventId, claims });
  }
}

/** Largest number of attempt numbers for one content that are tried to find the event id of the newest record. */
const MAX_ATTEMPTS_SEARCHED = 8;
/**
 * Largest number of records of one content within a day. Content that is listed and delisted more often is not recorded
 * any more.
 */
const MAX_ATTEMPTS = 1_000;

/** Returns the first attempt number whose event id was not used today. */
function firstUnusedAttempt(content: Pick<Draft, "type" | "cap" | "slot">, usedIds: ReadonlySet<string>): number {
  let attempt = 0;
  while (attempt < MAX_ATTEMPTS && usedIds.has(Recorder.idOf({ ...content, attempt }))) attempt++;
  return attempt;
}

/**
 * Makes the listing record of a claim, or returns the event id of the current record if that has the same content. An
 * event id is computed from content and attempt number, and readers drop a second record with the same id. So content
 * that is listed again after a delisting gets the first attempt number whose id was not used today. After a restart,
 * the ids used today are read from the log.
 * @param currentIds event ids of current listings in the log, for sources whose rows are not read
 */
function createListingDraft(
  claim: ListedClaim,
  contentHash: string,
  state: SourceRows,
  currentIds: ReadonlySet<string>,
  at: Date,
): Draft | { standing: string } {
  const { cap, body } = claim;
  const slot = [body.source, body.source_id, contentHash].join("\n");
  const content = { type: "listing" as const, cap, slot };
  const rowState = state.rows.get(body.source_id);
  if (rowState === undefined) {
    const firstId = Recorder.idOf(content);
    if (currentIds.has(firstId)) return { standing: firstId };
  } else if (!rowState.delisted && rowState.cap === cap) {
    for (let attempt = 0; attempt < MAX_ATTEMPTS_SEARCHED; attempt++) {
      if (Recorder.idOf({ ...content, attempt }) === rowState.eventId) return { standing: rowState.eventId };
    }
  }
  return createDraft({ ...content, attempt: firstUnusedAttempt(content, state.usedIds), at, body });
}

const NAMED_NO_LONGER = "the source, read whole, names it no longer";

/** Makes the record that a row no longer names an endpoint. */
function createDelistingDraft(
  body: BodyOf<"delisting">,
  rowState: Pick<RowState, "cap">,
  state: SourceRows,
  at: Date,
): Draft {
  const content = { type: "delisting" as const, cap: rowState.cap, slot: hashOf(body) ?? "" };
  return createDraft({ ...content, attempt: firstUnusedAttempt(content, state.usedIds), at, body });
}

/**
 * Makes the delisting of a row under the endpoint that it named before, if it names another one now. The two endpoints
 * may be in partitions of two owners, and the owner of the first one never reads the new listing. Rows of source "402"
 * are never delisted (sql/queries/listings).
 */
function createMoveDraft({ cap, body }: ListedClaim, state: SourceRows, at: Date): Draft | null {
  const { source, source_id } = body;
  const rowState = state.rows.get(source_id);
  if (source === "402" || rowState === undefined || rowState.delisted || rowState.cap === cap) return null;
  return createDelistingDraft({ source, source_id, reason: "the source names another endpoint" }, rowState, state, at);
}
