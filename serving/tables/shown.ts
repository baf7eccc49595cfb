import type { Band } from "../../pipelines/record/vocabulary.ts";
import { type CardEntry, type Entry, headlineOf } from "./entry.ts";

/**
 * When at least this share of the records behind a card is withdrawn, no letter is shown (grading-params.json,
 * withdrawn).
 */
const WITHDRAWN_SHARE = 0.2;

/** Number of an endpoint's observations since its card, and of records behind the card that were withdrawn since. */
export interface CountsSince {
  observations: number;
  withdrawn: number;
}

/** What is shown of an endpoint's headline card, given the records behind it that were withdrawn since. */
export interface ShownGrade {
  headline: CardEntry;
  band: Band;
  /** The composite that is shown; null: no sample is behind the card, or all of them were withdrawn. */
  composite: number | null;
  /** Number of records behind the card that were withdrawn since. */
  withdrawn: number;
  /** True if so many records behind the card were withdrawn that no letter is shown. False: the card's letter is. */
  isDoubtful: boolean;
}

/** Returns what GET /v1/check shows of an endpoint's card; null before the first one. */
export function shownGrade(entry: Entry, countsSince: (leaf: number) => CountsSince): ShownGrade | null {
  const headline = headlineOf(entry);
  if (!headline) return null;
  const { samples, measured, band, composite } = headline;
  const countedWithdrawn = countsSince(headline.leaf).withdrawn;
  const withdrawn = samples === undefined ? countedWithdrawn : Math.min(countedWithdrawn, samples);
  // A card that does not state its number of records may rest on withdrawn records only.
  const isDoubtful = withdrawn > 0 && (samples === undefined || withdrawn >= WITHDRAWN_SHARE * samples);
  return {
    headline,
    band: isDoubtful ? "UNRATED" : band,
    composite: measured && withdrawn !== samples ? composite : null,
    withdrawn,
    isDoubtful,
  };
}
