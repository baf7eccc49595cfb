import { html } from "hono/html";
import { MISSING_MEMBER_TEXT } from "../../pipelines/record/card.ts";
import { HISTORY_DAYS, type HistoryDay } from "../../pipelines/record/history.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import { DAY_MS, dayOf } from "../../pipelines/record/time.ts";
import type { FailuresPage } from "../answers/failures.ts";
import { shellWord } from "../answers/reproduce.ts";
import type { ClientFile } from "../client-file.ts";
import type { Buy, CheckFacts } from "../schemas/check.ts";
import type { FailedCall } from "../schemas/trust.ts";
import { type Entry, headlineOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { badgePart } from "./badge.ts";
import { daysTable, historyCharts, lettersChart, lettersTable } from "./charts.ts";
import { aboutPart, buyPart, flagsPart, paymentsPart, problemsPart, seenPart } from "./endpoint-facts.ts";
import { simulatedNote } from "./home.ts";
import { page } from "./layout.ts";
import { componentPicture, componentTable, pips } from "./picture.ts";
import { provePart } from "./prove.ts";
import {
  addressWords,
  formatCount,
  formatRoundedDown,
  formatTime,
  grade,
  NONE,
  shorten,
  tierWords,
  verdictOf,
} from "./words.ts";

/** What the page of an endpoint is made from. */
export interface EndpointPage {
  view: View;
  cap: string;
  facts: CheckFacts;
  /** How a call of the endpoint is bought through the service, or why none is sold. */
  buy: Buy | { says: string };
  /** The endpoint's newest failed paid calls; null when the evidence could not be read. */
  failures: FailuresPage | null;
  /** Days of the endpoint's history, oldest first; null when there is none. */
  days: readonly HistoryDay[] | null;
  now: Date;
  /** Whether the record's time is simulated, which the page then states. */
  simulated: boolean;
  /** Public address of the service. */
  base: string;
  /** The module that proves the endpoint's card (signed grade) in a browser; null: none is served. */
  proveFile: ClientFile | null;
}

function gradePart(facts: CheckFacts, progress: number): unknown {
  const { withdrawnSince = 0, observationsSince = 0, sampleCount = MISSING_MEMBER_TEXT } = facts;
  return html`<section aria-labelledby="grade" class="verdict"><div><h2 id="grade" class="small soft">Grade</h2>${grade(facts.band, true)}</div>
<div><p class="line">${verdictOf(facts.why)}</p><details><summary>The whole sentence</summary><p>${facts.why}</p></details><dl>
<dt>Toward a letter</dt><dd>${progress} of 30 paid calls <span class="soft">(one in six hours counts)</span>${pips(progress)}</dd>
${facts.tier === null ? "" : html`<dt>Tier</dt><dd>${tierWords(facts.tier)}</dd><dt>Composite</dt><dd>${formatRoundedDown(facts.composite)}</dd>`}
<dt>Records behind it</dt><dd>${sampleCount}${withdrawnSince > 0 ? `, ${withdrawnSince} of them withdrawn since` : ""}${
    observationsSince > 0 ? `; ${observationsSince} newer` : ""
  }</dd>
${facts.scorecard ? html`<dt>Computed</dt><dd>${facts.computedAt ? formatTime(Date.parse(facts.computedAt)) : MISSING_MEMBER_TEXT}</dd>` : ""}</dl></div></section>`;
}

const componentsPart = ({ components }: CheckFacts): unknown =>
  components
    ? html`<section aria-labelledby="components"><h2 id="components">Components</h2>
<figure class="chart">${componentPicture(components)}<figcaption>The bar runs from the lower to the upper bound, the dot is what was
seen; the scale is stretched towards 1. Bounds hold with 95 % confidence at any time you look.</figcaption>
<details><summary>The same figures as a table</summary>${componentTable(components)}</details></figure></section>`
    : "";

/**
 * Returns the days of the history that are at most {@link HISTORY_DAYS} old; the stored history may have older ones.
 */
const recentDays = ({ days, now }: EndpointPage): HistoryDay[] =>
  (days ?? []).filter(({ day }) => day > Math.floor(now.getTime() / DAY_MS) - HISTORY_DAYS);

function overTimePart(entry: Entry | undefined, content: EndpointPage): unknown {
  const { now } = content;
  const today = Math.floor(now.getTime() / DAY_MS);
  const recent = recentDays(content);
  const letters = entry?.letters ?? [];
  const hasHistory = recent.length > 0;
  if (!hasHistory && letters.length === 0) return "";
  return html`<section aria-labelledby="time" class="rule"><h2 id="time">Over time</h2>
<div class="charts">${lettersChart(letters, now.getTime())}${hasHistory ? historyCharts(recent, today) : ""}</div>
${hasHistory ? daysTable(recent) : ""}${lettersTable(letters)}
${
  hasHistory
    ? html`<p class="soft small">Price, calls and latency are a picture of the live tier: unproven, drawn hourly from the newest
${formatCount(recent.length, "day")} that we know of. The proven rows are the evidence files <a href="#own">below</a>; every letter is a leaf of the log.</p>`
    : ""
}</section>`;
}

/** Returns the newest day of the history on which the endpoint answered anything; null: none. */
const answeredDay = (content: EndpointPage): string | null => {
  const day = recentDays(content).findLast(({ answered, delivered }) => answered > 0 || delivered > 0)?.day;
  return day === undefined ? null : dayOf(new Date(day * DAY_MS));
};

/** Largest number of days in the table of failures; the newest are shown. */
const MAX_FAILED_DAYS = 30;

/** Renders a table of the days with unanswered handshakes or undelivered paid calls, with each day's evidence file. */
function failedPart(content: EndpointPage): unknown {
  const { view, cap } = content;
  const days = recentDays(content);
  const failedDays = days.filter(({ probes, answered, paid, delivered }) => answered < probes || delivered < paid);
  const files = new Map(view.evidence.filesOf(bucketOf(cap)).map(({ day, key }) => [day, key]));
  const rows = failedDays
    .toReversed()
    .slice(0, MAX_FAILED_DAYS)
    .map(({ day, probes, answered, paid, delivered }) => {
      const date = dayOf(new Date(day * DAY_MS));
      const file = files.get(date);
      return html`<tr><th scope="row">${date}</th><td class="n">${probes - answered} of ${probes}</td><td class="n">${paid - delivered} of ${paid}</td><td>${file ? html`<a href="/${file}">${date}</a>` : NONE}</td></tr>`;
    });
  const table = html`<p>On ${formatCount(failedDays.length, "day")} of the newest ${formatCount(days.length, "day")} that we know of${failedDays.length > MAX_FAILED_DAYS ? html`; the newest ${MAX_FAILED_DAYS}` : ""}:</p>
<div class="scroll" tabindex="0" role="region" aria-label="Failed checks by day"><table><caption>Our own faults are left out.</caption><thead><tr><th scope="col">Day</th>
<th scope="col" class="n">Handshakes not answered</th><th scope="col" class="n">Paid calls that delivered nothing</th><th scope="col">Evidence</th></tr></thead><tbody>${rows}</tbody></table></div>`;
  if (rows.length === 0) return "";
  return html`<section aria-labelledby="failed" class="rule"><h2 id="failed">Failed checks</h2>${table}
<p class="soft small">A wrong answer lowers correctness above; each one is in the <a href="/docs/evidence">evidence files</a>.</p></section>`;
}

const hashRow = (title: string, sha256: string | null): unknown =>
  sha256 === null ? "" : html`<dt>${title}</dt><dd><code>${sha256}</code></dd>`;

/**
 * Renders one failed call. The link to its evidence is a path without a host, since every server of the record has the
 * file at the same path.
 */
function callPart(base: string, call: FailedCall): unknown {
  const { at, says, expected, came, tx, network, evidence, id, paid_by } = call;
  return html`<li><p><strong>${formatTime(Date.parse(at))}</strong> ${says}${paid_by === "us" ? "" : html` <span class="soft">(a call that its buyer published)</span>`}</p><dl>
<dt>Expected</dt><dd>${expected}</dd><dt>Came</dt><dd>${came}</dd>
<dt>Transaction</dt><dd>${tx === null ? "none was seen" : html`<code>${tx}</code> on ${network}`}</dd>
${hashRow("Request, sha256", call.request_sha256)}${hashRow("Answer, sha256", call.response_sha256)}
<dt>Evidence</dt><dd>${evidence.map((url, i) => html`${i > 0 ? ", " : ""}<a href="${url.slice(base.length)}">${/\d{4}-\d\d-\d\d/.exec(url)?.[0] ?? "file"}</a>`)}: lines with <code>${id}</code></dd></dl></li>`;
}

/** Renders the newest failed paid calls of the published evidence, one by one. */
function callsPart({ failures, cap, base }: EndpointPage): unknown {
  if (!failures) return "";
  const { failures: calls, evidence_until: until, next } = failures;
  if (calls.length === 0 && next === null) return "";
  const more = html`<a href="/v1/trust/${cap}/failures">every failed call, page by page</a>`;
  return html`<section aria-labelledby="calls" class="rule"><h2 id="calls">What went wrong, call by call</h2>
${calls.length === 0 ? html`<p>No paid call failed in the newest days; older ones: ${more}.</p>` : html`<ul class="says">${calls.map((call) => callPart(base, call))}</ul>`}
<p class="soft small">${calls.length === 0 ? "From" : html`The newest ${formatCount(calls.length, "failed paid call")} of`} the published evidence, which goes to ${until ?? NONE}; a day follows six hours
after its end. Failures by our fault are left out.${calls.length === 0 ? "" : html` For programs: ${more}.`}</p></section>`;
}

/** Renders the page of one endpoint: the facts of a check, the history, and how to prove them. */
export function endpointPage(content: EndpointPage): string {
  const { view, cap, facts, simulated, base, now } = content;
  const entry = view.entry(cap);
  const name = facts.url === undefined ? cap : shorten(addressWords(facts.url.replace(/\?.*$/s, "")), 90);
  const says = entry?.listing?.description
    ? html`<blockquote class="said"><p>${shorten(entry.listing.description, 200)}</p><p class="soft small">The seller says this about itself.</p></blockquote>`
    : "";
  const body = html`<p class="crumb"><a href="/">Market</a></p><h1>${name}</h1>
<p class="soft"><code>${entry?.listing?.method ?? view.row(cap)?.method ?? ""} ${facts.url ?? cap}</code></p>${says}${simulatedNote(simulated)}
${gradePart(facts, (entry && headlineOf(entry)?.progress) ?? 0)}
<div class="cols"><div>${componentsPart(facts)}${overTimePart(entry, content)}${callsPart(content)}${failedPart(content)}${problemsPart(view, cap, facts)}</div>
<div>${seenPart(view, cap, answeredDay(content), now)}${paymentsPart(view, cap)}${flagsPart(facts)}${buyPart(content.buy)}${aboutPart(view, cap, facts)}${badgePart(cap, base)}</div></div>
${verificationPart(content)}`;
  return page({ title: `${shorten(name, 60)}: ${facts.band}`, body });
}

const command = (text: string): unknown => html`<pre tabindex="0"><code>${text}</code></pre>`;

/** Largest number of evidence files that a page names; the newest are named. */
const MAX_NAMED_FILES = 8;

function evidencePart(view: View, bucket: number): unknown {
  const files = view.evidence.filesOf(bucket).slice(0, MAX_NAMED_FILES);
  const introduction = html`Every sample behind the grade lies in the daily evidence files of bucket ${bucket}, each named with its hash by an
<code>evidence</code> leaf of the log`;
  if (files.length === 0) return html`<p>${introduction}; none of them was published yet.</p>`;
  return html`<p>${introduction}. The newest:</p><ul class="says">${files.map(
    ({ day, key, rows }) => html`<li><a href="/${key}">${day}</a>, ${rows} lines</li>`,
  )}</ul>`;
}

/** Renders the part that explains how anybody can prove what the page states. */
function verificationPart({ view, cap, facts: { reproduce, computedAt }, base, proveFile }: EndpointPage): unknown {
  const entry = view.entry(cap);
  const leaf = entry ? headlineOf(entry)?.leaf : undefined;
  const bucket = bucketOf(cap);
  return html`<section aria-labelledby="own" class="rule"><h2 id="own">Prove it yourself</h2><div class="prose">
${leaf === undefined ? "" : provePart(cap, computedAt ?? null, proveFile)}
${reproduce ? html`<p>The same free handshake from your machine:</p>${command(reproduce)}` : ""}
<p>The <a href="/v1/check?url=${cap}">signed answer</a> to a check, and its signature verified offline with Node alone
(<a href="/docs/verify-a-check.mjs">the script</a>, <a href="/.well-known/svc-keys.json">the keys</a>):</p>
${command(
  `curl -fsS ${shellWord(`${base}/v1/check?url=${cap}`)} > answer.json
curl -fsS ${base}/.well-known/svc-keys.json > svc-keys.json
curl -fsS ${base}/docs/verify-a-check.mjs > verify-a-check.mjs
node verify-a-check.mjs answer.json svc-keys.json`,
)}
<p>${leaf === undefined ? "" : html`The headline card as <a href="/v1/trust/${cap}/bundle">one file that proves itself</a> (<a href="/docs/card-bundle">how</a>). `}The <a href="/v1/trust/${cap}">signed cards</a>, and the <a href="/v1/trust/feed">feed</a> of every grade as it was published${
    leaf === undefined ? "" : html`: the headline card is leaf ${leaf} of the log`
  }. The whole record, <a href="/docs/mirror">copied and proven</a> against its <a href="/checkpoint">checkpoint</a>${
    leaf === undefined
      ? ""
      : html`, and these cards made again from <a href="/docs/evidence">evidence</a>, every byte but the signature`
  }:</p>
${command(
  leaf === undefined
    ? `touchstone mirror ${base} record`
    : `touchstone mirror ${base} record
touchstone recompute ${cap} --from record
touchstone audit ${base} --endpoint ${cap}`,
)}
${evidencePart(view, bucket)}</div></section>`;
}
