import { createHash } from "node:crypto";
import { html, raw } from "hono/html";
import type { ClientFile } from "../client-file.ts";
import { page, scriptHeaders } from "./layout.ts";

/**
 * The proof of a card (signed grade) in the reader's browser, by the module built from serving/prove: a button on an
 * endpoint's page, and a page that can be saved and opened without a network. Other pages run no script.
 */

/** Path of the module that proves a card. */
export const PROVE_MODULE = "/prove.mjs";
/** Path of the page that contains the module. */
export const PROVE_PAGE = "/prove";

/**
 * Shows the button, which is hidden where no script runs, and loads the module when the button is pressed. The browser
 * runs the module only if it has the hash that the page names.
 */
const START_SCRIPT = `const start=document.getElementById("prove-start");start.hidden=false;
start.addEventListener("click",()=>{start.disabled=true;const load=document.createElement("script");load.type="module";
load.src=start.dataset.src;load.integrity=start.dataset.integrity;
load.addEventListener("error",()=>{document.getElementById("prove-says").textContent="Nothing is proven: the module was not loaded, or has another hash than this page names.";start.disabled=false});
document.body.append(load)});`;
const START_SCRIPT_HASH = `sha256-${createHash("sha256").update(START_SCRIPT).digest("base64")}`;

const sizeText = ({ text }: ClientFile): string => `${Math.ceil(Buffer.byteLength(text) / 1024)} KiB`;

/**
 * Returns the headers of an endpoint's page.
 * @param base address of the service, for browsers whose Content-Security-Policy does not match loaded scripts by hash
 */
export const endpointHeaders = (file: ClientFile | null, base: string): Record<string, string> =>
  file
    ? scriptHeaders([`'${START_SCRIPT_HASH}'`, `'${file.integrity}'`, `${new URL(base).origin}${PROVE_MODULE}`])
    : scriptHeaders([]);

/**
 * Renders the button on the page of an endpoint that has a card.
 * @param cap id of the endpoint
 * @param computedAt when the card that the page shows was computed; null: the card does not state it
 */
export const provePart = (cap: string, computedAt: string | null, file: ClientFile | null): unknown =>
  file
    ? html`<div class="proof" data-prove data-cap="${cap}"${computedAt === null ? "" : html` data-computed-at="${computedAt}"`}><p>A browser can prove the card of this page: keys, checkpoint, witnesses, its place in the log, its
signature, that the tree holds no newer one, and the letter from the published rows (<a href="/docs/card-bundle#in-a-browser">how, and what it does not prove</a>).</p>
<p><button type="button" id="prove-start" hidden data-src="${PROVE_MODULE}" data-integrity="${file.integrity}">Prove this card in your browser</button> <span id="prove-says" role="status"></span></p>
<p class="soft small">Without script the <a href="/v1/trust/${cap}/bundle">card bundle</a> proves it. The button loads <a href="${PROVE_MODULE}">${PROVE_MODULE}</a> (${sizeText(file)}), sha256
<code>${file.sha256}</code>; the browser runs no other. A service that lies can lie about its module too: compare the hash, or open
<a href="${PROVE_PAGE}">the proof as a page</a> that you saved from a place that you trust.</p>
<script type="module">${raw(START_SCRIPT)}</script></div>`
    : "";

/** Returns the headers of {@link provePage}. */
export const proveHeaders = (file: ClientFile): Record<string, string> => scriptHeaders([`'${file.integrity}'`]);

/**
 * Renders the page at {@link PROVE_PAGE}. It contains the module, so that a saved copy proves saved cards without a
 * network.
 */
export const provePage = (file: ClientFile): string =>
  page({
    title: "Prove a card",
    kind: "doc",
    body: html`<h1>Prove a card</h1>
<p class="lead">A card with all that proves it, checked by this page alone. Save the page (<code>curl -fsS HOST${PROVE_PAGE} > prove.html</code>) and open it from your
own disk: it needs no network for a saved file.</p>
<p class="soft small">The script in this page is <a href="${PROVE_MODULE}">${PROVE_MODULE}</a>, ${sizeText(file)}, sha256 <code>${file.sha256}</code>.
<a href="/docs/card-bundle#in-a-browser">What each step proves, and what not</a>.</p>
<noscript><p class="note">No script runs here. The <a href="/docs/card-bundle">card bundle</a> is proven by the command line and by scripts.</p></noscript>
<div class="proof" data-prove></div>
<script type="module">${raw(file.text)}</script>`,
  });
