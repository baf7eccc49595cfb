import type { Clock } from "../../infra/clock.ts";
import { createYielder, forEachYielding } from "../../infra/concurrency.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { RelatedParties } from "../../pipelines/3-grade/related.ts";
import { applyLeafToEndpoint, endpointOf } from "../../pipelines/published/endpoint.ts";
import { isSimulated, type PublishedTree, type Snapshot } from "../../pipelines/published/reader.ts";
import { RelatedPartiesFold } from "../../pipelines/published/related-parties.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import { type Entry, SERVING_PROJECTION } from "./entry.ts";
import { View } from "./view.ts";
import { loadVolatile } from "./volatile.ts";

export interface FollowerDeps {
  tree: Pick<PublishedTree, "newest">;
  /** The public store, from which only `live/` is read here. */
  store: Pick<Store, "get">;
  /** Name of the log, as in its checkpoints. */
  origin: string;
  clock: Clock;
  logger: Logger;
  metrics: Metrics;
  /** Pause between two refreshes, real ms (default 2,000). */
  everyMs?: number;
  /** Calls `look`, which is one refresh, and reports its outcome to the process's health report; absent: no report. */
  during?: (look: () => Promise<boolean>) => Promise<boolean>;
}

/** Number of leaves folded, or of urls added, between two yields to the event loop. They take a few milliseconds. */
const LEAVES_PER_TURN = 64;

/**
 * Polls the public store and holds the newest view, the state of the record that answers are made from. One refresh
 * runs at a time. When a refresh fails, the old view stays.
 */
export class Follower {
  #view: View;
  #snapshot: Snapshot | null = null;
  /** Time of the last successful refresh, ms of the monotonic clock; null before the first. */
  #refreshedAtMs: number | null = null;
  #pendingRefresh: Promise<boolean> | null = null;
  #timer: NodeJS.Timeout | null = null;
  #isStopped = false;
  /**
   * Table of related parties (endpoints with a common payee or domain). After a failed refresh it may hold leaves that
   * the view does not have; the next refresh applies them again.
   */
  readonly #relatedParties = new RelatedPartiesFold();
  readonly #giveTurn = createYielder(LEAVES_PER_TURN);

  constructor(private readonly deps: FollowerDeps) {
    this.#view = View.empty(deps.origin);
  }

  /** The newest view; an empty one until the first refresh succeeded. */
  get view(): View {
    return this.#view;
  }

  /** The verified state of the log that the view was made from, or null before the first publication. */
  get snapshot(): Snapshot | null {
    return this.#snapshot;
  }

  /**
   * True if the record's time is simulated: this process's clock is, or the newest checkpoint marks it as simulated.
   * False if it is real.
   */
  get simulated(): boolean {
    return this.deps.clock.simulated || (this.#snapshot !== null && isSimulated(this.#snapshot.head));
  }

  /** Ms since the last successful refresh, by the monotonic clock; null before the first. */
  get viewAgeMs(): number | null {
    return this.#refreshedAtMs === null ? null : this.deps.clock.monotonic() - this.#refreshedAtMs;
  }

  /**
   * Refreshes once: reads newer volatile rows (the facts that change faster than cards), folds the log's new leaves,
   * and replaces the view. The rows are read before the log, so that the log is not older than the rows. If it is
   * older all the same, as on a replica whose source lags, the old rows stay. Concurrent callers share one refresh.
   * @returns true if the view changed; false if there was nothing new
   * @throws errors of the tree and the store (HistoryChanged, Tampered ..); the old view stays
   */
  refresh(): Promise<boolean> {
    const { during = (look) => look() } = this.deps;
    this.#pendingRefresh ??= during(() => this.#refreshOnce()).finally(() => {
      this.#pendingRefresh = null;
    });
    return this.#pendingRefresh;
  }

  /** Starts refreshing periodically. A refresh that fails is logged and tried again. */
  start(): void {
    const intervalMs = this.deps.everyMs ?? 2000;
    const poll = async (): Promise<void> => {
      try {
        await this.refresh();
      } catch (error) {
        this.deps.metrics.count("touchstone_serving_refresh_failures_total");
        this.deps.logger.warn({ err: error }, "the view could not be refreshed; the old one stays");
      }
      if (!this.#isStopped) this.#timer = setTimeout(() => void poll(), intervalMs);
    };
    void poll();
  }

  /** Stops; resolves when a running refresh has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    if (this.#timer) clearTimeout(this.#timer);
    await this.#pendingRefresh?.catch(() => {});
  }

  async #refreshOnce(): Promise<boolean> {
    const old = this.#view;
    const loaded = await this.#loadVolatileRows(old);
    const snapshot = await this.deps.tree.newest();
    const size = snapshot?.head.size ?? 0;
    const { entries, related } = snapshot ? await this.#foldNewLeaves(old, snapshot) : old;
    // Rows made from a larger log are not used yet: they count from cards, and omit published corrections, that this
    // log does not have.
    const { volatile, newRows } = loaded.volatile.treeSize > size ? { volatile: old.volatile, newRows: [] } : loaded;
    const addUrl = (row: VolatileRow): void =>
      old.urlIndex.add({ cap: row.capability_id, url: row.url, method: row.method });
    await forEachYielding(newRows, LEAVES_PER_TURN, addUrl);
    const isChanged = volatile !== old.volatile || size !== old.size;
    if (isChanged) {
      const view = new View({ ...old, size, entries, related, volatile });
      await view.buildPayeesIfBuiltIn(old);
      this.#view = view;
    }
    this.#snapshot = snapshot;
    this.#refreshedAtMs = this.deps.clock.monotonic();
    this.deps.metrics.gauge("touchstone_serving_tree_size", this.#view.size);
    this.deps.metrics.gauge("touchstone_serving_endpoints", this.#view.entries.size);
    return isChanged;
  }

  /** Reads newer volatile rows. If that fails, returns the old ones, so that the refresh still shows new letters. */
  async #loadVolatileRows(old: View): ReturnType<typeof loadVolatile> {
    try {
      return await loadVolatile(this.deps.store, old.volatile);
    } catch (error) {
      this.deps.metrics.count("touchstone_serving_volatile_failures_total");
      this.deps.logger.warn({ err: error }, "the volatile rows could not be read; the old ones stay");
      return { volatile: old.volatile, newRows: [] };
    }
  }

  /**
   * Folds the leaves that the old view does not have; returns the new entries and the table of related parties. Urls
   * are added at once to the index that all views share. That is safe, since a view ignores ids that it does not hold.
   */
  async #foldNewLeaves(old: View, { head, reader }: Snapshot): Promise<Pick<View, "entries" | "related">> {
    let areRelatedChanged = false;
    const changes = new Map<string, Entry>();
    for await (const { bytes, leaf } of reader.leaves(old.size, head.size)) {
      // The leaves of one bundle (a file of up to 256 leaves) arrive without a pause between them.
      await this.#giveTurn();
      if (leaf.kind === "evidence") old.evidence.add(leaf);
      if (leaf.kind === "receipt") old.receipts.add(leaf);
      // The refresh after a failed one folds the same leaves again, so the archive may have this one already.
      if (leaf.kind === "archive" && !old.archive.files.has(leaf.manifest.id)) old.archive.apply(leaf);
      if (leaf.kind === "kin") {
        this.#relatedParties.apply(leaf);
        areRelatedChanged = true;
      }
      const cap = endpointOf(leaf);
      if (cap === null) continue;
      const entryBefore = changes.get(cap) ?? old.entry(cap) ?? SERVING_PROJECTION.createEndpoint(cap);
      changes.set(cap, applyLeafToEndpoint(entryBefore, leaf, SERVING_PROJECTION, bytes));
      if (leaf.kind === "listing") old.urlIndex.add({ cap, url: leaf.url, method: leaf.method });
    }
    const related = areRelatedChanged ? new RelatedParties(this.#relatedParties.table) : old.related;
    return { entries: old.entries.with(changes), related };
  }
}
