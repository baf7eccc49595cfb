import { html, raw } from "hono/html";
import { BoundedMap } from "../../infra/bounded-map.ts";
import { NO_CARD_TEXT } from "../../pipelines/published/index-lines.ts";
import type { Band } from "../../pipelines/record/vocabulary.ts";
import { shownWhy } from "../answers/facts.ts";
import type { CheckFacts } from "../schemas/check.ts";
import { type Entry, headlineOf, type ListedEntry, leafOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { escapeHtml, page } from "./layout.ts";
import {
  ALL_BANDS,
  classesOf,
  findIn,
  leadersOf,
  lettersOf,
  type MarketPage,
  type MarketQuery,
  SORTS,
} from "./market.ts";
import { componentWords, miniComponentPicture } from "./picture.ts";
import {
  addressWords,
  assetWords,
  bandWords,
  COMPONENT_NAMES,
  classWords,
  formatCount,
  formatPrice,
  formatRoundedDown,
  formatTime,
  grade,
  NONE,
  shorten,
  tierWords,
  verdictOf,
} from "./words.ts";

/** What is drawn of an endpoint and depends only on its published entry, as HTML. */
interface DrawnRow {
  /** The first cells of the endpoint's row in the market's table. */
  row: string;
  /** The endpoint's row in the table of components; "" when nothing was measured. */
  figures: string;
}

/**
 * Cache of rendered rows, enough for twenty pages of the market; beyond it, the oldest are dropped. A changed endpoint
 * gets a new entry, so the rows of an entry stay valid; one whose letter is not shown any more is not cached.
 */
const drawnRows = new BoundedMap<ListedEntry, DrawnRow>(2_000);

function drawRow(view: View, entry: ListedEntry): DrawnRow {
  const shown = view.doubtfulComposites.has(entry.cap) ? view.shownGrade(entry) : null;
  const cached = shown ? undefined : drawnRows.get(entry);
  if (cached) return cached;
  const card = headlineOf(entry);
  const leaf = card ? leafOf(card) : null;
  const composite = shown ? shown.composite : (card?.composite ?? null);
  const measured = card?.measured && composite !== null && leaf?.card.components ? leaf.card.components : null;
  const name = escapeHtml(shorten(addressWords(entry.listing.url), 90));
  const why = shown ? shownWhy(shown) : (leaf?.why ?? NO_CARD_TEXT);
  const sellerQuote = entry.listing.description
    ? `<q class="soft" title="What the seller says">${escapeHtml(shorten(entry.listing.description, 90))}</q>`
    : "";
  const picture = measured
    ? `${miniComponentPicture(measured, entry.cap)}<span class="small soft">${tierWords(card!.tier)}, ${formatRoundedDown(composite)}</span>`
    : '<span class="small soft">nothing measured</span>';
  const drawn = {
    row: `<td role="cell">${grade(view.bandOf(entry))}</td><th scope="row" role="rowheader"><a href="/endpoint/${entry.cap}">${name}</a><span class="small soft">${entry.listing.method}${sellerQuote === "" ? "" : " "}${sellerQuote}</span></th><td role="cell" class="why"><details><summary>${escapeHtml(verdictOf(why))}</summary>${escapeHtml(why)}</details></td><td role="cell" class="pic">${picture}</td><td role="cell" class="n" data-l="Progress">${card?.progress ?? 0} of 30</td>`,
    figures: measured
      ? `<tr><th scope="row"><a href="/endpoint/${entry.cap}">${name}</a></th>${COMPONENT_NAMES.map(([part]) => `<td>${componentWords(part, measured[part])}</td>`).join("")}</tr>`
      : "",
  };
  if (!shown) drawnRows.set(entry, drawn);
  return drawn;
}

function marketRow(view: View, entry: ListedEntry): string {
  const row = view.row(entry.cap);
  const priceCell = row?.price
    ? `${formatPrice(row.price)} <br><span class="small soft">${escapeHtml(shorten(assetWords(row.asset), 12))}</span>`
    : formatPrice(null);
  return `<tr role="row">${drawRow(view, entry).row}<td role="cell" class="n" data-l="Price now">${priceCell}</td><td role="cell" class="n" data-l="Paid calls">${row?.paid_calls ?? NONE}</td><td role="cell" class="n" data-l="Last seen">${lastSeen(view, entry)}</td></tr>`;
}

/** Shows when the endpoint was last seen, or that it does not answer, since an unanswered probe saw nothing. */
function lastSeen(view: View, entry: ListedEntry): unknown {
  const row = view.row(entry.cap);
  if (row && row.probes > 0 && row.answered === 0) return "never answered";
  return isDark(entry) ? "silent" : formatTime(row?.last_seen);
}

/** Reports whether the endpoint's newest card has the flag `dark`: it has not answered for 72 hours. */
export function isDark(entry: Entry | undefined): boolean {
  const card = entry ? headlineOf(entry) : null;
  return card !== null && (leafOf(card).card.flags ?? []).includes("dark");
}

/** Returns the note for every page that shows a record whose time was simulated; "" for other records. */
export const simulatedNote = (simulated: boolean): unknown =>
  simulated
    ? html`<p class="note" role="note"><strong>Time in this record was simulated.</strong> A demonstration lived through days in
minutes. Sellers, payments and answers were real; the dates on them were not.</p>`
    : "";

/**
 * Renders the form, on the home page and the check page, for a url that the reader is about to pay.
 * @param error why the url is not valid
 */
const checkBox = (url: string, error?: string): unknown => html`<form method="get" action="/check" class="box">
<label class="wide">Paste the url that you are about to pay<input type="text" inputmode="url" name="url" value="${url}" required minlength="8" maxlength="2048" autocomplete="off" spellcheck="false"
placeholder="https://api.example.com/v1/sum"${error === undefined ? "" : html` aria-invalid="true" aria-describedby="wrong"`}></label><button type="submit">Check</button></form>`;

const DEFAULT_QUERY: MarketQuery = { page: 1, q: "", letter: null, kind: null, sort: "best" };

/** Returns the address of a page of the market; parameters with their default value are left out. */
function hrefOf(marketQuery: Partial<MarketQuery>): string {
  const { page: n, q, letter, kind, sort } = { ...DEFAULT_QUERY, ...marketQuery };
  const query = new URLSearchParams();
  if (q) query.set("q", q);
  if (letter) query.set("letter", letter);
  if (kind) query.set("class", kind);
  if (sort !== DEFAULT_QUERY.sort) query.set("sort", sort);
  if (n > 1) query.set("page", String(n));
  return query.size ? `/?${query}` : "/";
}

const chip = (marketQuery: MarketQuery, band: Band, count: number): unknown => {
  const current = marketQuery.letter === band;
  return html`<li><a href="${hrefOf({ ...marketQuery, page: 1, letter: current ? null : band })}"${current ? raw(' aria-current="true"') : ""}>${grade(band)} <span>${count}</span></a></li>`;
};

const option = (value: string, words: string, chosen: boolean): unknown =>
  html`<option value="${value}"${chosen ? raw(" selected") : ""}>${words}</option>`;

/** Largest number of classes in the form and on the leaderboard: those with the most endpoints. */
const MAX_CLASSES = 30;

function classField(view: View, kind: string | null): unknown {
  const classes = [...classesOf(view).keys()].slice(0, MAX_CLASSES);
  // The form also offers the requested class, so that it stays selected.
  const offered = kind === null || classes.includes(kind) ? classes : [...classes, kind];
  return html`<label>Class<select name="class">${option("", "any", kind === null)}${offered.map((one) => option(one, classWords(one), kind === one))}</select></label>`;
}

const form = (
  view: View,
  { q, letter, kind, sort }: MarketQuery,
): unknown => html`<form method="get" action="/" role="search">
<label class="wide">Host, path or words<input type="search" name="q" value="${q}" maxlength="100"></label>
<label>Letter<select name="letter">${option("", "any", letter === null)}${ALL_BANDS.map((band) => option(band, bandWords(band), letter === band))}</select></label>
${classField(view, kind)}
<label>Order<select name="sort">${Object.entries(SORTS).map(([name, words]) => option(name, words, sort === name))}</select></label>
<button type="submit">Show</button></form>`;

const pager = (marketQuery: MarketQuery, pages: number): unknown =>
  html`<nav class="pager" aria-label="Pages of the market"><ul>${
    marketQuery.page > 1
      ? html`<li><a rel="prev" href="${hrefOf({ ...marketQuery, page: Math.min(marketQuery.page - 1, pages) })}">Previous</a></li>`
      : ""
  }<li>Page ${marketQuery.page} of ${pages}</li>${
    marketQuery.page < pages
      ? html`<li><a rel="next" href="${hrefOf({ ...marketQuery, page: marketQuery.page + 1 })}">Next</a></li>`
      : ""
  }</ul></nav>`;

function table(view: View, { entries }: MarketPage, marketQuery: MarketQuery): unknown {
  const { sort } = marketQuery;
  const order = sort === "best" ? "ascending" : sort === "worst" ? "descending" : "none";
  const otherSort = sort === "best" ? "worst" : "best";
  return html`<div class="scroll"><table class="market" role="table">
<caption>${SORTS[sort][0]!.toUpperCase()}${SORTS[sort].slice(1)}. The bars run between the bounds of liveness, correctness, honesty,
schema conformance, latency and price stability, from 0 to 1, stretched towards 1; the dot is what was seen. Price is what the newest 402 asked.</caption>
<thead role="rowgroup"><tr role="row"><th scope="col" role="columnheader" aria-sort="${order}"><a href="${hrefOf({ ...marketQuery, page: 1, sort: otherSort })}">Letter</a></th>
<th scope="col" role="columnheader">Endpoint</th><th scope="col" role="columnheader">Why</th><th scope="col" role="columnheader">Components</th>
<th scope="col" role="columnheader" class="n">Progress</th><th scope="col" role="columnheader" class="n">Price now</th>
<th scope="col" role="columnheader" class="n">Paid calls</th><th scope="col" role="columnheader" class="n">Last seen</th></tr></thead>
<tbody role="rowgroup">${raw(entries.map((entry) => marketRow(view, entry)).join("\n"))}</tbody></table></div>
<details id="figures"><summary>The components of this page as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Components as a table">
<table><caption>Bounds hold with 95 % confidence at any time you look.</caption><thead><tr><th scope="col">Endpoint</th>${COMPONENT_NAMES.map(([, words]) => html`<th scope="col">${words}</th>`)}</tr></thead>
<tbody>${raw(entries.map((entry) => drawRow(view, entry).figures).join("\n"))}</tbody></table></div></details>`;
}

/** Renders the market's page: the form and one page of the matching endpoints. */
export async function homePage(view: View, marketQuery: MarketQuery, simulated: boolean): Promise<string> {
  const countsByLetter = lettersOf(view);
  const listedCount = [...countsByLetter.values()].reduce((sum, n) => sum + n, 0);
  const marketPage = await findIn(view, marketQuery);
  const isFiltered = marketQuery.q !== "" || marketQuery.letter !== null || marketQuery.kind !== null;
  const body = html`<h1>What happened when paid endpoints were paid</h1>
<p class="lead">${listedCount} endpoints are listed, ${listedCount - countsByLetter.get("UNRATED")!} of them hold a letter. A letter needs paid calls in 30
different spells of six hours; until then an endpoint is unrated, which means unknown, not bad. <a href="/leaderboard">The best of each class</a>.</p>
${checkBox("")}${simulatedNote(simulated)}
<ul class="chips" aria-label="Endpoints by letter">${ALL_BANDS.map((band) => chip(marketQuery, band, countsByLetter.get(band)!))}</ul>
${form(view, marketQuery)}
${isFiltered ? html`<p role="status">${marketPage.total} of ${listedCount} endpoints match. <a href="/">Show all</a></p>` : ""}
${marketPage.entries.length > 0 ? table(view, marketPage, marketQuery) : html`<p>Nothing is listed ${isFiltered ? "that matches" : marketQuery.page > 1 ? "on this page" : "yet"}.</p>`}
${marketPage.pageCount > 1 || marketQuery.page > 1 ? pager(marketQuery, marketPage.pageCount) : ""}`;
  return page({ title: "Touchstone: the market of paid endpoints", body });
}

export interface CheckPage {
  /** Text of the form's field. */
  url: string;
  facts?: CheckFacts;
  /** Why there is no answer. */
  error?: string;
  /** Whether the record's time is simulated, which the page then states. */
  simulated: boolean;
}

const MATCHED_TEXTS = {
  exact: "this method and url",
  path: "the same path, whatever is in the query or in a template",
  none: "nothing",
} as const;

function answerPart({ facts }: CheckPage & { facts: CheckFacts }): unknown {
  const { band, why, matched, url, capabilityId: cap, observed, defects, next } = facts;
  return html`<section aria-labelledby="answer" class="verdict"><div><h2 id="answer" class="small soft">Grade</h2>${grade(band, true)}</div>
<div><p class="line">${verdictOf(why)}</p><p class="soft">${why}</p>${next ? html`<p>${next}</p>` : ""}<dl>
${cap && url ? html`<dt>Endpoint</dt><dd><a href="/endpoint/${cap}">${addressWords(url)}</a></dd>` : ""}
<dt>In the record</dt><dd>${MATCHED_TEXTS[matched]}</dd>
${observed?.advertised ? html`<dt>Its newest 402 asks</dt><dd>${formatPrice(observed.advertised.amount)} ${assetWords(observed.advertised.asset)}</dd>` : ""}
${observed?.lastSeen ? html`<dt>Last probed</dt><dd>${formatTime(Date.parse(observed.lastSeen))}</dd>` : ""}</dl>
${defects.length > 0 ? html`<ul class="says">${defects.map(({ says }) => html`<li>${says}</li>`)}</ul>` : ""}</div></section>`;
}

/** Renders the page about one url. */
export function checkPage(content: CheckPage): string {
  const { url, facts, error, simulated } = content;
  const body = html`<h1>Check before you pay</h1>${checkBox(url, error)}
${error === undefined ? "" : html`<p id="wrong" class="note" role="alert"><strong>Nothing was looked up:</strong> ${error}.</p>`}
${simulatedNote(simulated)}${facts ? answerPart({ ...content, facts }) : ""}
<p class="soft small">The same for programs, signed: <code>GET /v1/check?url=…</code> (<a href="/docs/check-before-you-pay">how</a>). UNRATED means unknown, not bad.</p>`;
  return page({ title: facts ? `Check: ${facts.band}` : "Check before you pay", body });
}

/** Largest number of endpoints of each class on the leaderboard. */
const LEADERS_PER_CLASS = 10;

function leaderRow(view: View, entry: ListedEntry, place: number): unknown {
  const card = headlineOf(entry)!;
  return html`<tr><td class="n">${place}</td><td>${grade(card.band)}</td>
<th scope="row"><a href="/endpoint/${entry.cap}">${shorten(addressWords(entry.listing.url), 90)}</a><span class="small soft">${entry.listing.method}${entry.listing.description ? html` <q>${shorten(entry.listing.description, 90)}</q>` : ""}</span></th>
<td class="n">${formatRoundedDown(card.composite)}</td><td>${tierWords(card.tier)}</td>
<td class="n">${card?.progress ?? 0} of 30</td><td class="n">${formatPrice(view.row(entry.cap)?.price)}</td></tr>`;
}

function classPart(
  view: View,
  kind: string,
  { leaders, lettered }: { leaders: ListedEntry[]; lettered: number },
  i: number,
) {
  const words = classWords(kind);
  const total = classesOf(view).get(kind)!;
  const all = html`<p class="small"><a href="${hrefOf({ kind })}">All of ${words}</a>: ${formatCount(total, "endpoint")}, ${lettered} of them with a letter.</p>`;
  const table = html`<div class="scroll" tabindex="0" role="region" aria-label="Best of ${words}"><table class="leaders"><caption>Best letter first, then the highest composite.</caption>
<thead><tr><th scope="col" class="n">Place</th><th scope="col">Letter</th><th scope="col">Endpoint</th><th scope="col" class="n">Composite</th><th scope="col">Tier</th><th scope="col" class="n">Progress</th><th scope="col" class="n">Price now</th></tr></thead>
<tbody>${leaders.map((entry, place) => leaderRow(view, entry, place + 1))}</tbody></table></div>`;
  return html`<section aria-labelledby="class-${i}" class="rule"><h2 id="class-${i}">${words[0]!.toUpperCase()}${words.slice(1)}</h2>
${leaders.length > 0 ? table : html`<p>Nothing of this class holds a letter yet.</p>`}${all}</section>`;
}

/**
 * Renders the leaderboard: the best endpoints with a letter of each class. Endpoints without a letter are not ranked,
 * since nothing is known about them.
 */
export function leaderboardPage(view: View, simulated: boolean): string {
  const leadersByClass = [...leadersOf(view, LEADERS_PER_CLASS)].slice(0, MAX_CLASSES);
  const body = html`<h1>Leaderboard</h1>
<p class="lead">The best ${LEADERS_PER_CLASS} of each class of endpoints. A class says what answers can be checked against: known answers, a schema,
or nothing but delivery. Only letters are ranked, and a letter is <a href="/docs/how-a-letter-is-made">made of paid calls</a>.</p>
${simulatedNote(simulated)}
${leadersByClass.length > 0 ? leadersByClass.map(([kind, of], i) => classPart(view, kind, of, i)) : html`<p>Nothing is listed yet.</p>`}`;
  return page({ title: "Leaderboard: the best endpoints of each class", body });
}
