import { html } from "hono/html";
import { type Band, COMPONENTS, type ComponentName } from "../../pipelines/record/vocabulary.ts";

/** Figures and times as a page says them. */
export const NONE = "–";

export const bandWords = (band: Band): string => (band === "UNRATED" ? "unrated" : band);

/** A letter on its colour: the letter itself is the text, colour only repeats it. */
export const grade = (band: Band, big = false): unknown =>
  html`<span class="grade ${band}${big ? " big" : ""}">${bandWords(band)}</span>`;

export const figure = (value: number | null | undefined, decimals = 3): string =>
  value === null || value === undefined ? NONE : value.toFixed(decimals);

/** Composite and lower bounds, rounded down as the sentence of the grade rounds them: never better than they are. */
export const atLeast = (value: number | null | undefined): string =>
  value === null || value === undefined ? NONE : (Math.floor(value * 1000 + 1e-6) / 1000).toFixed(3);

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

export const COMPONENT_WORDS: Record<ComponentName, string> = {
  liveness: "Liveness",
  correctness: "Correctness",
  honesty: "Honesty",
  schema_conformance: "Schema conformance",
  latency_p95: "Latency (p95)",
  price_stability: "Price stability",
};
export const COMPONENT_NAMES: readonly (readonly [ComponentName, string])[] = COMPONENTS.map((name) => [
  name,
  COMPONENT_WORDS[name],
]);

/** Money without the zeros that say nothing, at least two decimals: `0.020000` -> `0.02`. */
export const price = (money: string | null | undefined): string =>
  money ? money.replace(/(\.\d{2}\d*?)0+$/, "$1") : NONE;

/** Names of the tokens that are asked for most, by contract; an address of forty digits is no name. */
const ASSETS: Record<string, string> = {
  "0x036cbd53842c5426634e7929541ec2318f3dcf7e": "USDC",
  "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913": "USDC",
};
export const assetWords = (asset: string | null | undefined): string =>
  asset ? (ASSETS[asset.toLowerCase()] ?? asset) : "an unnamed asset";

/** A number of something, in the singular where it is one. */
export const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;

export const shorten = (text: string, length: number): string =>
  text.length > length ? `${text.slice(0, length - 1)}…` : text;

/** `812 ms`, `1.43 s`. */
export const duration = (ms: number | null | undefined): string => {
  if (ms === null || ms === undefined) return NONE;
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
};
