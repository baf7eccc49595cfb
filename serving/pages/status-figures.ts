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
}

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
  const figures: Figures = {
    ...{ listed: 0, lettered: 0, probed: 0, probedToday: 0 },
    ...{ newestProbe: null, newestCard: null },
  };
  for (const entry of view.entries.values()) {
    const card = headlineOf(entry);
    if (card) figures.newestCard = Math.max(figures.newestCard ?? 0, Date.parse(card.computedAt));
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
