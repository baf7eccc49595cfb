import { html } from "hono/html";
import type { Components } from "../../pipelines/record/card.ts";
import { COMPONENTS, type ComponentName } from "../../pipelines/record/vocabulary.ts";
import { figure } from "./words.ts";

export const COMPONENT_WORDS: Record<ComponentName, string> = {
  liveness: "Liveness",
  correctness: "Correctness",
  honesty: "Honesty",
  schema_conformance: "Schema conformance",
  latency_p95: "Latency (p95)",
  price_stability: "Price stability",
};

const LEFT = 170;
const WIDTH = 400;
const STEP = 32;
const TOP = 26;

const x = (share: number): number => Math.round((LEFT + Math.min(1, Math.max(0, share)) * WIDTH) * 10) / 10;

function bar(name: ComponentName, at: number, { point, lower, upper }: Components[ComponentName]): unknown {
  const y = TOP + at * STEP;
  const bounds =
    lower === null
      ? html`<text x="${LEFT}" y="${y + 4}">no sample</text>`
      : html`<line class="bound" x1="${x(lower)}" x2="${x(upper ?? lower)}" y1="${y}" y2="${y}" stroke-width="8" stroke-linecap="round"/>`;
  return html`<text x="0" y="${y + 4}">${COMPONENT_WORDS[name]}</text>
<line class="track" x1="${LEFT}" x2="${LEFT + WIDTH}" y1="${y}" y2="${y}" stroke-width="2"/>${bounds}${
    point === null ? "" : html`<circle class="point" cx="${x(point)}" cy="${y}" r="4"/>`
  }`;
}

/** The six components on a line from 0 to 1: the bar runs between the bounds, the dot is what the samples showed. */
export function componentPicture(components: Components): unknown {
  const height = TOP + COMPONENTS.length * STEP;
  const summary = COMPONENTS.map((name) => `${COMPONENT_WORDS[name]}: at least ${figure(components[name].lower)}`).join(
    "; ",
  );
  return html`<svg role="img" aria-labelledby="picture-title picture-desc" viewBox="0 0 ${LEFT + WIDTH + 20} ${height}" width="${LEFT + WIDTH + 20}" height="${height}">
<title id="picture-title">The six measured components with their bounds</title><desc id="picture-desc">${summary}.</desc>
${COMPONENTS.map((name, at) => bar(name, at, components[name]))}
<text x="${LEFT}" y="${height - 6}">0</text><text x="${LEFT + WIDTH - 6}" y="${height - 6}">1</text></svg>`;
}

/** The same figures as text, for those who do not see the picture and those who want all of it. */
export const componentTable = (
  components: Components,
): unknown => html`<div class="scroll" tabindex="0" role="region" aria-label="Components">
<table><caption>Point is what the samples showed; the letter stands on the lower bound.</caption>
<thead><tr><th scope="col">Component</th><th scope="col">Point</th><th scope="col">Lower</th><th scope="col">Upper</th>
<th scope="col">Effective samples</th><th scope="col">Method</th></tr></thead><tbody>${COMPONENTS.map((name) => {
  const { point, lower, upper, n_eff, method } = components[name];
  return html`<tr><th scope="row">${COMPONENT_WORDS[name]}</th><td class="n">${figure(point)}</td>
<td class="n">${figure(lower)}</td><td class="n">${figure(upper)}</td><td class="n">${figure(n_eff, 1)}</td><td><code>${method}</code></td></tr>`;
})}</tbody></table></div>`;
