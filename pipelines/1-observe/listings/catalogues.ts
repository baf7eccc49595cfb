import { BoundedMap } from "../../../infra/bounded-map.ts";
import { type Catalogue, type NamedCatalogue, toCatalogue } from "../../../infra/catalogues.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { Egress, EgressResult } from "../../../infra/egress/egress.ts";
import { retryAfterMs } from "../../../infra/egress/headers.ts";
import type { Reader } from "../reading/reader.ts";
import type { PageRow } from "./documents.ts";
import { MAX_ROWS } from "./tables.ts";

const PAGE = 100;
const MAX_PAGES = 1_000;
/** Bytes of all pages of one pass that are read. */
const MAX_BYTES = 256 * 1024 * 1024;
/**
 * Passes over a catalogue. Rows are lost and repeated when a catalogue changes while it is paged, so passes are made
 * until one finds nothing new.
 */
const MAX_PASSES = 3;

/** Pauses before a page is asked for again, ms; a catalogue that asks for a longer pause gets it. */
const PAUSES_MS = [1_000, 5_000, 20_000];
/** Longest pause within one read, ms; where a catalogue asks for more, the read stops and goes on later. */
const MAX_WAIT_MS = 60_000;
/** Longest pause that a catalogue may ask for, ms. */
const MAX_ASKED_MS = 86_400_000;
/** Pause before a read that stopped early goes on, ms, where the catalogue named no time. */
const AGAIN_MS = 300_000;
/**
 * Longest time of one read, ms: then other catalogues have their turn, and the next read goes on where this one
 * stopped.
 */
const TURN_MS = 900_000;
/** A read that began longer ago than this, ms, begins anew, since its first rows are old. */
const STALE_MS = 86_400_000;
/** Unfinished reads that are remembered. */
const MAX_KEPT = 32;
/** A read that has fetched more bytes of pages than this is not remembered. */
const MAX_KEPT_BYTES = 64 * 1024 * 1024;

export interface CatalogueRead {
  /** One row for each resource (and tool), in the order first seen; of several rows the one updated last. */
  rows: unknown[];
  /** Did the last pass bring nothing new? */
  stable: boolean;
  says?: string;
}

/** State of an unfinished read. Times are ms of the clock's `monotonic`. */
class ReadState {
  readonly seen = new Map<string, PageRow>();
  pass = 0;
  page = 0;
  offset = 0;
  /** Bytes of this pass. */
  bytes = 0;
  /** Bytes of all passes. */
  allBytes = 0;
  /** Rows that were known when this pass began. */
  before = 0;
  failures = 0;
  /** Nothing is asked before this time, at the catalogue's request; null where it made none. */
  asked: number | null = null;
  /** The time from which the read may go on. */
  due = 0;

  constructor(readonly began: number) {}

  nextPass(): void {
    this.pass++;
    this.page = 0;
    this.offset = 0;
    this.bytes = 0;
    this.before = this.seen.size;
  }
}

/** Why a read ended early. `cut`: a later call goes on from there; otherwise the next read begins anew. */
type End = { cut: boolean; says: string; askedMs?: number };

const pageUrl = (catalogue: string, offset: number): string => {
  const url = new URL(catalogue);
  if (!url.pathname.endsWith("/discovery/resources")) {
    url.pathname = `${url.pathname.replace(/\/$/, "")}/discovery/resources`;
  }
  url.searchParams.set("limit", String(PAGE));
  url.searchParams.set("offset", String(offset));
  return url.href;
};

/** Keeps the row of a resource that was updated last. */
function keep(seen: Map<string, PageRow>, row: PageRow): void {
  const known = seen.get(row.key);
  if (known === undefined || (row.updatedAt ?? 0) >= (known.updatedAt ?? 0)) seen.set(row.key, row);
}

const says = (result: EgressResult): string =>
  result.outcome === "answered" ? `status ${result.status}` : `${result.outcome}: ${result.says}`;

/** May the request succeed when it is repeated? */
const isPassing = (result: EgressResult): boolean =>
  result.outcome === "answered"
    ? result.status === 429 || result.status >= 500
    : result.outcome !== "refused" && result.outcome !== "too_large";

/**
 * Reads Bazaar catalogues (`GET {catalogue}/discovery/resources?limit&offset`). It reads slowly, since other clients
 * use them too; pauses as the catalogue asks by Retry-After; and goes on where the last read stopped. That state is
 * kept in memory only: after a restart a read begins anew, and rows that are read again are not written again.
 */
export class Catalogues {
  readonly #unfinished = new BoundedMap<string, ReadState>(MAX_KEPT);

  constructor(
    private readonly egress: Egress,
    private readonly reader: Reader,
  ) {}

  /** Is there an unfinished read of this catalogue that may go on now? */
  isDue(named: NamedCatalogue, clock: Pick<Clock, "monotonic">): boolean {
    const state = this.#unfinished.get(toCatalogue(named).url);
    return state !== undefined && clock.monotonic() >= state.due;
  }

  /**
   * Reads all rows, pass by pass, until a pass finds nothing new. Never throws for what the catalogue does: it returns
   * the rows so far with the reason, and the next call goes on from there. While the catalogue asked us to wait,
   * nothing is fetched.
   */
  async read(named: NamedCatalogue, clock: Clock, signal?: AbortSignal): Promise<CatalogueRead> {
    const catalogue = toCatalogue(named);
    const state = this.#stateOf(catalogue.url, clock);
    if (state.asked !== null && clock.monotonic() < state.asked) {
      return { rows: [], stable: false, says: "it asked us to come back later" };
    }
    const end = await this.#passes(catalogue, state, clock, signal);
    const rows = [...state.seen.values()].map(({ row }) => row);
    if (end?.cut) this.#keep(catalogue.url, state, end, clock);
    else this.#unfinished.delete(catalogue.url);
    return end === null ? { rows, stable: true } : { rows, stable: false, says: end.says };
  }

  #stateOf(url: string, clock: Clock): ReadState {
    const now = clock.monotonic();
    const known = this.#unfinished.get(url);
    return known && now - known.began < STALE_MS ? known : new ReadState(now);
  }

  #keep(url: string, state: ReadState, end: End, clock: Clock): void {
    const now = clock.monotonic();
    const { askedMs } = end;
    // A catalogue that keeps failing is asked less and less often; the regular read is made in any case.
    const pause = AGAIN_MS * 2 ** Math.min(state.failures++, 6);
    state.asked = askedMs === undefined ? null : now + Math.min(askedMs, MAX_ASKED_MS);
    state.due = Math.max(state.asked ?? 0, now + pause);
    const remembered = state.allBytes <= MAX_KEPT_BYTES ? state : new ReadState(now);
    remembered.asked = state.asked;
    remembered.due = state.due;
    remembered.failures = state.failures;
    this.#unfinished.set(url, remembered);
  }

  async #passes(catalogue: Catalogue, state: ReadState, clock: Clock, signal?: AbortSignal): Promise<End | null> {
    const until = clock.monotonic() + TURN_MS;
    for (let asked = 0; state.pass < MAX_PASSES; ) {
      for (;;) {
        if (clock.monotonic() > until) return { cut: true, says: "it goes on in its next turn" };
        if (asked++ > 0 && !(await waited(clock, catalogue.pause_ms, signal))) return STOPPED;
        const read = await this.#page(catalogue, state, clock, signal);
        if (typeof read === "object") return read;
        state.failures = 0;
        if (read === "last") break;
      }
      if (state.pass > 0 && state.seen.size === state.before) return null;
      state.nextPass();
    }
    return { cut: false, says: `still moving after ${MAX_PASSES} passes` };
  }

  /** Reads one page into `state`. `last`: the page was empty, or the stated total is reached. */
  async #page(
    catalogue: Catalogue,
    state: ReadState,
    clock: Clock,
    signal?: AbortSignal,
  ): Promise<End | "more" | "last"> {
    const at = `page at ${state.offset}`;
    const result = await this.#fetch(catalogue, state.offset, clock, signal);
    if ("cut" in result) return { ...result, says: `${at}: ${result.says}` };
    if (result.outcome !== "answered" || result.status !== 200) return { cut: false, says: `${at}: ${says(result)}` };
    state.bytes += result.body.length;
    state.allBytes += result.body.length;
    if (state.bytes > MAX_BYTES) return { cut: false, says: `more than ${MAX_BYTES} bytes` };
    const read = await this.reader.ask("page", result.body);
    if (!read.ok) return { cut: false, says: `${at}: ${read.says}` };
    if (read.value === null) return { cut: false, says: `${at}: no list of items` };
    const { rows, total } = read.value;
    for (const row of rows) keep(state.seen, row);
    if (state.seen.size > MAX_ROWS) return { cut: false, says: `more than ${MAX_ROWS} rows` };
    state.offset += rows.length;
    // A catalogue may hand out fewer rows a page than asked, so only an empty page or its own total ends the pass.
    if (rows.length === 0 || (total !== null && state.offset >= total)) return "last";
    return ++state.page >= MAX_PAGES ? { cut: false, says: `more than ${MAX_PAGES} pages` } : "more";
  }

  /** Fetches a page, several times if a repetition may help. */
  async #fetch(
    { url, headers }: Catalogue,
    offset: number,
    clock: Clock,
    signal?: AbortSignal,
  ): Promise<EgressResult | End> {
    for (let tries = 0; ; tries++) {
      const result = await this.egress.fetch({
        url: pageUrl(url, offset),
        method: "GET",
        headers: { accept: "application/json", ...headers },
        profile: "evidence",
        ...(signal ? { signal } : {}),
      });
      if (signal?.aborted) return STOPPED;
      if (!isPassing(result)) return result;
      const asked = retryAfterMs(result.headers?.["retry-after"], clock.now().getTime());
      const wait = Math.max(asked ?? 0, PAUSES_MS[tries] ?? 0);
      if (tries >= PAUSES_MS.length || wait > MAX_WAIT_MS) {
        return { cut: true, says: says(result), ...(asked === null ? {} : { askedMs: asked }) };
      }
      if (!(await waited(clock, wait, signal))) return STOPPED;
    }
  }
}

const STOPPED: End = { cut: true, says: "we were stopped" };

/** Waits on the record's clock; false when the observer was stopped. */
async function waited(clock: Clock, ms: number, signal?: AbortSignal): Promise<boolean> {
  if (ms > 0) await clock.sleep(ms, signal).catch(() => undefined);
  return !signal?.aborted;
}
