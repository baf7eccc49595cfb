import { createHash } from "node:crypto";
import { html, raw } from "hono/html";

/** Colours carry nothing that text does not say. Contrast is at least 4.5 to 1 in both schemes. */
const CSS = `
:root{color-scheme:light dark;--bg:#fff;--fg:#1a1c1e;--soft:#5a6068;--line:#d5d9de;--card:#f5f6f8;--link:#0b57b0;
--a:#1b6e36;--b:#2f6b8a;--c:#8a5a00;--d:#a04312;--f:#a61b1b;--u:#5a6068}
@media (prefers-color-scheme:dark){:root{--bg:#121416;--fg:#e8eaed;--soft:#a3abb5;--line:#343a41;--card:#1b1f23;--link:#8ab8ff;
--a:#7dd69a;--b:#8cc7ea;--c:#efbf62;--d:#f59b6c;--f:#ff9a94;--u:#a3abb5}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
header,main,footer{max-width:92rem;margin:0 auto;padding:1rem 1.25rem}
header{display:flex;gap:1.25rem;align-items:baseline;flex-wrap:wrap;border-bottom:1px solid var(--line)}
header strong{font-size:1.1rem}
footer{color:var(--soft);border-top:1px solid var(--line);margin-top:2rem}
a{color:var(--link)}
h1{font-size:1.6rem;line-height:1.25;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin-top:2rem}
.soft{color:var(--soft)}
.note{background:var(--card);border-left:4px solid var(--c);padding:.6rem .9rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem}
caption{text-align:left;color:var(--soft);padding:.4rem 0}
th,td{text-align:left;vertical-align:top;padding:.45rem .6rem;border-bottom:1px solid var(--line)}
th{font-weight:600;white-space:nowrap}
td.why{min-width:24rem}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code,pre{font:.88em/1.45 ui-monospace,monospace;overflow-wrap:anywhere}
pre{background:var(--card);padding:.8rem;overflow-x:auto;white-space:pre-wrap}
.grade{display:inline-block;min-width:2.1em;padding:.05em .4em;border:2px solid currentColor;border-radius:.35em;font-weight:700;text-align:center}
.big{font-size:1.7rem}
.A{color:var(--a)}.B{color:var(--b)}.C{color:var(--c)}.D{color:var(--d)}.F{color:var(--f)}.UNRATED{color:var(--u)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.25rem;margin:0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
svg{max-width:100%;height:auto;color:var(--fg)}
svg .track{stroke:var(--line)}svg .bound{stroke:var(--b)}svg .point{fill:var(--fg)}svg text{fill:var(--fg);font:13px system-ui,sans-serif}
`;

/** Nothing runs, nothing is loaded, and only this one style applies. */
export const PAGE_CSP = [
  "default-src 'none'",
  `style-src 'sha256-${createHash("sha256").update(CSS).digest("base64")}'`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

export const PAGE_HEADERS: Record<string, string> = {
  "content-security-policy": PAGE_CSP,
  "referrer-policy": "no-referrer",
};

export interface Layout {
  title: string;
  body: unknown;
}

/** A whole page. `body` is made by `html`, so text in it is escaped. */
export function page({ title, body }: Layout): string {
  return String(html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title><style>${raw(CSS)}</style></head>
<body><header><strong><a href="/">Touchstone</a></strong>
<nav aria-label="Main"><a href="/">Market</a> · <a href="/docs/check-before-you-pay">Check before you pay</a> ·
<a href="/docs/verification-method">How a letter is made</a> · <a href="/docs/api">API</a></nav></header>
<main>${body}</main>
<footer>A public record of what happened when paid HTTP endpoints were paid.
UNRATED means unknown, not bad.</footer></body></html>
`);
}
