import { BoundedMap } from "../../../infra/bounded-map.ts";
import { type Catalogue, type NamedCatalogue, toCatalogue } from "../../../infra/catalogues.ts";
import type { Clock } from "../../../infra/clock.ts";
import type { Egress, EgressResult } from "../../../infra/egress/egress.ts";
import { retryAfterMs } from "../../../infra/egress/headers.ts";
import type { Reader } from "../reading/reader.ts";
import type { PageRow } from "./documents.ts";
import { MAX_ROWS } from "./tables.ts";

const PAGE_SIZE = 100;
const MAX_PAGES = 1_000;
/** Largest number of bytes that one pass (one reading of all pages) may fetch. */
const MAX_BYTES = 256 * 1024 * 1024;
/**
 * Largest number of passes over a catalogue. Rows are lost and repeated when a catalogue changes while its pages are
 * read, so passes are made until one finds nothing new.
 */
const MAX_PASSES = 3;

/** Pauses before a failed page is requested again, ms. A longer pause that the catalogue asks for is used instead. */
const RETRY_PAUSES_MS = [1_000, 5_000, 20_000];
/** Longest pause within one read, ms. If a catalogue asks for a longer pause, the read stops and continues later. */
const MAX_WAIT_MS = 60_000;
/** Longest pause that a catalogue may ask for, ms. */
const MAX_RETRY_AFTER_MS = 86_400_000;
/** Pause before a read that stopped early continues, ms, if the catalogue named no time. */
const CONTINUE_PAUSE_MS = 300_000;
/**
 * Longest time of one read, ms. Then other catalogues are read, and the next read of this catalogue continues where the
 * last one stopped.
 */
const MAX_READ_MS = 900_000;
/** Age at which an unfinished read is given up and starts again, since its first rows are old, ms. */
const MAX_AGE_MS = 86_400_000;
/** Largest number of unfinished reads that are remembered. */
const MAX_UNFINISHED = 32;
/**
 * The rows of an unfinished read that has fetched more bytes than this are not remembered, and the next read starts
 * again.
 */
const MAX_UNFINISHED_BYTES = 64 * 1024 * 1024;

export interface CatalogueRead {
  /**
   * One row for each resource (and tool), in the order in which resources were first seen. Of several rows for one
   * resource, only the one that was updated last.
   */
  rows: unknown[];
  /** True if the last pass found nothing new. */
  stable: boolean;
  /** Why the read ended early, in words; absent if `stable`. */
  says?: string;
}

/** State of an unfinished read. Times are ms of the clock's `monotonic`. */
class ReadState {
  /** The newest row of each resource, by the row's key. */
  readonly rowsByKey = new Map<string, PageRow>();
  /** Number of passes that were completed. */
  completedPasses = 0;
  /** Number of pages that were read in this pass. */
  pagesRead = 0;
  /** Offset of the next page, in rows. */
  offset = 0;
  /** Bytes read in this pass. */
  bytes = 0;
  /** Bytes read in all passes. */
  totalBytes = 0;
  /** Number of rows that were known when this pass began. */
  rowsBeforePass = 0;
  /** Number of reads that stopped early since a page was last read. */
  failures = 0;
  /** Nothing is fetched before this time, which the catalogue named in Retry-After; null if it named none. */
  retryNotBefore: number | null = null;
  /** Time after which the read may continue. */
  continueAt = 0;

  constructor(readonly beganAt: number) {}

  beginNextPass(): void {
    this.completedPasses++;
    this.pagesRead = 0;
    this.offset = 0;
    this.bytes = 0;
    this.rowsBeforePass = this.rowsByKey.size;
  }
}

/**
 * Why a read ended early. If `isContinuable`, the next read continues where this one stopped; otherwise it starts
 * again.
 */
type EarlyEnd = { isContinuable: boolean; detail: string; retryAfterMs?: number };

const pageUrl = (catalogue: string, offset: number): string => {
  const url = new URL(catalogue);
  if (!url.pathname.endsWith("/discovery/resources")) {
    url.pathname = `${url.pathname.replace(/\/$/, "")}/discovery/resources`;
  }
  url.searchParams.set("limit", String(PAGE_SIZE));
  url.searchParams.set("offset", String(offset));
  return url.href;
};

/** Keeps, of several rows of one resource, the row that was updated last. */
function keepNewest(rowsByKey: Map<string, PageRow>, row: PageRow): void {
  const currentRow = rowsByKey.get(row.key);
  if (currentRow === undefined || (row.updatedAt ?? 0) >= (currentRow.updatedAt ?? 0)) rowsByKey.set(row.key, row);
}

const describeResult = (result: EgressResult): string =>
  result.outcome === "answered" ? `status ${result.status}` : `${result.outcome}: ${result.says}`;

/** May the request succeed if it is repeated? */
const isRetriable = (result: EgressResult): boolean =>
  result.outcome === "answered"
    ? result.status === 429 || result.status >= 500
    : result.outcome !== "refused" && result.outcome !== "too_large";

/**
 * Reads Bazaar catalogues (`GET {catalogue}/discovery/resources?limit&offset`). It reads slowly to spare the catalogue,
 * pauses as long as the catalogue asks by Retry-After, and continues where the last read stopped. The state is only in
 * memory: after a restart a read starts again, and rows that are read again are not recorded again.
 */
export class Catalogues {
  /** Unfinished reads by the catalogue's url. */
  readonly #unfinished = new BoundedMap<string, ReadState>(MAX_UNFINISHED);

  constructor(
    private readonly egress: Egress,
    private readonly reader: Reader,
  ) {}

  /** Is there an unfinished read of this catalogue that may continue now? */
  mayContinue(namedCatalogue: NamedCatalogue, clock: Pick<Clock, "monotonic">): boolean {
    const state = this.#unfinished.get(toCatalogue(namedCatalogue).url);
    return state !== undefined && clock.monotonic() >= state.continueAt;
  }

  /**
   * Reads all rows, pass by pass, until a pass finds nothing new. Never throws for anything that the catalogue does: it
   * returns the rows so far with the reason, and the next call continues from there. During a pause that the catalogue
   * asked for, it fetches nothing and returns no row.
   */
  async read(namedCatalogue: NamedCatalogue, clock: Clock, signal?: AbortSignal): Promise<CatalogueRead> {
    const catalogue = toCatalogue(namedCatalogue);
    const state = this.#getState(catalogue.url, clock);
    if (state.retryNotBefore !== null && clock.monotonic() < state.retryNotBefore) {
      return { rows: [], stable: false, says: "it asked us to come back later" };
    }
    const earlyEnd = await this.#readPasses(catalogue, state, clock, signal);
    const rows = [...state.rowsByKey.values()].map(({ row }) => row);
    if (earlyEnd?.isContinuable) this.#rememberUnfinished(catalogue.url, state, earlyEnd, clock);
    else this.#unfinished.delete(catalogue.url);
    return earlyEnd === null ? { rows, stable: true } : { rows, stable: false, says: earlyEnd.detail };
  }

  #getState(url: string, clock: Clock): ReadState {
    const now = clock.monotonic();
    const unfinished = this.#unfinished.get(url);
    return unfinished && now - unfinished.beganAt < MAX_AGE_MS ? unfinished : new ReadState(now);
  }

  #rememberUnfinished(url: string, state: ReadState, earlyEnd: EarlyEnd, clock: Clock): void {
    const now = clock.monotonic();
    const { retryAfterMs: requestedMs } = earlyEnd;
    // The pause doubles with each failure. It does not delay the regular read of the catalogue.
    const pause = CONTINUE_PAUSE_MS * 2 ** Math.min(state.failures++, 6);
    state.retryNotBefore = requestedMs === undefined ? null : now + Math.min(requestedMs, MAX_RETRY_AFTER_MS);
    state.continueAt = Math.max(state.retryNotBefore ?? 0, now + pause);
    const remembered = state.totalBytes <= MAX_UNFINISHED_BYTES ? state : new ReadState(now);
    remembered.retryNotBefore = state.retryNotBefore;
    remembered.continueAt = state.continueAt;
    remembered.failures = state.failures;
    this.#unfinished.set(url, remembered);
  }

  async #readPasses(
    catalogue: Catalogue,
    state: ReadState,
    clock: Clock,
    signal?: AbortSignal,
  ): Promise<EarlyEnd | null> {
    const deadline = clock.monotonic() + MAX_READ_MS;
    for (let requests = 0; state.completedPasses < MAX_PASSES; ) {
      for (;;) {
        if (clock.monotonic() > deadline) return { isContinuable: true, detail: "it goes on in its next turn" };
        if (requests++ > 0 && !(await sleepUnlessStopped(clock, catalogue.pause_ms, signal))) return STOPPED;
        const pageResult = await this.#readPage(catalogue, state, clock, signal);
        if (typeof pageResult === "object") return pageResult;
        state.failures = 0;
        if (pageResult === "last") break;
      }
      if (state.completedPasses > 0 && state.rowsByKey.size === state.rowsBeforePass) return null;
      state.beginNextPass();
    }
    return { isContinuable: false, detail: `still moving after ${MAX_PASSES} passes` };
  }

  /** Reads one page into `state`. Returns `last` if the page was empty or the stated total is reached. */
  async #readPage(
    catalogue: Catalogue,
    state: ReadState,
    clock: Clock,
    signal?: AbortSignal,
  ): Promise<EarlyEnd | "more" | "last"> {
    const pageName = `page at ${state.offset}`;
    const result = await this.#fetch(catalogue, state.offset, clock, signal);
    if ("isContinuable" in result) return { ...result, detail: `${pageName}: ${result.detail}` };
    if (result.outcome !== "answered" || result.status !== 200)
      return { isContinuable: false, detail: `${pageName}: ${describeResult(result)}` };
    state.bytes += result.body.length;
    state.totalBytes += result.body.length;
    if (state.bytes > MAX_BYTES) return { isContinuable: false, detail: `more than ${MAX_BYTES} bytes` };
    const parsed = await this.reader.ask("page", result.body);
    if (!parsed.ok) return { isContinuable: false, detail: `${pageName}: ${parsed.says}` };
    if (parsed.value === null) return { isContinuable: false, detail: `${pageName}: no list of items` };
    const { rows, total } = parsed.value;
    for (const row of rows) keepNewest(state.rowsByKey, row);
    if (state.rowsByKey.size > MAX_ROWS) return { isContinuable: false, detail: `more than ${MAX_ROWS} rows` };
    state.offset += rows.length;
    // A catalogue may return fewer rows a page than requested, so only an empty page or the stated total ends the pass.
    if (rows.length === 0 || (total !== null && state.offset >= total)) return "last";
    return ++state.pagesRead >= MAX_PAGES ? { isContinuable: false, detail: `more than ${MAX_PAGES} pages` } : "more";
  }

  /** Fetches a page, and repeats a failed request if that may help. */
  async #fetch(
    { url, headers }: Catalogue,
    offset: number,
    clock: Clock,
    signal?: AbortSignal,
  ): Promise<EgressResult | EarlyEnd> {
    for (let tries = 0; ; tries++) {
      const result = await this.egress.fetch({
        url: pageUrl(url, offset),
        method: "GET",
        headers: { accept: "application/json", ...headers },
        profile: "evidence",
        ...(signal ? { signal } : {}),
      });
      if (signal?.aborted) return STOPPED;
      if (!isRetriable(result)) return result;
      const requestedMs = retryAfterMs(result.headers?.["retry-after"], clock.now().getTime());
      const wait = Math.max(requestedMs ?? 0, RETRY_PAUSES_MS[tries] ?? 0);
      if (tries >= RETRY_PAUSES_MS.length || wait > MAX_WAIT_MS) {
        return {
          isContinuable: true,
          detail: describeResult(result),
          ...(requestedMs === null ? {} : { retryAfterMs: requestedMs }),
        };
      }
      if (!(await sleepUnlessStopped(clock, wait, signal))) return STOPPED;
    }
  }
}

const STOPPED: EarlyEnd = { isContinuable: true, detail: "we were stopped" };

/** Waits on the given clock; returns false when the observer was stopped. */
async function sleepUnlessStopped(clock: Clock, ms: number, signal?: AbortSignal): Promise<boolean> {
  if (ms > 0) await clock.sleep(ms, signal).catch(() => undefined);
  return !signal?.aborted;
}
