import { html } from "hono/html";
import { checkerOf } from "../../pipelines/record/classes/index.ts";
import type { CheckFacts } from "../schemas/check.ts";
import { headlineOf, progressOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { lapsedNote } from "./home.ts";
import { page } from "./layout.ts";
import { componentPicture, componentTable } from "./picture.ts";
import { figure, grade, moment, NONE, price, shorten, tierWords } from "./words.ts";

const list = (items: readonly unknown[]): unknown => html`<ul>${items.map((item) => html`<li>${item}</li>`)}</ul>`;

function gradePart(facts: CheckFacts, progress: number): unknown {
  return html`<section aria-labelledby="grade"><h2 id="grade">Grade</h2>
<p>${grade(facts.band, true)}</p><p>${facts.why}</p>
<dl><dt>Progress toward a letter</dt><dd>${progress} of 30 paid calls, at most one in six hours counts</dd>
<dt>Tier</dt><dd>${tierWords(facts.tier)}</dd><dt>Composite</dt><dd>${figure(facts.composite)}</dd>
<dt>Records behind it</dt><dd>${facts.sampleCount}${facts.withdrawnSince ? `, ${facts.withdrawnSince} of them withdrawn since` : ""}</dd>
<dt>Computed</dt><dd>${facts.computedAt ? moment(Date.parse(facts.computedAt)) : NONE}</dd>
<dt>Flags</dt><dd>${facts.flags?.length ? facts.flags.join(", ") : "none"}</dd></dl></section>`;
}

function seenPart(view: View, cap: string): unknown {
  const row = view.row(cap);
  return html`<section aria-labelledby="seen"><h2 id="seen">What was seen</h2><dl>
<dt>Price per call</dt><dd>${row?.price ? `${price(row.price)} of ${row.asset ?? "an unnamed asset"}` : NONE}</dd>
<dt>Paid calls</dt><dd>${row?.paid_calls ?? 0}</dd><dt>Free handshakes</dt><dd>${row?.probes ?? 0}, ${row?.answered ?? 0} answered</dd>
<dt>First seen</dt><dd>${moment(row?.first_seen)}</dd><dt>Last seen</dt><dd>${moment(row?.last_seen)}</dd>
<dt>Protocol</dt><dd>${row?.protocols.join(", ") || NONE}</dd><dt>Networks offered</dt><dd>${row?.networks.join(", ") || NONE}</dd>
<dt>Pays to</dt><dd>${row?.pay_to ? html`<code>${row.pay_to}</code>` : NONE}</dd></dl></section>`;
}

function aboutPart(view: View, cap: string, facts: CheckFacts): unknown {
  const entry = view.entry(cap);
  const row = view.row(cap);
  const kind = entry?.class ?? "any";
  return html`<section aria-labelledby="about"><h2 id="about">About</h2><dl>
<dt>Description</dt><dd>${entry?.description ?? NONE}</dd><dt>Url</dt><dd><code>${facts.url}</code></dd>
<dt>Method</dt><dd>${entry?.method ?? row?.method}</dd><dt>Class</dt><dd>${kind}</dd>
<dt>Checkable level</dt><dd>${checkerOf(kind).level}</dd><dt>Endpoint id</dt><dd><code>${cap}</code></dd></dl></section>`;
}

const problems = (facts: CheckFacts): unknown =>
  html`${
    facts.defects.length
      ? html`<section aria-labelledby="defects"><h2 id="defects">What is wrong with the listing</h2>${list(facts.defects.map((defect) => defect.says))}</section>`
      : ""
  }${
    facts.corrections?.length
      ? html`<section aria-labelledby="corrections"><h2 id="corrections">What we got wrong</h2>${list(
          facts.corrections.map((one) => html`${moment(Date.parse(one.issuedAt))}: ${one.says} (${one.fault})`),
        )}</section>`
      : ""
  }`;

/** The human-facing page of one endpoint: the same facts that a check answers with. */
export function endpointPage(view: View, cap: string, facts: CheckFacts, lapsed: boolean): string {
  const entry = view.entry(cap);
  const name = entry?.description ? shorten(entry.description, 120) : (facts.url ?? cap);
  const components = facts.components ?? null;
  const body = html`<h1>${name}</h1>${lapsedNote(lapsed)}
<p class="soft"><code>${facts.url}</code></p>
${gradePart(facts, progressOf(entry ? headlineOf(entry) : null))}
${
  components
    ? html`<section aria-labelledby="components"><h2 id="components">Components</h2>${componentPicture(components)}${componentTable(components)}</section>`
    : ""
}
${seenPart(view, cap)}${problems(facts)}${aboutPart(view, cap, facts)}
<section aria-labelledby="own"><h2 id="own">See for yourself</h2>
${facts.reproduce ? html`<p>The same free handshake from your machine:</p><pre tabindex="0"><code>${facts.reproduce}</code></pre>` : ""}
<p><a href="/v1/check?url=${cap}">The signed answer</a> · <a href="/v1/trust/${cap}">The signed cards</a></p></section>`;
  return page({ title: `${shorten(name, 60)}: ${facts.band}`, body });
}
