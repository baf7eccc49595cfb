import type { RunCard, SignedCard, UnsignedCard } from "../record/card.ts";
import { addDays } from "../record/time.ts";
import { type Band, COMPONENTS } from "../record/vocabulary.ts";
import { lastCounted, urgent } from "./cadence.ts";
import type { PublishedCap } from "./fold.ts";
import { type DayLetter, HOLD_DAYS } from "./letters.ts";
import type { NextCard } from "./take-lines.ts";

/** A headline letter after the hold, and the first UTC day on which it may rise when it is held. */
export interface Held {
  band: Band;
  heldUntil: string | null;
}

/** Worst raw headline letter of the last 14 days (grading-method.md section 4). UNRATED is no letter: nothing holds it. */
export function hold(raw: Band, letters: readonly DayLetter[]): Held {
  const held: Held = { band: raw, heldUntil: null };
  if (raw === "UNRATED") return held;
  for (const { day, band } of letters) {
    if (band === "UNRATED" || band < held.band || band === raw) continue;
    held.band = band;
    held.heldUntil = addDays(day, HOLD_DAYS);
  }
  return held;
}

export function whyOf(run: RunCard, band: Band, held: Held): string {
  return `${band} ${run.card.tier} ${held.heldUntil ?? ""}`;
}

const WEEKLY_DAYS = 7;

/** What of a card makes it worth signing again: letters, caps, flags and the 0.01 grid line under each lower bound. */
function signs(card: SignedCard | UnsignedCard, raw: Band, headline: boolean, caps: readonly string[]): string {
  const grid = COMPONENTS.map((name) => {
    const lower = card.components?.[name].lower;
    return lower === null || lower === undefined ? null : Math.floor(lower * 100 + 1e-9);
  });
  return JSON.stringify([card.tier, card.band, raw, headline, card.flags, caps, grid]);
}

/** now, later (something changed, but a card was published today already) or no. */
export function mustPublish(
  known: PublishedCap | null,
  next: readonly NextCard[],
  today: string,
  withdrawn: boolean,
): "now" | "later" | "no" {
  if (!known || known.cards.length === 0 || withdrawn) return "now";
  if (
    urgent(
      known.cards,
      next.map(({ card }) => card),
    )
  )
    return "now";
  const before = known.cards.map((card) =>
    signs(JSON.parse(card.text) as SignedCard, card.raw_band, card.headline, []),
  );
  const now = next.map(({ card, run }) => signs(card, run.raw_band, run.headline, []));
  const changed = before.join() !== now.join();
  if (!changed && today < addDays(known.day, WEEKLY_DAYS)) return "no";
  return lastCounted(known) < today ? "now" : "later";
}
