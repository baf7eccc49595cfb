import { html } from "hono/html";
import { bucketOf } from "../../pipelines/record/ids.ts";
import { shellWord } from "../answers/observed.ts";
import type { CheckFacts } from "../schemas/check.ts";
import { headlineOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";

const command = (text: string): unknown => html`<pre tabindex="0"><code>${text}</code></pre>`;

function evidence(view: View, bucket: number): unknown {
  const files = view.evidence.of(bucket);
  const which = html`Every sample behind the grade lies in the daily evidence files of bucket ${bucket}, each named with its hash by an
<code>evidence</code> leaf of the log`;
  if (files.length === 0) return html`<p>${which}; none of them was published yet.</p>`;
  return html`<p>${which}. The newest:</p><ul class="says">${files.map(
    ({ day, key, rows }) => html`<li><a href="/${key}">${day}</a>, ${rows} lines</li>`,
  )}</ul>`;
}

/** How anybody proves what the page says, without believing it. @param base address of this service */
export function provePart(view: View, cap: string, { reproduce }: CheckFacts, base: string): unknown {
  const entry = view.entry(cap);
  const leaf = entry ? headlineOf(entry)?.leaf : undefined;
  const bucket = bucketOf(cap);
  return html`<section aria-labelledby="own" class="rule"><h2 id="own">Prove it yourself</h2><div class="prose">
${reproduce ? html`<p>The same free handshake from your machine:</p>${command(reproduce)}` : ""}
<p>The <a href="/v1/check?url=${cap}">signed answer</a> to a check, and its signature verified offline with Node alone
(<a href="/docs/verify-a-check.mjs">the script</a>, <a href="/.well-known/svc-keys.json">the keys</a>):</p>
${command(
  `curl -fsS ${shellWord(`${base}/v1/check?url=${cap}`)} > answer.json
curl -fsS ${base}/.well-known/svc-keys.json > svc-keys.json
curl -fsS ${base}/docs/verify-a-check.mjs > verify-a-check.mjs
node verify-a-check.mjs answer.json svc-keys.json`,
)}
<p>The <a href="/v1/trust/${cap}">signed cards</a>, and the <a href="/v1/trust/feed">feed</a> of every grade as it was published${
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
${evidence(view, bucket)}</div></section>`;
}
