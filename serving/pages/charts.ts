import { area, curveStep, curveStepAfter, line } from "d3-shape";
import { html, raw } from "hono/html";
import type { HistoryDay } from "../../pipelines/record/history.ts";
import { DAY_MS, dayOf } from "../../pipelines/record/time.ts";
import type { Band } from "../../pipelines/record/vocabulary.ts";
import type { DatedLetter } from "../tables/entry.ts";
import { ALL_BANDS } from "./market.ts";
import {
  FLOOR,
  horizontalLine,
  LEGEND_AREA,
  LEGEND_LINE,
  LEGEND_THIN,
  rungScale,
  type TimeScale,
  timeAxis,
  timeChart,
  timeScale,
  valueScale,
} from "./time-chart.ts";
import { bandWords, formatCount, formatDuration, formatTime, NONE } from "./words.ts";

/** Id of the table that has the figures of all charts by day. */
const DAYS_TABLE = "days";
const MICRO = 1_000_000;

const dateOf = (day: number): string => dayOf(new Date(day * DAY_MS));
const formatMicro = (micro: bigint | number | null): string =>
  micro === null ? NONE : String(Math.round(Number(micro)) / MICRO);

/**
 * The values of one day (`day`, numbered from 1970) in a chart: `low` and `high` are the edges of the shaded area,
 * `line` is the line in it.
 */
interface Spread {
  day: number;
  low: number;
  high: number;
  line: number;
}

/** A line is interrupted where this many days in a row have no value, since one missed daily call is no outage. */
const MAX_GAP = 3;

/** Splits the days into runs between which the line is interrupted ({@link MAX_GAP}). */
function splitAtGaps(days: readonly Spread[]): Spread[][] {
  const runs: Spread[][] = [];
  for (const one of days) {
    const last = runs.at(-1);
    if (last && one.day - last.at(-1)!.day <= MAX_GAP) last.push(one);
    else runs.push([one]);
  }
  return runs;
}

/**
 * Draws an area between two values of each day, a line in it, and a dot for each day, so that a single day is visible.
 */
function spreadShape(days: readonly Spread[], x: TimeScale, ticks: (value: number) => string): string {
  const y = valueScale(Math.max(...days.map(({ high }) => high)));
  const xOf = ({ day }: Spread): number => x(day * DAY_MS);
  const bandShape = area<Spread>(
    xOf,
    (one) => y(one.low),
    (one) => y(one.high),
  )
    .curve(curveStep)
    .digits(1);
  const middleLine = line<Spread>(xOf, (one) => y(one.line))
    .curve(curveStep)
    .digits(1);
  const dots = days.map((one) => `M${xOf(one).toFixed(1)} ${y(one.line).toFixed(1)}h0`).join("");
  const runs = splitAtGaps(days);
  const rungs = y.ticks(4).map((value) => horizontalLine(y(value), ticks(value)));
  return `${rungs.join("")}${timeAxis(x)}<path class="area" d="${runs.map((run) => bandShape(run)).join("")}"/><path class="line" d="${runs.map((run) => middleLine(run)).join("")}"/><path class="line" stroke-linecap="round" stroke-width="3" d="${dots}"/>`;
}

function priceChart(days: readonly HistoryDay[], x: TimeScale): unknown {
  const quoted = days.flatMap(({ day, price_low, price_high, price_last }) =>
    price_low === null || price_high === null || price_last === null
      ? []
      : [{ day, low: Number(price_low), high: Number(price_high), line: Number(price_last) }],
  );
  const last = quoted.at(-1);
  if (!last)
    return html`<figure class="chart"><h3>Price</h3><figcaption>No 402 named a price in these days.</figcaption></figure>`;
  const low = Math.min(...quoted.map((one) => one.low));
  const high = Math.max(...quoted.map((one) => one.high));
  return timeChart({
    id: "price",
    title: "Price",
    says:
      low === high
        ? `Every 402 of these days asked ${formatMicro(low)}.`
        : `402s of these days asked ${formatMicro(low)} to ${formatMicro(high)}; the newest asked ${formatMicro(last.line)}.`,
    frameSvg: spreadShape(quoted, x, formatMicro),
    legend: [
      [LEGEND_LINE, "last of the day"],
      [LEGEND_AREA, "lowest to dearest"],
    ],
    tableId: DAYS_TABLE,
  });
}

interface LatencyChart {
  id: string;
  title: string;
  /** Returns the median and the 95th percentile of a day, ms; null where nothing was timed. */
  valuesOf: (day: HistoryDay) => [number | null, number | null];
  emptyText: string;
}

const LATENCY_CHARTS: readonly LatencyChart[] = [
  {
    id: "terms",
    title: "Time to the 402",
    valuesOf: (day) => [day.terms_ms_median, day.terms_ms_p95],
    emptyText: "No free handshake was answered in these days.",
  },
  {
    id: "paid",
    title: "Paid time to the last byte",
    valuesOf: (day) => [day.paid_ms_median, day.paid_ms_p95],
    emptyText: "No paid call delivered in these days.",
  },
];

function latencyChart(
  days: readonly HistoryDay[],
  x: TimeScale,
  { id, title, valuesOf, emptyText }: LatencyChart,
): unknown {
  const measured = days.flatMap((one) => {
    const [median, p95] = valuesOf(one);
    return median === null || p95 === null ? [] : [{ day: one.day, low: median, high: p95, line: median }];
  });
  if (measured.length === 0)
    return html`<figure class="chart"><h3>${title}</h3><figcaption>${emptyText}</figcaption></figure>`;
  const medians = measured.map((one) => one.line).sort((a, b) => a - b);
  const worst = Math.max(...measured.map((one) => one.high));
  return timeChart({
    id,
    title,
    says: `The usual day's median is ${formatDuration(medians[medians.length >> 1])}; the worst day's 95th percentile is ${formatDuration(worst)}.`,
    frameSvg: spreadShape(measured, x, (ms) => (ms === 0 ? "0" : ms < 1000 ? `${ms} ms` : `${ms / 1000} s`)),
    legend: [
      [LEGEND_LINE, "median of the day"],
      [LEGEND_AREA, "up to the 95th percentile"],
    ],
    tableId: DAYS_TABLE,
  });
}

/**
 * Draws two rows of bars: paid calls above free probes. Failed calls are hollow, so that nothing depends on the colour
 * alone.
 */
function callsChart(days: readonly HistoryDay[], x: TimeScale): unknown {
  const sum = (of: (day: HistoryDay) => number): number => days.reduce((total, day) => total + of(day), 0);
  const width = Math.max(1.2, Math.min(9, x(DAY_MS) - x(0) - 1.2));
  const bars = (floor: number, all: (day: HistoryDay) => number, good: (day: HistoryDay) => number): string => {
    const largest = Math.max(1, ...days.map(all));
    let goodPath = "";
    let failedPath = "";
    for (const day of days) {
      const left = (x(day.day * DAY_MS) - width / 2).toFixed(1);
      const [tall, filled] = [(all(day) / largest) * 48, (good(day) / largest) * 48];
      if (filled > 0) goodPath += `M${left} ${floor}h${width.toFixed(1)}v-${filled.toFixed(1)}h-${width.toFixed(1)}z`;
      if (tall > filled)
        failedPath += `M${left} ${(floor - filled).toFixed(1)}h${width.toFixed(1)}v-${(tall - filled).toFixed(1)}h-${width.toFixed(1)}z`;
    }
    return `<path class="good" d="${goodPath}"/><path class="hollow" d="${failedPath}"/>`;
  };
  const paidFloor = FLOOR - 62;
  return timeChart({
    id: "calls",
    title: "Calls a day",
    says: `${formatCount(
      sum((day) => day.paid),
      "paid call",
    )}, ${sum((day) => day.delivered)} delivered; ${formatCount(
      sum((day) => day.probes),
      "free handshake",
    )}, ${sum((day) => day.answered)} answered.`,
    frameSvg: `${horizontalLine(paidFloor, "paid")}${horizontalLine(FLOOR, "free")}${timeAxis(x)}${bars(
      paidFloor,
      (day) => day.paid,
      (day) => day.delivered,
    )}${bars(
      FLOOR,
      (day) => day.probes,
      (day) => day.answered,
    )}`,
    legend: [
      ['<path class="good" d="M4 0h8v10h-8z"/>', "delivered, answered"],
      ['<path class="hollow" d="M4 1h8v8h-8z"/>', "not"],
    ],
    tableId: DAYS_TABLE,
  });
}

const COLUMNS = [
  ...["Lowest price", "Dearest", "Last", "402 median", "402 p95", "Paid median", "Paid p95"],
  ...["Handshakes", "Answered", "Paid calls", "Delivered"],
];

/** Renders a table of all figures of the charts by day, newest day first. */
export function daysTable(days: readonly HistoryDay[]): unknown {
  const rows = days.toReversed().map((day) => {
    const cells = [
      ...[formatMicro(day.price_low), formatMicro(day.price_high), formatMicro(day.price_last)],
      ...[day.terms_ms_median, day.terms_ms_p95, day.paid_ms_median, day.paid_ms_p95].map(formatDuration),
      ...[day.probes, day.answered, day.paid, day.delivered],
    ];
    return `<tr><th scope="row">${dateOf(day.day)}</th>${cells.map((cell) => `<td class="n">${cell}</td>`).join("")}</tr>`;
  });
  return html`<details id="${DAYS_TABLE}"><summary>The same figures as a table, day by day</summary>
<div class="scroll" tabindex="0" role="region" aria-label="Figures day by day"><table><caption>Days are UTC; prices in the asset of the 402.</caption>
<thead><tr><th scope="col">Day</th>${COLUMNS.map((name) => html`<th scope="col" class="n">${name}</th>`)}</tr></thead><tbody>${raw(rows.join("\n"))}</tbody></table></div></details>`;
}

/**
 * Draws charts of price, calls and latency by day.
 * @param days oldest first; at least one
 * @param today number of the current day, counted from 1970
 */
export function historyCharts(days: readonly HistoryDay[], today: number): unknown {
  const x = timeScale(days[0]!.day, Math.max(today, days.at(-1)!.day));
  return html`${priceChart(days, x)}${callsChart(days, x)}${LATENCY_CHARTS.map((timed) => latencyChart(days, x, timed))}`;
}

const LETTERS_TABLE = "letters";

const letterText = (band: Band): string => (band === "UNRATED" ? "none" : band);

/**
 * Draws the letter (grade) over time, from the cards in the log's leaves: the published letter, and the raw letter,
 * before the rule that a letter rises only after 14 clean days.
 */
export function lettersChart(letters: readonly DatedLetter[], now: number): unknown {
  const points = letters.map(({ at, raw, band }) => ({ at: Date.parse(at), raw, band }));
  const last = points.at(-1);
  if (!last) return "";
  const x = timeScale(Math.floor(points[0]!.at / DAY_MS), Math.floor(Math.max(now, last.at) / DAY_MS));
  const y = rungScale(ALL_BANDS);
  // A letter is valid until the next card, so the line is drawn up to now.
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
    frameSvg: `${ALL_BANDS.map((band) => horizontalLine(y(band), letterText(band))).join("")}${timeAxis(x)}<path class="line" stroke-width="2.5" d="${path(({ band }) => band)}"/><path class="thin" d="${path(({ raw }) => raw)}"/>`,
    legend: [
      [LEGEND_LINE, "published"],
      [LEGEND_THIN, "raw, before the hold"],
    ],
    tableId: LETTERS_TABLE,
  });
}

/** Renders the letters as a table. */
export const lettersTable = (letters: readonly DatedLetter[]): unknown =>
  letters.length === 0
    ? ""
    : html`<details id="${LETTERS_TABLE}"><summary>Every published card's letter as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Letters over time">
<table><caption>Headline cards, newest first; each is a leaf of the log.</caption><thead><tr><th scope="col">Computed</th><th scope="col">Published</th><th scope="col">Raw</th></tr></thead>
<tbody>${letters.toReversed().map(({ at, band, raw }) => html`<tr><th scope="row">${formatTime(Date.parse(at))}</th><td>${bandWords(band)}</td><td>${bandWords(raw)}</td></tr>`)}</tbody></table></div></details>`;
