import { html, raw } from "hono/html";
import type { ExposureLine, ExposurePayee, ExposureReport, ExposureRequest, Standing } from "../schemas/exposure.ts";
import { MAX_DEPENDENCIES } from "../schemas/exposure.ts";
import { simulatedNote } from "./home.ts";
import { page } from "./layout.ts";
import { formatCount, formatPrice, formatTime, grade, NONE, shorten } from "./words.ts";

export interface ExposurePage {
  /** Text in the form's field, as it was sent. */
  text: string;
  report?: ExposureReport;
  /** Why there is no report, one sentence each. */
  errors?: readonly string[];
  /** Whether the record's time is simulated, which the page then states. */
  simulated: boolean;
}

const STANDING_WORDS: Record<Standing, string> = {
  took_the_money: "took the money",
  listing_mismatch: "listing or 402 is wrong",
  lettered: "has a letter",
  paid_no_letter: "paid, no letter yet",
  handshake_only: "never paid: unknown",
  not_in_record: "not in the record: unknown",
};

const RELATED_WORDS: Record<string, string> = {
  payee_took_the_money: "its address took money elsewhere",
  domain_took_the_money: "its domain took money elsewhere",
};

/** The dependencies that were read from the text of the form's field. */
export interface ParsedLines {
  dependencies: ExposureRequest["dependencies"];
  /** Line number of each dependency, from 1. */
  lines: number[];
  errors: string[];
}

/**
 * Reads dependencies from a text, one a line: the url, then calls a month, a price as `$0.01` and an address to be
 * paid, in any order, each at most once. Empty lines and those that begin with # are ignored. Whether a url is valid is
 * checked when it is looked up.
 */
export function parseLines(text: string): ParsedLines {
  const parsed: ParsedLines = { dependencies: [], lines: [], errors: [] };
  for (const [i, line] of text.split(/\r\n|\r|\n/).entries()) {
    const [url, ...rest] = line.trim().split(/\s+/);
    if (!url || url.startsWith("#")) continue;
    const calls = rest.filter((one) => /^\d+(?:\.\d+)?$/.test(one));
    const prices = rest.filter((one) => one.startsWith("$"));
    const payees = rest.filter((one) => !/^(?:\d+(?:\.\d+)?$|\$)/.test(one));
    if (calls.length > 1 || prices.length > 1 || payees.length > 1) {
      parsed.errors.push(`Line ${i + 1}: a url, calls a month, a price and one address, and nothing else`);
      continue;
    }
    const more = {
      ...(calls[0] === undefined ? {} : { calls_per_month: Number(calls[0]) }),
      ...(prices[0] === undefined ? {} : { price: moneyOf(prices[0].slice(1)) }),
      ...(payees[0] === undefined ? {} : { pay_to: payees[0] }),
    };
    parsed.dependencies.push({ url, ...more });
    parsed.lines.push(i + 1);
  }
  return parsed;
}

/** Completes a whole number, which people write as money: `1` becomes `1.0`. */
const moneyOf = (text: string): string => (/^\d+$/.test(text) ? `${text}.0` : text);

const form = ({ text, errors }: ExposurePage): unknown => html`<form method="post" action="/exposure/report">
<label class="whole">Urls that you pay, one a line; after each, if you know them, calls a month, what you pay for one ($0.01) and the address of its 402
<textarea name="dependencies" rows="8" required spellcheck="false"${errors ? raw(' aria-invalid="true" aria-describedby="wrong"') : ""} placeholder="https://api.example.com/v1/sum 12000 0x1111111111111111111111111111111111111111">${text}</textarea></label>
<button type="submit">Look up</button></form>
${
  errors
    ? html`<div id="wrong" class="note" role="alert"><strong>Nothing was looked up:</strong><ul class="says">${errors.map((one) => html`<li>${one}</li>`)}</ul></div>`
    : ""
}`;

const dollars = (money: string | null): string => (money === null ? NONE : formatPrice(money));

const relatedRow = (related: ExposureReport["totals"]["related"]): unknown =>
  related === undefined
    ? ""
    : html`<dt>Payee or domain took money elsewhere</dt><dd><strong>${dollars(related.monthly_spend)} USD</strong> <span class="soft">(${related.payee_took_the_money} by their address, ${related.domain_took_the_money} by their domain; counted above by what is known of the endpoint itself)</span></dd>`;

function sumsPart({ totals, answered_at: at }: ExposureReport): unknown {
  return html`<section aria-labelledby="sums" class="verdict one"><div><h2 id="sums">In sum</h2><dl>
<dt>Dependencies</dt><dd>${totals.dependencies}, paid at ${formatCount(totals.payees, "known address", "known addresses")}</dd>
<dt>Spend a month</dt><dd>${dollars(totals.monthly_spend)} USD</dd>
<dt>Where the record shows a failure</dt><dd><strong>${dollars(totals.monthly_spend_where_the_record_shows_a_failure)} USD</strong> <span class="soft">(${totals.standings.took_the_money} took the money, ${totals.standings.listing_mismatch} with a wrong listing; an F counts too)</span></dd>
<dt>Not yet measured</dt><dd>${dollars(totals.monthly_spend_not_yet_measured)} USD <span class="soft">(${totals.calls_per_month_not_yet_measured} calls; unknown, not bad)</span></dd>
<dt>With a letter from A to D</dt><dd>${dollars(totals.monthly_spend_lettered)} USD</dd>
${relatedRow(totals.related)}<dt>Without a spend</dt><dd>${totals.without_spend} <span class="soft">(no calls were given, or no price in dollars is known)</span></dd>
<dt>Address never seen there</dt><dd>${totals.pay_to_not_seen_before}</dd><dt>At</dt><dd>${formatTime(Date.parse(at))}</dd></dl></div></section>`;
}

const payeeRow = (
  one: ExposurePayee,
): unknown => html`<tr><th scope="row">${one.address === null ? "no address is known" : html`<code>${one.address}</code>`}</th>
<td class="n">${one.dependencies}</td><td class="n">${one.origins}</td><td class="n">${dollars(one.monthly_spend)}</td><td class="n">${dollars(one.monthly_spend_where_the_record_shows_a_failure)}</td><td class="n">${dollars(one.monthly_spend_not_yet_measured)}</td></tr>`;

function lineRow(line: ExposureLine): unknown {
  const { capabilityId: cap, asked } = line;
  const name = shorten(asked, 100);
  const unseenNote = line.pay_to_seen_before === false ? html`<br><strong>address never seen there</strong>` : "";
  const relatedNotes = line.flags
    .filter((flag) => Object.hasOwn(RELATED_WORDS, flag))
    .map((flag) => html`<br><strong>${RELATED_WORDS[flag]}</strong>`);
  return html`<tr><th scope="row">${cap ? html`<a href="/endpoint/${cap}">${name}</a>` : name}</th><td>${grade(line.band)}</td>
<td>${STANDING_WORDS[line.standing]}${unseenNote}${relatedNotes}</td><td class="n">${line.price === null && line.price_given !== undefined ? `${dollars(line.price_given)} (yours)` : dollars(line.price)}${line.price !== null && line.unit === null ? " (another asset)" : ""}</td>
<td class="n">${line.calls_per_month ?? NONE}</td><td class="n">${dollars(line.monthly_spend)}</td><td>${relatedNotes.length === 0 && line.next !== undefined ? line.next : line.why}</td></tr>`;
}

const tablesPart = ({
  payees,
  lines,
}: ExposureReport): unknown => html`<section aria-labelledby="payees" class="rule"><h2 id="payees">Whom you pay</h2>
<div class="scroll" tabindex="0" role="region" aria-label="By address"><table class="offers"><caption>Dearest first, in dollars a month.</caption><thead><tr><th scope="col">Address</th>
<th scope="col" class="n">Dependencies</th><th scope="col" class="n">Origins</th><th scope="col" class="n">Spend</th><th scope="col" class="n">Where it failed</th><th scope="col" class="n">Not measured</th></tr></thead><tbody>${payees.map(payeeRow)}</tbody></table></div></section>
<section aria-labelledby="lines" class="rule"><h2 id="lines">Each dependency</h2>
<div class="scroll" tabindex="0" role="region" aria-label="By dependency"><table class="offers"><caption>In the order in which you gave them.</caption><thead><tr><th scope="col">Url</th><th scope="col">Letter</th>
<th scope="col">Standing</th><th scope="col" class="n">Price</th><th scope="col" class="n">Calls</th><th scope="col" class="n">Spend</th><th scope="col">Why</th></tr></thead><tbody>${lines.map(lineRow)}</tbody></table></div></section>`;

/** Renders the page with the form, and with the report if there is one. */
export function exposurePage(content: ExposurePage): string {
  const { report, simulated } = content;
  const body = html`<h1>Exposure</h1>
<p class="lead">What the record holds about everything you pay, added up by the address that each one pays: one address can stand behind
many sellers. At most ${MAX_DEPENDENCIES} at once; free, and without a key.</p>${simulatedNote(simulated)}
${form(content)}${report ? html`${sumsPart(report)}${tablesPart(report)}` : ""}
<p class="soft small">The same for programs, signed: <code>POST /v1/exposure</code> (<a href="/docs/exposure">how, and what each word means</a>). Urls that
nobody knows are put in line for a free handshake.</p>`;
  return page({ title: report ? "Exposure: whom you pay" : "Exposure", body });
}
