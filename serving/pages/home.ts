import { html } from "hono/html";
import { BANDS } from "../../pipelines/record/vocabulary.ts";
import { NO_CARD } from "../answers/market.ts";
import { type CardEntry, headlineOf, isListed, type ListedEntry, leafOf, progressOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { page } from "./layout.ts";
import { figure, grade, moment, price, shorten, tierWords } from "./words.ts";

/** Endpoints on one page of the market. */
export const ROWS = 300;

const rank = (card: CardEntry | null): number => {
  const at = card ? (BANDS as readonly string[]).indexOf(card.band) : -1;
  return at < 0 ? BANDS.length : at;
};

/** Listed endpoints, best letter first, then composite, then url; sorted once a view. */
function market(view: View): ListedEntry[] {
  return view.memo("market", () => {
    const listed = [...view.entries.values()].filter(isListed);
    const keys = new Map(listed.map((entry) => [entry, headlineOf(entry)]));
    return listed.sort((a, b) => {
      const [left, right] = [keys.get(a) ?? null, keys.get(b) ?? null];
      return (
        rank(left) - rank(right) ||
        (right?.composite ?? 0) - (left?.composite ?? 0) ||
        (a.url < b.url ? -1 : a.url > b.url ? 1 : 0)
      );
    });
  });
}

function marketRow(view: View, entry: ListedEntry): unknown {
  const card = headlineOf(entry);
  const row = view.row(entry.cap);
  const measured = card?.measured === true;
  const progress = progressOf(card);
  const name = entry.description ? shorten(entry.description, 90) : entry.url;
  return html`<tr><td>${grade(card?.band ?? "UNRATED")}</td>
<th scope="row"><a href="/endpoint/${entry.cap}">${name}</a><br><code class="soft">${entry.method} ${shorten(entry.url, 120)}</code></th>
<td>${tierWords(measured ? card.tier : null)}</td><td class="n">${figure(measured ? card.composite : null)}</td>
<td class="why">${card ? leafOf(card).why : NO_CARD}</td><td class="n">${progress} of 30</td>
<td class="n">${price(row?.price)}</td><td class="n">${row?.paid_calls ?? 0}</td><td>${moment(row?.last_seen)}</td></tr>`;
}

/** A record whose time was made up must say so wherever it is shown. */
export const lapsedNote = (lapsed: boolean): unknown =>
  lapsed
    ? html`<p class="note" role="note"><strong>Time in this record was lapsed.</strong> A demonstration ran days in
minutes: sellers, payments and answers are real exchanges, the dates on them are not the wall clock's.</p>`
    : "";

/** The market's table, page `n` from 1. */
export function homePage(view: View, n: number, lapsed: boolean): string {
  const entries = market(view);
  const pages = Math.max(1, Math.ceil(entries.length / ROWS));
  const shown = entries.slice((n - 1) * ROWS, n * ROWS);
  const letters = entries.filter((entry) => rank(headlineOf(entry)) < BANDS.length).length;
  const body = html`<h1>What happened when paid endpoints were paid</h1>
${lapsedNote(lapsed)}
<p>${entries.length} endpoints are listed, ${letters} of them hold a letter. A letter needs paid calls in 30 different
spells of six hours; until then an endpoint is unrated, which means unknown, not bad.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Market table"><table>
<caption>Paid endpoints, best letter first. Price is what the newest 402 asked, in the asset it names.</caption>
<thead><tr><th scope="col">Letter</th><th scope="col">Endpoint</th><th scope="col">Tier</th><th scope="col">Composite</th>
<th scope="col">Why</th><th scope="col">Progress</th><th scope="col">Price</th><th scope="col">Paid calls</th>
<th scope="col">Last seen</th></tr></thead>
<tbody>${shown.map((entry) => marketRow(view, entry))}</tbody></table></div>
${shown.length === 0 ? html`<p>Nothing is listed ${n > 1 ? "on this page" : "yet"}.</p>` : ""}
${pages > 1 ? pager(n, pages) : ""}`;
  return page({ title: "Touchstone: the market of paid endpoints", body });
}

const pager = (n: number, pages: number): unknown => html`<nav aria-label="Pages"><p>
${n > 1 ? html`<a rel="prev" href="/?page=${n - 1}">Previous</a> · ` : ""}Page ${n} of ${pages}${
  n < pages ? html` · <a rel="next" href="/?page=${n + 1}">Next</a>` : ""
}</p></nav>`;
