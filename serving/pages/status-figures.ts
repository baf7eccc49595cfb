import type { Clock } from "../../infra/clock.ts";
import { DAY_MS } from "../../pipelines/record/time.ts";
import { headlineOf, isListed } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";

/** What a look over the whole market tells of the service itself. */
export interface Figures {
  listed: number;
  lettered: number;
  /** Endpoints that were ever probed, those probed within a day, and the moment of the newest free handshake. */
  probed: number;
  probedToday: number;
  newestProbe: number | null;
  /** Moment of the newest card, unix ms. */
  newestCard: number | null;
  /** Class of endpoints -> calls that were withdrawn lately because our own check was wrong, and since when (RFC 3339). */
  withdrawn: ReadonlyMap<string, { calls: number; since: string }>;
}

/** Withdrawals of a class are shown for so many days. */
export const WITHDRAWN_DAYS = 30;

/** Every endpoint is looked at, so no oftener than this, ms. */
const EVERY_MS = 15_000;

/** Figures of the newest view, at most some seconds old: a market of a million takes a tenth of a second. */
export class StatusFigures {
  #made: { figures: Figures; at: number; size: number } | null = null;

  constructor(private readonly clock: Pick<Clock, "now" | "monotonic">) {}

  of(view: View): Figures {
    const at = this.clock.monotonic();
    // An empty view is the one before the first look at the record.
    if (this.#made && this.#made.size > 0 && at - this.#made.at < EVERY_MS) return this.#made.figures;
    const figures = figuresOf(view, this.clock.now().getTime());
    this.#made = { figures, at, size: view.size };
    return figures;
  }
}

function figuresOf(view: View, now: number): Figures {
  const withdrawn = new Map<string, { calls: number; since: string }>();
  const figures: Figures = {
    withdrawn,
    ...{ listed: 0, lettered: 0, probed: 0, probedToday: 0 },
    ...{ newestProbe: null, newestCard: null },
  };
  const since = new Date(now - WITHDRAWN_DAYS * DAY_MS).toISOString();
  for (const entry of view.entries.values()) {
    const card = headlineOf(entry);
    if (card) figures.newestCard = Math.max(figures.newestCard ?? 0, Date.parse(card.computedAt));
    for (const { id, fault, issuedAt } of entry.corrections) {
      if (fault !== "wrong_checker" || issuedAt < since || entry.takenBack.includes(id)) continue;
      const known = withdrawn.get(entry.class ?? "any") ?? { calls: 0, since: issuedAt };
      known.calls++;
      if (issuedAt < known.since) known.since = issuedAt;
      withdrawn.set(entry.class ?? "any", known);
    }
    if (!isListed(entry)) continue;
    figures.listed++;
    if (card && card.band !== "UNRATED") figures.lettered++;
  }
  for (const { last_seen } of view.volatile.rows.values()) {
    if (last_seen === null) continue;
    figures.probed++;
    if (last_seen > now - DAY_MS) figures.probedToday++;
    figures.newestProbe = Math.max(figures.newestProbe ?? 0, last_seen);
  }
  return figures;
}
