import { createHash } from "node:crypto";
import { html, raw } from "hono/html";
import { PROBLEMS, type Problem } from "../http/problem.ts";
import { CSS } from "./css.ts";

const policy = (formAction: "'none'" | "'self'"): string =>
  [
    "default-src 'none'",
    `style-src 'sha256-${createHash("sha256").update(CSS).digest("base64")}'`,
    "base-uri 'none'",
    `form-action ${formAction}`,
    "frame-ancestors 'none'",
  ].join("; ");

/** Nothing runs, nothing is loaded, and only this one style applies. */
const PAGE_CSP = policy("'none'");

export const PAGE_HEADERS: Record<string, string> = {
  "content-security-policy": PAGE_CSP,
  "referrer-policy": "no-referrer",
  // RFC 8631: where a program finds what a person reads here.
  link: '</openapi.json>; rel="service-desc"; type="application/json", </docs/api>; rel="service-doc"; type="text/html", </llms.txt>; rel="alternate"; type="text/plain"',
};

/** The same for a page whose form asks this host. */
export const FORM_HEADERS: Record<string, string> = { ...PAGE_HEADERS, "content-security-policy": policy("'self'") };

export interface Layout {
  title: string;
  body: unknown;
  /** Which width the text has: `doc` for prose, wide for tables. */
  kind?: "wide" | "doc";
}

const NAV: readonly (readonly [string, string])[] = [
  ["/", "Market"],
  ["/leaderboard", "Leaderboard"],
  ["/check-my-listing", "Check my listing"],
  ["/exposure", "Exposure"],
  ["/docs", "Docs"],
];

/** What else people look for, at the foot of every page. */
const MORE: readonly (readonly [string, string])[] = [
  ["/status", "Status of the service"],
  ["/docs/check-before-you-pay", "Check before you pay"],
  ["/docs/how-a-letter-is-made", "How a letter is made"],
  ["/docs/api", "API"],
  ["/docs/integrations", "Asking from your code"],
  ["/docs/listings", "Listings"],
  ["/docs/schedule", "Who is called and paid"],
  ["/docs/corrections", "Corrections and disputes"],
  ["/docs/evidence", "Evidence"],
  ["/docs/audit", "Audit"],
  ["/docs", "All pages"],
];

const links = (list: typeof NAV): unknown =>
  html`<ul>${list.map(([href, name]) => html`<li><a href="${href}">${name}</a></li>`)}</ul>`;

/** A whole page. `body` is made by `html`, so text in it is escaped. */
export function page({ title, body, kind = "wide" }: Layout): string {
  return String(html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title><style>${raw(CSS)}</style></head>
<body><a class="skip" href="#main">Skip to the content</a>
<header class="mast"><div><a class="brand" href="/">Touchstone</a>
<nav aria-label="Main">${links(NAV)}</nav></div></header>
<main id="main" tabindex="-1"${kind === "doc" ? raw(' class="doc"') : ""}>${body}</main>
<footer><div>A public record of what happened when paid HTTP endpoints were paid. UNRATED means unknown, not bad.
<nav aria-label="More">${links(MORE)}</nav></div></footer>
</body></html>
`);
}

/** A problem for a person: what a problem document says, as a page. */
export function errorPage(problem: Problem): string {
  const { status, title } = PROBLEMS[problem.code];
  return page({
    title: `${status}: ${title}`,
    body: html`<h1>${title}</h1><p>${problem.message}</p><p class="soft">${status}</p>`,
  });
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Text as it may stand between tags and in quoted attributes. For rows by the hundred; elsewhere `html` escapes. */
export const escapeHtml = (text: string): string =>
  /[&<>"']/.test(text) ? text.replace(/[&<>"']/g, (char) => ESCAPES[char]!) : text;
