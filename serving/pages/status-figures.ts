import type { Clock } from "../../infra/clock.ts";
import { DAY_MS } from "../../pipelines/record/time.ts";
import { readCorrections } from "../answers/corrections.ts";
import { headlineOf, isListed } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";

/** Figures about the service that need a pass over all endpoints. */
export interface Figures {
  listedCount: number;
  /** Number of listed endpoints with a letter. */
  letteredCount: number;
  /** Number of endpoints that were ever probed. */
  probedCount: number;
  /** Number of endpoints that were probed within a day. */
  probedTodayCount: number;
  /** Time of the newest free handshake, unix ms. */
  newestProbeMs: number | null;
  /** Time of the newest card, unix ms. */
  newestCardMs: number | null;
  /**
   * By class of endpoints: the number of calls that were withdrawn in the last {@link WITHDRAWN_DAYS} days because our
   * own check was wrong, and the time of the first withdrawal (RFC 3339).
   */
  withdrawn: ReadonlyMap<string, { calls: number; since: string }>;
}

/** Number of days for which the status page shows a withdrawal. */
export const WITHDRAWN_DAYS = 30;

/** Least time between two passes over all endpoints, ms. */
const MIN_INTERVAL_MS = 15_000;

/**
 * Computes the figures of a view and returns them for {@link MIN_INTERVAL_MS} also for newer views, since a pass over a
 * million endpoints takes a tenth of a second.
 */
export class StatusFigures {
  #cached: { figures: Figures; at: number; size: number } | null = null;

  constructor(private readonly clock: Pick<Clock, "now" | "monotonic">) {}

  figuresFor(view: View): Figures {
    const at = this.clock.monotonic();
    // Figures of an empty view are not cached, since the record was not read yet.
    if (this.#cached && this.#cached.size > 0 && at - this.#cached.at < MIN_INTERVAL_MS) return this.#cached.figures;
    const figures = figuresOf(view, this.clock.now().getTime());
    this.#cached = { figures, at, size: view.size };
    return figures;
  }
}

function figuresOf(view: View, now: number): Figures {
  const withdrawn = new Map<string, { calls: number; since: string }>();
  const figures: Figures = {
    withdrawn,
    ...{ listedCount: 0, letteredCount: 0, probedCount: 0, probedTodayCount: 0 },
    ...{ newestProbeMs: null, newestCardMs: null },
  };
  const since = new Date(now - WITHDRAWN_DAYS * DAY_MS).toISOString();
  for (const entry of view.entries.values()) {
    const card = headlineOf(entry);
    if (card) figures.newestCardMs = Math.max(figures.newestCardMs ?? 0, Date.parse(entry.computedAt));
    const kind = entry.listing?.class ?? "any";
    const { corrections, withdrawnCorrectionIds } = readCorrections(entry.corrections);
    for (const { id, fault, issuedAt } of corrections) {
      if (fault !== "wrong_checker" || issuedAt < since || withdrawnCorrectionIds.includes(id)) continue;
      const ofClass = withdrawn.get(kind) ?? { calls: 0, since: issuedAt };
      ofClass.calls++;
      if (issuedAt < ofClass.since) ofClass.since = issuedAt;
      withdrawn.set(kind, ofClass);
    }
    if (!isListed(entry)) continue;
    figures.listedCount++;
    if (view.bandOf(entry) !== "UNRATED") figures.letteredCount++;
  }
  for (const { last_seen } of view.volatile.rows.values()) {
    if (last_seen === null) continue;
    figures.probedCount++;
    if (last_seen > now - DAY_MS) figures.probedTodayCount++;
    figures.newestProbeMs = Math.max(figures.newestProbeMs ?? 0, last_seen);
  }
  return figures;
}
