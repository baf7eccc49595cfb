import { html, raw } from "hono/html";
import { stockAdviceOf } from "../answers/stock-advice.ts";
import type { ListingAnswer } from "../schemas/listing.ts";
import { page } from "./layout.ts";
import { assetWords, formatCount, formatDuration, formatPrice, formatTime, NONE, shorten } from "./words.ts";

export interface CheckListingPage {
  /** The form's fields as they were sent. */
  url: string;
  method: string;
  answer?: ListingAnswer;
  /** Why there is no answer. */
  error?: string;
}

const option = (value: string, words: string, chosen: string): unknown =>
  html`<option value="${value}"${value === chosen ? raw(" selected") : ""}>${words}</option>`;

const form = ({
  url,
  method,
  error,
}: CheckListingPage): unknown => html`<form method="post" action="/check-my-listing/answer">
<label class="wide">Url of the endpoint<input type="url" name="url" value="${url}" required minlength="8" maxlength="2048"${
  error === undefined ? "" : raw(' aria-invalid="true" aria-describedby="wrong"')
} placeholder="https://api.example.com/v1/sum"></label>
<label>Method<select name="method">${option("", "as listed, else GET", method)}${option("GET", "GET", method)}${option("POST", "POST", method)}</select></label>
<button type="submit">Look now</button></form>
${error === undefined ? "" : html`<p id="wrong" class="note" role="alert"><strong>No look was made:</strong> ${error}.</p>`}`;

const VERDICTS: Record<ListingAnswer["stock_client"]["verdict"], string> = {
  signs: "yes",
  signs_without_spend_limits: "only with its spending limits lifted",
  refuses: "no",
  cannot_be_told: "cannot be told",
};

function answerPart(answer: ListingAnswer): unknown {
  const { says, mend, stock_client: stock, defects } = answer;
  return html`<section aria-labelledby="saw" class="verdict one"><div><h2 id="saw">What came back</h2>
<p>${says}</p>${mend ? html`<p><strong>To change:</strong> ${withCode(mend)}</p>` : ""}<dl>
<dt>Asked</dt><dd><code>${answer.method} ${answer.url}</code></dd><dt>At</dt><dd>${formatTime(Date.parse(answer.looked_at))}</dd>
<dt>Status</dt><dd>${answer.status ?? NONE}</dd><dt>Time taken</dt><dd>${formatDuration(answer.latency_ms)}</dd>
<dt>Protocols</dt><dd>${answer.protocols.join(", ") || NONE}${answer.x402_version === null ? "" : ` (x402 version ${answer.x402_version})`}</dd>
<dt>Defects</dt><dd>${defects.length === 0 ? "none was found" : formatCount(defects.length, "defect")}</dd>
<dt>Would a stock client sign?</dt><dd><strong>${VERDICTS[stock.verdict]}</strong></dd></dl></div></section>`;
}

/** Renders one of our own sentences, with the text between backticks as code. */
const withCode = (text: string): unknown =>
  text.split("`").map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));

/** Capitalises the first letter of a sentence, unless its first word is a name in camel case such as `payTo`. */
const capitalizeSentence = (says: string): string =>
  /^[a-z]+\b/.test(says) ? `${says[0]!.toUpperCase()}${says.slice(1)}` : says;

const defectsPart = ({ defects }: ListingAnswer): unknown =>
  defects.length === 0
    ? ""
    : html`<section aria-labelledby="defects" class="rule"><h2 id="defects">What to change</h2><ol class="says">${defects.map(
        ({ defect, says, mend }) =>
          html`<li><strong>${capitalizeSentence(says)}.</strong> ${withCode(mend)} <span class="soft small"><code>${defect}</code></span></li>`,
      )}</ol></section>`;

function offersPart({ offers, stock_client: stock }: ListingAnswer): unknown {
  if (offers.length === 0) return "";
  const rows = offers.map(
    (one, i) => html`<tr><th scope="row">${i + 1}${i === stock.offer ? " (chosen by the stock client)" : ""}</th>
<td>${one.scheme || NONE}</td><td><code>${one.network || NONE}</code></td><td>${one.asset === null ? NONE : html`${assetWords(one.asset) === one.asset ? "" : html`${assetWords(one.asset)} `}<code>${shorten(one.asset, 60)}</code>`}</td>
<td><code>${one.pay_to ?? NONE}</code></td><td class="n">${one.price === null ? html`${one.amount_atomic ?? NONE}${one.amount_atomic === null ? "" : " units"}` : formatPrice(one.price)}</td><td class="n">${one.max_timeout_s === null ? NONE : `${one.max_timeout_s} s`}</td></tr>`,
  );
  return html`<section aria-labelledby="offers" class="rule"><h2 id="offers">What was read</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Offers of the 402"><table class="offers"><caption>Offers of the 402, in its own order. A price is shown where asset and decimals are known.</caption>
<thead><tr><th scope="col">Offer</th><th scope="col">Scheme</th><th scope="col">Network</th><th scope="col">Asset</th><th scope="col">Pays to</th><th scope="col" class="n">Price</th><th scope="col" class="n">Timeout</th></tr></thead>
<tbody>${rows}</tbody></table></div></section>`;
}

function stockPart({ state, stock_client: stock }: ListingAnswer): unknown {
  const advice = state === "asked" ? stockAdviceOf(stock) : null;
  return html`<section aria-labelledby="stock" class="rule"><h2 id="stock">A stock x402 client</h2>
<p>${stock.says}</p>${advice === null ? "" : html`<p><strong>To change:</strong> ${withCode(advice)}</p>`}
<p class="soft small">Tried: ${stock.client}, with a key that holds nothing. The signature was thrown away; nothing was paid.</p></section>`;
}

function listingPart({ listing, capability_id: cap }: ListingAnswer): unknown {
  const ownDocument = listing
    ? html`<p>Your own document <code>${listing.document}</code> names this url. ${
        listing.differs.length === 0
          ? "The 402 says nothing that contradicts it."
          : html`The 402 contradicts it: ${listing.differs.map((code) => html`<code>${code}</code> `)}`
      }</p>`
    : html`<p>None of <code>/.well-known/x402</code>, <code>/openapi.json</code> and <code>/.well-known/agent-card.json</code> of this
origin names this url, so there was nothing to compare the 402 with. <a href="/docs/listings">What is read there</a>.</p>`;
  const record = cap
    ? html`<p>The record has this endpoint: <a href="/endpoint/${cap}">its page</a>.</p>`
    : html`<p>The record does not have this endpoint yet. A <a href="/docs/check-before-you-pay">check</a> of its url puts it in line for a handshake.</p>`;
  return html`<section aria-labelledby="listing" class="rule"><h2 id="listing">Your listing and the record</h2>${ownDocument}${record}</section>`;
}

/** Renders the page with the form, and with the result of a probe if there is one. */
export function checkListingPage(content: CheckListingPage): string {
  const { answer } = content;
  const body = html`<h1>Check my listing</h1>
<p class="lead">We call your endpoint once, without paying, as we call those in the record, and say what to change so that buyers can
pay it. It gives you no letter, and nothing of it is kept in the record.</p>
${form(content)}
${answer ? html`${answerPart(answer)}${defectsPart(answer)}${offersPart(answer)}${stockPart(answer)}${listingPart(answer)}` : ""}
<p class="soft small">The same for programs: <code>POST /v1/listings/validate</code> with <code>{"url": "https://..", "method": "GET"}</code>
(<a href="/docs/listings">how</a>). You get a few looks an hour, and a few a minute at one domain; the same question within a minute gets the same answer.</p>
<p class="soft small">Listed already? With the wallet that your endpoint is paid at, you can ask for <a href="/docs/listings">a re-test</a>: <code>POST /v1/listings/retest</code>, one free look a day, no letter.</p>`;
  return page({ title: answer ? "Check my listing: what a look saw" : "Check my listing", body });
}
