import { curveStepAfter, line } from "d3-shape";
import { html } from "hono/html";
import { DAY_MS } from "../../pipelines/record/time.ts";
import type { Band } from "../../pipelines/record/vocabulary.ts";
import type { LetterAt } from "../tables/entry.ts";
import { ALL_BANDS } from "./market.ts";
import { KEY_LINE, KEY_THIN, rung, rungScale, timeAxis, timeChart, timeScale } from "./time-chart.ts";
import { bandWords, moment } from "./words.ts";

const TABLE = "letters";

const words = (band: Band): string => (band === "UNRATED" ? "none" : band);

/** The letter over time, as the leaves of the tree say it: what was published, and what the run's own samples said. */
export function lettersChart(letters: readonly LetterAt[], now: number): unknown {
  const points = letters.map(({ at, raw, band }) => ({ at: Date.parse(at), raw, band }));
  const last = points.at(-1);
  if (!last) return "";
  const x = timeScale(Math.floor(points[0]!.at / DAY_MS), Math.floor(Math.max(now, last.at) / DAY_MS));
  const y = rungScale(ALL_BANDS);
  // A letter stands until the next leaf says another one, so the newest goes on to now.
  const upToNow = [...points, { ...last, at: Math.max(now, last.at) }];
  const path = (of: (point: (typeof points)[number]) => Band): string =>
    line<(typeof points)[number]>(
      ({ at }) => Math.max(x.range()[0]!, Math.min(x.range()[1]!, x(at))),
      (point) => y(of(point)),
    )
      .curve(curveStepAfter)
      .digits(1)(upToNow) ?? "";
  return timeChart({
    id: "letter",
    title: "Letter",
    says: `Published now: ${bandWords(last.band)}. Raw letter of the newest card: ${bandWords(last.raw)}. A letter falls at once and rises after 14 clean days.`,
    inside: `${ALL_BANDS.map((band) => rung(y(band), words(band))).join("")}${timeAxis(x)}<path class="line" stroke-width="2.5" d="${path(({ band }) => band)}"/><path class="thin" d="${path(({ raw }) => raw)}"/>`,
    key: [
      [KEY_LINE, "published"],
      [KEY_THIN, "raw, before the hold"],
    ],
    table: TABLE,
  });
}

/** The same letters as a table. */
export const lettersTable = (letters: readonly LetterAt[]): unknown =>
  letters.length === 0
    ? ""
    : html`<details id="${TABLE}"><summary>Every published card's letter as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Letters over time">
<table><caption>Headline cards, newest first; each is a leaf of the log.</caption><thead><tr><th scope="col">Computed</th><th scope="col">Published</th><th scope="col">Raw</th></tr></thead>
<tbody>${letters.toReversed().map(({ at, band, raw }) => html`<tr><th scope="row">${moment(Date.parse(at))}</th><td>${bandWords(band)}</td><td>${bandWords(raw)}</td></tr>`)}</tbody></table></div></details>`;
