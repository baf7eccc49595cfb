import { makeBadge } from "badge-maker";
import { html } from "hono/html";
import type { Band } from "../../pipelines/record/vocabulary.ts";
import type { CheckFacts } from "../schemas/check.ts";
import { bandWords, tierWords } from "./words.ts";

/**
 * Colours of the letters (grades), as in css.ts, light scheme. The contrast of white text is at least 4.5 to 1 on each.
 */
const COLOURS: Readonly<Record<Band, string>> = {
  A: "#1c6a3b",
  B: "#1f5f80",
  C: "#775600",
  D: "#94411a",
  F: "#9b1c1c",
  UNRATED: "#55606a",
};

/** Cache of rendered badges: at most one for each letter and tier. */
const badges = new Map<string, string>();

/**
 * Renders the badge of an endpoint as SVG: the letter as text with its tier (how deeply answers were verified), or
 * `unrated` on grey. The SVG's title and label contain that text too, so that nothing depends on the colour alone.
 */
export function badgeSvg({ band, tier }: Pick<CheckFacts, "band" | "tier">): string {
  const measured = band !== "UNRATED" && tier !== null ? ` (${tierWords(tier)})` : "";
  const message = `${bandWords(band)}${measured}`;
  const cached = badges.get(message);
  if (cached) return cached;
  const svg = makeBadge({ label: "touchstone", message, color: COLOURS[band], labelColor: "#25333d", style: "flat" });
  badges.set(message, svg);
  return svg;
}

/** Returns the path of an endpoint's badge. */
const badgePath = (cap: string): string => `/badge/${cap}.svg`;

/**
 * Renders the part of an endpoint's page with the Markdown and HTML that embed the badge. The alternative text in them
 * names no letter, since a copy of it would not be updated.
 */
export function badgePart(cap: string, base: string): unknown {
  const [badge, page] = [`${base}${badgePath(cap)}`, `${base}/endpoint/${cap}`];
  const alt = "Touchstone: the record of this endpoint";
  return html`<section aria-labelledby="badge" class="rule"><h2 id="badge">Badge</h2>
<p class="small"><a href="${badgePath(cap)}">The badge</a> says what a check answers now, at most five minutes late. As Markdown:</p>
<pre tabindex="0"><code>[![${alt}](${badge})](${page})</code></pre>
<p class="small">As HTML:</p>
<pre tabindex="0"><code>${`<a href="${page}"><img src="${badge}" alt="${alt}" height="20"></a>`}</code></pre></section>`;
}
