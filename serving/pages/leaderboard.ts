import { html } from "hono/html";
import { headlineOf, type ListedEntry } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { hrefOf, simulatedNote } from "./home.ts";
import { page } from "./layout.ts";
import { classesOf, leadersOf } from "./market.ts";
import { addressWords, atLeast, classWords, count, grade, price, shorten, tierWords } from "./words.ts";

/** Endpoints of one class, and classes of the page: those with most endpoints. */
const LEADERS = 10;
const MAX_CLASSES = 30;

function leaderRow(view: View, entry: ListedEntry, place: number): unknown {
  const card = headlineOf(entry)!;
  return html`<tr><td class="n">${place}</td><td>${grade(card.band)}</td>
<th scope="row"><a href="/endpoint/${entry.cap}">${shorten(addressWords(entry.url), 90)}</a><span class="small soft">${entry.method}${entry.description ? html` <q>${shorten(entry.description, 90)}</q>` : ""}</span></th>
<td class="n">${atLeast(card.composite)}</td><td>${tierWords(card.tier)}</td>
<td class="n">${card?.progress ?? 0} of 30</td><td class="n">${price(view.row(entry.cap)?.price)}</td></tr>`;
}

function classPart(
  view: View,
  kind: string,
  { leaders, lettered }: { leaders: ListedEntry[]; lettered: number },
  i: number,
) {
  const words = classWords(kind);
  const total = classesOf(view).get(kind)!;
  const all = html`<p class="small"><a href="${hrefOf({ kind })}">All of ${words}</a>: ${count(total, "endpoint")}, ${lettered} of them with a letter.</p>`;
  const table = html`<div class="scroll" tabindex="0" role="region" aria-label="Best of ${words}"><table class="leaders"><caption>Best letter first, then the highest composite.</caption>
<thead><tr><th scope="col" class="n">Place</th><th scope="col">Letter</th><th scope="col">Endpoint</th><th scope="col" class="n">Composite</th><th scope="col">Tier</th><th scope="col" class="n">Progress</th><th scope="col" class="n">Price now</th></tr></thead>
<tbody>${leaders.map((entry, place) => leaderRow(view, entry, place + 1))}</tbody></table></div>`;
  return html`<section aria-labelledby="class-${i}" class="rule"><h2 id="class-${i}">${words[0]!.toUpperCase()}${words.slice(1)}</h2>
${leaders.length > 0 ? table : html`<p>Nothing of this class holds a letter yet.</p>`}${all}</section>`;
}

/** The best of each class that hold a letter; who has none is not ranked, since nothing is known of it. */
export function leaderboardPage(view: View, simulated: boolean): string {
  const found = [...leadersOf(view, LEADERS)].slice(0, MAX_CLASSES);
  const body = html`<h1>Leaderboard</h1>
<p class="lead">The best ${LEADERS} of each class of endpoints. A class is told by what answers can be held against: known answers, a schema,
or nothing but delivery. Only letters are ranked, and a letter is <a href="/docs/how-a-letter-is-made">made of paid calls</a>.</p>
${simulatedNote(simulated)}
${found.length > 0 ? found.map(([kind, of], i) => classPart(view, kind, of, i)) : html`<p>Nothing is listed yet.</p>`}`;
  return page({ title: "Leaderboard: the best endpoints of each class", body });
}
