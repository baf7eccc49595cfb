import { createHash } from "node:crypto";
import { html, raw } from "hono/html";
import { PROBLEMS, type Problem } from "../http/problem.ts";
import { CSS } from "./css.ts";

const contentSecurityPolicy = (formAction: "'none'" | "'self'", scripts: readonly string[] = []): string =>
  [
    "default-src 'none'",
    ...(scripts.length > 0 ? [`script-src ${scripts.join(" ")}`, "connect-src 'self'"] : []),
    `style-src 'sha256-${createHash("sha256").update(CSS).digest("base64")}'`,
    "base-uri 'none'",
    `form-action ${formAction}`,
    "frame-ancestors 'none'",
  ].join("; ");

/**
 * Policy of pages on which no script runs, nothing is loaded, and only our style sheet applies. Pages that prove a card
 * use {@link scriptHeaders}.
 */
const PAGE_CSP = contentSecurityPolicy("'none'");

export const PAGE_HEADERS: Record<string, string> = {
  "content-security-policy": PAGE_CSP,
  "referrer-policy": "no-referrer",
  // RFC 8631: where a program finds the machine-readable form of the service.
  link: '</openapi.json>; rel="service-desc"; type="application/json", </docs/api>; rel="service-doc"; type="text/html", </llms.txt>; rel="alternate"; type="text/plain"',
};

/** Headers for a page with a form that is sent to this host. */
export const FORM_HEADERS: Record<string, string> = {
  ...PAGE_HEADERS,
  "content-security-policy": contentSecurityPolicy("'self'"),
};

/**
 * Returns the headers for a page that runs only these scripts, which may send requests to this host.
 * @param scripts sources of CSP's script-src
 */
export const scriptHeaders = (scripts: readonly string[]): Record<string, string> => ({
  ...PAGE_HEADERS,
  "content-security-policy": contentSecurityPolicy("'none'", scripts),
});

export interface Layout {
  title: string;
  body: unknown;
  /** Width of the text: `doc` for prose, `wide` for tables. */
  kind?: "wide" | "doc";
}

const NAV: readonly (readonly [string, string])[] = [
  ["/", "Market"],
  ["/leaderboard", "Leaderboard"],
  ["/check-my-listing", "Check my listing"],
  ["/exposure", "Exposure"],
  ["/docs", "Docs"],
];

/** Links at the foot of every page. */
const FOOT_LINKS: readonly (readonly [string, string])[] = [
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

/** Returns a whole page. `body` must be made by `html`, which escapes text. */
export function page({ title, body, kind = "wide" }: Layout): string {
  return String(html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title><style>${raw(CSS)}</style></head>
<body><a class="skip" href="#main">Skip to the content</a>
<header class="mast"><div><a class="brand" href="/">Touchstone</a>
<nav aria-label="Main">${links(NAV)}</nav></div></header>
<main id="main" tabindex="-1"${kind === "doc" ? raw(' class="doc"') : ""}>${body}</main>
<footer><div>A public record of what happened when paid HTTP endpoints were paid. UNRATED means unknown, not bad.
<nav aria-label="More">${links(FOOT_LINKS)}</nav></div></footer>
</body></html>
`);
}

/** Returns a page that shows a problem document (RFC 9457). */
export function errorPage(problem: Problem): string {
  const { status, title } = PROBLEMS[problem.code];
  return page({
    title: `${status}: ${title}`,
    body: html`<h1>${title}</h1><p>${problem.message}</p><p class="soft">${status}</p>`,
  });
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/**
 * Escapes text for use between tags and in quoted attributes. Tables of many rows use it, since it is faster than
 * `html`, which escapes everywhere else.
 */
export const escapeHtml = (text: string): string =>
  /[&<>"']/.test(text) ? text.replace(/[&<>"']/g, (char) => ESCAPES[char]!) : text;
