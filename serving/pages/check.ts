import { html } from "hono/html";
import type { CheckFacts } from "../schemas/check.ts";
import { checkBox, simulatedNote } from "./home.ts";
import { page } from "./layout.ts";
import { addressWords, assetWords, grade, moment, price, verdictOf } from "./words.ts";

export interface CheckShown {
  /** What stands in the field. */
  url: string;
  facts?: CheckFacts;
  /** Why there is no answer. */
  wrong?: string;
  simulated: boolean;
}

const MATCHED = {
  exact: "this method and url",
  path: "the same path, whatever stands in the query or in a template",
  none: "nothing",
} as const;

function answerPart({ facts }: CheckShown & { facts: CheckFacts }): unknown {
  const { band, why, matched, url, capabilityId: cap, observed, defects, next } = facts;
  return html`<section aria-labelledby="answer" class="verdict"><div><h2 id="answer" class="small soft">Grade</h2>${grade(band, true)}</div>
<div><p class="line">${verdictOf(why)}</p><p class="soft">${why}</p>${next ? html`<p>${next}</p>` : ""}<dl>
${cap && url ? html`<dt>Endpoint</dt><dd><a href="/endpoint/${cap}">${addressWords(url)}</a></dd>` : ""}
<dt>Known of it</dt><dd>${MATCHED[matched]}</dd>
${observed?.advertised ? html`<dt>Its newest 402 asks</dt><dd>${price(observed.advertised.amount)} ${assetWords(observed.advertised.asset)}</dd>` : ""}
${observed?.lastSeen ? html`<dt>Last probed</dt><dd>${moment(Date.parse(observed.lastSeen))}</dd>` : ""}</dl>
${defects.length > 0 ? html`<ul class="says">${defects.map(({ says }) => html`<li>${says}</li>`)}</ul>` : ""}</div></section>`;
}

/** What the record holds about a url that somebody pasted. */
export function checkPage(shown: CheckShown): string {
  const { url, facts, wrong, simulated } = shown;
  const body = html`<h1>Check before you pay</h1>${checkBox(url, wrong)}
${wrong === undefined ? "" : html`<p id="wrong" class="note" role="alert"><strong>Nothing was looked up:</strong> ${wrong}.</p>`}
${simulatedNote(simulated)}${facts ? answerPart({ ...shown, facts }) : ""}
<p class="soft small">The same for programs, signed: <code>GET /v1/check?url=…</code> (<a href="/docs/check-before-you-pay">how</a>). UNRATED means unknown, not bad.</p>`;
  return page({ title: facts ? `Check: ${facts.band}` : "Check before you pay", body });
}
