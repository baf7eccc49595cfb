import { html } from "hono/html";
import { anyClass, checkerOf } from "../../pipelines/record/classes.ts";
import { dayOf } from "../../pipelines/record/time.ts";
import { type PaymentFacts, readPaymentFacts, type VolatileRow } from "../../pipelines/record/volatile.ts";
import { correctionsOf } from "../answers/corrections.ts";
import { retryVerdictOf } from "../answers/retry.ts";
import type { Buy, CheckFacts } from "../schemas/check.ts";
import { cardOf, type Entry } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { isDark } from "./home.ts";
import { assetWords, flagWords, formatCount, formatPrice, formatTime, NONE } from "./words.ts";

const code = (text: string | null | undefined): unknown => (text ? html`<code>${text}</code>` : NONE);
const list = (items: readonly unknown[]): unknown =>
  html`<ul class="says">${items.map((item) => html`<li>${item}</li>`)}</ul>`;

/** Renders a row with a list of names; for an empty list it shows `none`, or nothing if `none` is not given. */
const namesRow = (title: string, names: readonly string[] | undefined, none?: string): unknown =>
  names?.length || none !== undefined ? html`<dt>${title}</dt><dd>${names?.length ? names.join(", ") : none}</dd>` : "";

/** Renders the networks of the newest 402 and those of the listing, each with the reason if there are none. */
function networksPart(row: VolatileRow | undefined, entry: Entry | undefined): unknown {
  const noneReadText = row ? "not known: no 402 of it was seen" : "not known: no 402 of it has been read yet";
  const noneOfferedText = row?.asked_for_payment ? "its newest 402 names none" : noneReadText;
  const listedText = row ? "its listing names none" : "not read yet";
  const noneListedText = entry?.listing ? listedText : "it is not listed";
  return html`${namesRow("Networks offered", row?.networks, noneOfferedText)}${namesRow("Networks listed", row?.networks_listed, noneListedText)}`;
}

/**
 * Renders when the endpoint was first and last seen. For a silent endpoint it renders when it last answered, since our
 * own unanswered probe is no sign of life.
 */
function whenPart(row: VolatileRow | undefined, isSilent: boolean, answeredDay: string | null): unknown {
  const firstSeen = html`<dt>First seen</dt><dd>${formatTime(row?.first_seen)}</dd>`;
  const neverAnswered = row !== undefined && row.probes > 0 && row.answered === 0;
  if (!neverAnswered && !isSilent) return html`${firstSeen}<dt>Last seen</dt><dd>${formatTime(row?.last_seen)}</dd>`;
  return html`<dt>${neverAnswered ? "First probed" : "First seen"}</dt><dd>${formatTime(row?.first_seen)}</dd>
<dt>Last answered</dt><dd>${neverAnswered ? "never" : (answeredDay ?? "more than 72 hours ago")}</dd><dt>Last probed</dt><dd>${formatTime(row?.last_seen)}</dd>`;
}

/**
 * Renders what free handshakes and paid calls saw, from the endpoint's row in the table of live figures.
 * @param answeredDay newest day of the history with an answer
 */
export function seenPart(view: View, cap: string, answeredDay: string | null, now: Date): unknown {
  const isSilent = isDark(view.entry(cap));
  const row = view.row(cap);
  const retryVerdict = retryVerdictOf(row, now);
  return html`<section aria-labelledby="seen" class="rule"><h2 id="seen">What was seen</h2><dl>
<dt>Price per call</dt><dd>${row?.price ? html`${formatPrice(row.price)} ${assetWords(row.asset)}${row.distinct_prices > 1 ? html`<br><span class="soft small">${row.distinct_prices} different prices so far</span>` : ""}` : NONE}</dd>
<dt>Paid calls</dt><dd>${row?.paid_calls ?? NONE}</dd>
<dt>Retry after a lost answer</dt><dd>${retryVerdict.verdict}: ${retryVerdict.says}${retryVerdict.at === null ? "" : html` <span class="soft">(${formatTime(retryVerdict.at)})</span>`}</dd>
<dt>Free handshakes</dt><dd>${row ? `${row.probes}, ${row.answered} answered, ${row.asked_for_payment} of them with a 402` : NONE}</dd>
${whenPart(row, isSilent, answeredDay)}
${namesRow("Protocol", row?.protocols)}${networksPart(row, view.entry(cap))}
${row?.pay_tos.length ? html`<dt>Pays to</dt><dd>${list(row.pay_tos.map(code))}</dd>` : ""}</dl></section>`;
}

const signedWords = ({ present, unread, valid, authorised }: NonNullable<PaymentFacts["offers"]>): string =>
  `${valid} valid, ${authorised} authorised of ${present}${unread > 0 ? `, ${unread} not read` : ""}`;

/** Describes the time from the seller's answer to the block that settled the payment. */
const delayWords = (s: number): string => (s === 0 ? "with the answer" : `${s} s after it`);

const dayText = (s: number): string => dayOf(new Date(s * 1000));

/** Describes who else pays this payee, and in which period: from `since` until just before `until`. */
function buyersWords(one: NonNullable<PaymentFacts["buyers"]>): unknown {
  const { network, asset, pay_to, payers, transfers, total, largest_share, effective_payers, ours } = one;
  const spread =
    largest_share === null || effective_payers === null
      ? ""
      : `; the largest sent ${Math.floor(largest_share * 100)} % of it, as concentrated as ${formatCount(effective_payers, "equal payer")}`;
  return html`${code(pay_to)} on ${network}, ${dayText(one.since)} to ${dayText(one.until - 1)}: ${
    payers === 0
      ? "nobody"
      : `${formatCount(payers, "payer")}, ${formatCount(transfers, "transfer")}, ${formatPrice(total)} ${assetWords(asset)}${spread}`
  }. <span class="soft small">(${
    ours.transfers === 0
      ? ""
      : `besides, ${formatCount(ours.transfers, "payment")} of our own, ${formatPrice(ours.total)}; `
  }blocks ${one.from_block} to ${one.to_block}${one.whole ? "" : ": not all of these days could be read"})</span>`;
}

/**
 * Renders facts about payments that no grade uses: who settles and how fast, what the seller signs, and who else pays
 * it; nothing if there are none.
 */
export function paymentsPart(view: View, cap: string): unknown {
  const facts = readPaymentFacts(view.row(cap)?.payments);
  if (!facts) return "";
  const { offers, receipts, settlers, unsettled, buyers } = facts;
  const settlerTexts = settlers.map(
    ({ network, sender, calls, median_s, max_s }) =>
      html`${code(sender)} on ${network}: ${formatCount(calls, "call")}${
        median_s === null || max_s === null
          ? ""
          : html`, half of them ${delayWords(median_s)}${max_s > median_s ? html`, the slowest ${delayWords(max_s)}` : ""}`
      }`,
  );
  return html`<section aria-labelledby="payments" class="rule"><h2 id="payments">Payments</h2><dl>
${settlerTexts.length > 0 ? html`<dt>Settled by</dt><dd>${list(settlerTexts)}</dd>` : ""}
${buyers ? html`<dt>Others who pay it</dt><dd>${buyersWords(buyers)}</dd>` : ""}
${unsettled > 0 ? html`<dt>Answered, never settled</dt><dd>${formatCount(unsettled, "call")}</dd>` : ""}
${offers ? html`<dt>Signed offers</dt><dd>${signedWords(offers)} <span class="soft small">(in its newest 402)</span></dd>` : ""}
${receipts ? html`<dt>Signed receipts</dt><dd>${signedWords(receipts)} <span class="soft small">(of all paid calls)</span></dd>` : ""}
</dl><p class="soft small">Facts beside the grade: they change no figure of it. Who settles is the sender of the transaction on the
chain. Authorised: signed by the payee itself. A seller can pay itself from any number of addresses, so many payers prove
nothing (<a href="/docs/schedule#what-else-a-payment-shows">how they are counted</a>).</p></section>`;
}

/** Renders the terms of a purchase through the service, or why no call can be bought. */
export function buyPart(buy: Buy | { says: string }): unknown {
  const terms =
    "says" in buy
      ? html`<p>${buy.says}</p>`
      : html`<dl><dt>Seller's price</dt><dd>${formatPrice(buy.seller_price)} ${buy.asset}</dd><dt>Fee</dt><dd>${formatPrice(buy.fee)} ${buy.asset}</dd>
<dt>Total, about</dt><dd>${formatPrice(buy.total)} ${buy.asset}</dd><dt>Call</dt><dd><code>${buy.method} ${buy.url}</code></dd>
${buy.tool === undefined ? "" : html`<dt>Body</dt><dd>the arguments of the tool <code>${buy.tool}</code>, as JSON</dd>`}${
  buy.variables === undefined ? "" : html`<dt>Query</dt><dd>${buy.variables.join(", ")}: the variables of its url</dd>`
}
<dt>Guarantee</dt><dd>${buy.guarantee}</dd><dt>To publish the call</dt><dd><code>${buy.publish}</code></dd></dl>`;
  return html`<section aria-labelledby="buy" class="rule"><h2 id="buy">Buy</h2>${terms}</section>`;
}

const LEVELS = {
  truth: "truth: answers are compared with known answers",
  schema: "schema: answers are checked against the advertised schema",
  parse: "parse: no schema is advertised, so answers must parse as what they claim to be",
  none: "none: no answer has been bought yet, and no schema is known",
};

/** Returns the deepest check of the endpoint's answers. A schema counts if a bought answer was checked against one. */
function levelOf(entry: Entry | undefined): keyof typeof LEVELS {
  if (checkerOf(entry?.listing?.class ?? anyClass.name) !== anyClass) return "truth";
  const cards = entry?.cards.map((card) => cardOf(card).components) ?? [];
  const isMeasured = (part: "schema_conformance" | "correctness") =>
    cards.some((one) => one && one[part].lower !== null);
  return isMeasured("schema_conformance") ? "schema" : isMeasured("correctness") ? "parse" : "none";
}

export function aboutPart(view: View, cap: string, { url }: CheckFacts): unknown {
  const entry = view.entry(cap);
  const listing = entry?.listing;
  const kind = listing?.class ?? "any";
  return html`<section aria-labelledby="about" class="rule"><h2 id="about">About</h2><dl>
${listing?.description ? html`<dt>Description</dt><dd>${listing.description} <span class="soft small">(the seller's words)</span></dd>` : ""}<dt>Url</dt><dd>${code(url)}</dd>
<dt>Method</dt><dd>${listing?.method ?? view.row(cap)?.method ?? NONE}</dd>${listing?.tool ? html`<dt>MCP tool</dt><dd>${code(listing.tool)}</dd>` : ""}
<dt>Class</dt><dd>${checkerOf(kind) !== anyClass ? html`<a href="/docs/classes#${kind}">${kind}</a>` : kind}</dd>
<dt>Checkable level</dt><dd>${LEVELS[levelOf(entry)]}</dd><dt>Endpoint id</dt><dd>${code(cap)}</dd></dl></section>`;
}

/** Renders the flags of the grade, each with its sentence; nothing if there are none. */
export const flagsPart = ({ flags = [] }: CheckFacts): unknown =>
  flags.length === 0
    ? ""
    : html`<section aria-labelledby="flags" class="rule"><h2 id="flags">Flags</h2><dl class="flags">${flags.map(
        (flag) => html`<dt><code>${flag}</code></dt><dd>${flagWords(flag)}</dd>`,
      )}</dl></section>`;

const textOrEmpty = (value: unknown): string => (typeof value === "string" ? value : "");

/** Renders the defects of the listing, our corrections, and the seller's disputes. */
export function problemsPart(view: View, cap: string, { defects, corrections = [] }: CheckFacts): unknown {
  const { disputes } = correctionsOf(view, cap);
  return html`${
    defects.length > 0
      ? html`<section aria-labelledby="defects" class="rule"><h2 id="defects">What is wrong with the listing</h2>${list(
          defects.map(
            ({ defect, says, seenAt }) =>
              html`${says} <span class="soft small"><code>${defect}</code>${seenAt ? html`, last seen ${formatTime(Date.parse(seenAt))}` : ""}</span>`,
          ),
        )}</section>`
      : ""
  }${
    corrections.length > 0
      ? html`<section aria-labelledby="corrections" class="rule"><h2 id="corrections">What we got wrong</h2>${list(
          corrections.map(
            (one) => html`${formatTime(Date.parse(one.issuedAt))}: ${one.says} (${one.fault})
<span class="soft small">${one.recordId ? html`record <code>${one.recordId}</code>` : "every record before it"}</span>`,
          ),
        )}</section>`
      : ""
  }${
    disputes.length > 0
      ? html`<section aria-labelledby="disputes" class="rule"><h2 id="disputes">What the seller disputes</h2>
<p class="small soft">${formatCount(disputes.length, "dispute")}; a dispute changes no figure until it becomes a <a href="/docs/corrections">correction</a>.</p>${list(
          disputes.map(
            (one) =>
              html`${textOrEmpty(one.says)} <span class="soft small">${textOrEmpty(one.record_id) ? html`record <code>${textOrEmpty(one.record_id)}</code>` : "every record"}${
                textOrEmpty(one.pay_to) ? html`, signed by <code>${textOrEmpty(one.pay_to)}</code>` : ""
              }</span>`,
          ),
        )}</section>`
      : ""
  }`;
}
