import { html } from "hono/html";
import type { Band } from "../../pipelines/record/vocabulary.ts";

/** Figures and times as a page says them. */
export const NONE = "–";

/** A letter in a frame: the letter itself is the text, colour only repeats it. */
export const grade = (band: Band, big = false): unknown => {
  const text = band === "UNRATED" ? "unrated" : band;
  return html`<span class="grade ${band}${big ? " big" : ""}">${text}</span>`;
};

export const figure = (value: number | null | undefined, decimals = 3): string =>
  value === null || value === undefined ? NONE : value.toFixed(decimals);

/** `2026-11-21 04:20 UTC`, with the exact moment for machines. */
export function moment(ms: number | null | undefined): unknown {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return NONE;
  const iso = new Date(ms).toISOString();
  return html`<time datetime="${iso}">${iso.slice(0, 16).replace("T", " ")} UTC</time>`;
}

const TIER_WORDS: Record<string, string> = {
  LIVENESS_VERIFIED: "liveness",
  DELIVERY_VERIFIED: "delivery",
  OUTCOME_VERIFIED: "outcome",
};
export const tierWords = (tier: string | null): string => (tier === null ? NONE : (TIER_WORDS[tier] ?? tier));

/** Money without the zeros that say nothing, at least two decimals: `0.020000` -> `0.02`. */
export const price = (money: string | null | undefined): string =>
  money ? money.replace(/(\.\d{2}\d*?)0+$/, "$1") : NONE;

export const shorten = (text: string, length: number): string =>
  text.length > length ? `${text.slice(0, length - 1)}…` : text;
