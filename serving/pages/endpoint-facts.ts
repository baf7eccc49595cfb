import { html } from "hono/html";
import { checkerOf } from "../../pipelines/record/classes.ts";
import { correctionsOf } from "../answers/corrections.ts";
import type { CheckFacts } from "../schemas/check.ts";
import { cardOf, type Entry } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { assetWords, count, flagWords, moment, NONE, price } from "./words.ts";

const code = (text: string | null | undefined): unknown => (text ? html`<code>${text}</code>` : NONE);
const list = (items: readonly unknown[]): unknown =>
  html`<ul class="says">${items.map((item) => html`<li>${item}</li>`)}</ul>`;

/** What free handshakes and paid calls saw, as the volatile row counts it. */
export function seenPart(view: View, cap: string): unknown {
  const row = view.row(cap);
  return html`<section aria-labelledby="seen" class="rule"><h2 id="seen">What was seen</h2><dl>
<dt>Price per call</dt><dd>${row?.price ? html`${price(row.price)} ${assetWords(row.asset)}${row.distinct_prices > 1 ? html`<br><span class="soft small">${row.distinct_prices} different prices so far</span>` : ""}` : NONE}</dd>
<dt>Paid calls</dt><dd>${row?.paid_calls ?? 0}</dd>
<dt>Free handshakes</dt><dd>${row?.probes ?? 0}, ${row?.answered ?? 0} answered, ${row?.asked_for_payment ?? 0} of them with a 402</dd>
<dt>First seen</dt><dd>${moment(row?.first_seen)}</dd><dt>Last seen</dt><dd>${moment(row?.last_seen)}</dd>
<dt>Protocol</dt><dd>${row?.protocols.join(", ") || NONE}</dd>
<dt>Networks offered</dt><dd>${row?.networks.join(", ") || NONE}</dd>
<dt>Networks listed</dt><dd>${row?.networks_listed.join(", ") || NONE}</dd>
<dt>Pays to</dt><dd>${row?.pay_tos.length ? list(row.pay_tos.map(code)) : NONE}</dd></dl></section>`;
}

/** The terms of a purchase through the service, or that there are none. */
export function buyPart({ buy }: CheckFacts): unknown {
  const terms = buy
    ? html`<dl><dt>Seller's price</dt><dd>${price(buy.seller_price)} ${buy.asset}</dd><dt>Fee</dt><dd>${price(buy.fee)} ${buy.asset}</dd>
<dt>Total, about</dt><dd>${price(buy.total)} ${buy.asset}</dd><dt>Call</dt><dd><code>${buy.method} ${buy.url}</code></dd>
<dt>Guarantee</dt><dd>${buy.guarantee}</dd><dt>To publish the call</dt><dd><code>${buy.publish}</code></dd></dl>`
    : html`<p>This endpoint cannot be bought through Touchstone now. To call it, pay the seller directly by the terms of its 402;
ask for a <a href="/docs/check-before-you-pay">check</a> first.</p>`;
  return html`<section aria-labelledby="buy" class="rule"><h2 id="buy">Buy</h2>${terms}</section>`;
}

const LEVELS = {
  truth: "truth: answers are held against known answers",
  schema: "schema: answers are held against the advertised schema",
  parse: "parse: no schema is advertised, so answers must parse as what they claim to be",
  none: "none: no answer was bought yet, and no schema is known",
};

/** The deepest thing that answers are held against. A schema counts where an answer that was bought was held against one. */
function levelOf(entry: Entry | undefined): keyof typeof LEVELS {
  if (checkerOf(entry?.class ?? "any").level === "truth") return "truth";
  const cards = entry?.cards.map((card) => cardOf(card).components) ?? [];
  const held = (part: "schema_conformance" | "correctness") => cards.some((one) => one && one[part].lower !== null);
  return held("schema_conformance") ? "schema" : held("correctness") ? "parse" : "none";
}

export function aboutPart(view: View, cap: string, { url }: CheckFacts): unknown {
  const entry = view.entry(cap);
  const kind = entry?.class ?? "any";
  return html`<section aria-labelledby="about" class="rule"><h2 id="about">About</h2><dl>
<dt>Description</dt><dd>${entry?.description ?? NONE}</dd><dt>Url</dt><dd>${code(url)}</dd>
<dt>Method</dt><dd>${entry?.method ?? view.row(cap)?.method ?? NONE}</dd>${entry?.tool ? html`<dt>MCP tool</dt><dd>${code(entry.tool)}</dd>` : ""}
<dt>Class</dt><dd>${checkerOf(kind).level === "truth" ? html`<a href="/docs/classes#${kind}">${kind}</a>` : kind}</dd>
<dt>Checkable level</dt><dd>${LEVELS[levelOf(entry)]}</dd><dt>Endpoint id</dt><dd>${code(cap)}</dd></dl></section>`;
}

/** Conditions on the grade, each with its sentence. */
export const flagsPart = ({ flags = [] }: CheckFacts): unknown =>
  html`<section aria-labelledby="flags" class="rule"><h2 id="flags">Flags</h2>${
    flags.length > 0
      ? html`<dl class="flags">${flags.map((flag) => html`<dt><code>${flag}</code></dt><dd>${flagWords(flag)}</dd>`)}</dl>`
      : html`<p>No condition is attached to the grade.</p>`
  }</section>`;

const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** What the listing gets wrong, what we got wrong, and what the seller says to it. */
export function problemsPart(view: View, cap: string, { defects, corrections = [] }: CheckFacts): unknown {
  const { disputes } = correctionsOf(view, cap);
  return html`${
    defects.length > 0
      ? html`<section aria-labelledby="defects" class="rule"><h2 id="defects">What is wrong with the listing</h2>${list(
          defects.map(
            ({ defect, says, seenAt }) =>
              html`${says} <span class="soft small"><code>${defect}</code>${seenAt ? html`, last seen ${moment(Date.parse(seenAt))}` : ""}</span>`,
          ),
        )}</section>`
      : ""
  }${
    corrections.length > 0
      ? html`<section aria-labelledby="corrections" class="rule"><h2 id="corrections">What we got wrong</h2>${list(
          corrections.map(
            (one) => html`${moment(Date.parse(one.issuedAt))}: ${one.says} (${one.fault})
<span class="soft small">${one.recordId ? html`record <code>${one.recordId}</code>` : "every record before it"}</span>`,
          ),
        )}</section>`
      : ""
  }${
    disputes.length > 0
      ? html`<section aria-labelledby="disputes" class="rule"><h2 id="disputes">What the seller disputes</h2>
<p class="small soft">${count(disputes.length, "dispute")}; one changes no figure until it becomes a <a href="/docs/corrections">correction</a>.</p>${list(
          disputes.map(
            (one) =>
              html`${text(one.says)} <span class="soft small">${text(one.record_id) ? html`record <code>${text(one.record_id)}</code>` : "every record"}${
                text(one.pay_to) ? html`, signed by <code>${text(one.pay_to)}</code>` : ""
              }</span>`,
          ),
        )}</section>`
      : ""
  }`;
}
