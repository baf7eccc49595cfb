import { FastResponse } from "srvx";
import { sha256hex } from "../../infra/canonical.ts";
import { FORM_HEADERS } from "../pages/layout.ts";
import { Problem } from "./problem.ts";

/** Headers of everything that may be read from anywhere: there are no credentials to protect. */
const OPEN: readonly [string, string][] = [
  ["x-content-type-options", "nosniff"],
  ["access-control-allow-origin", "*"],
];

/** The part of a request that decides between 200 and 304. */
export interface Conditional {
  headers: Headers;
}

/** Strong ETag of a text that is made anew for each answer. */
export const etagOfText = (text: string): string => `"${sha256hex(text).slice(0, 32)}"`;

/** Does If-None-Match name this representation? Weak comparison (RFC 9110 section 13.1.2). */
export function matchesEtag(request: Conditional, etag: string): boolean {
  const header = request.headers.get("if-none-match");
  if (header === null) return false;
  if (header.trim() === "*") return true;
  return header.split(",").some((one) => one.trim().replace(/^W\//, "") === etag);
}

/**
 * Does If-Modified-Since say that the client has it? Only without If-None-Match (RFC 9110 section 13.1.3), and only to be
 * asked of what never changes: a second is too long a time for what is swapped.
 */
export function notModifiedSince(request: Conditional, modifiedAt: Date): boolean {
  const since = Date.parse(request.headers.get("if-modified-since") ?? "");
  return !request.headers.has("if-none-match") && Math.floor(modifiedAt.getTime() / 1000) * 1000 <= since;
}

export interface Representation {
  type: string;
  cache: string;
  etag?: string;
  headers?: Record<string, string>;
}

/** A 200 with these bytes, or a 304 when the client holds them already. */
export function reply(
  request: Conditional,
  body: string | Uint8Array | ReadableStream | null,
  { type, cache, etag, headers }: Representation,
): Response {
  const all: [string, string][] = [...OPEN, ["cache-control", cache]];
  for (const name in headers) all.push([name, headers[name]!]);
  if (etag !== undefined) all.push(["etag", etag]);
  if (etag !== undefined && matchesEtag(request, etag)) return new FastResponse(null, { status: 304, headers: all });
  all.push(["content-type", type]);
  return new FastResponse(body, { status: 200, headers: all });
}

export const JSON_TYPE = "application/json";
export const NDJSON_TYPE = "application/x-ndjson";
export const HTML_TYPE = "text/html; charset=utf-8";
export const TEXT_TYPE = "text/plain; charset=utf-8";

/** JSON that was made for this request alone and is kept by nobody. */
export const uncachedJson = (value: object, status: number, headers: Record<string, string>): Response =>
  new FastResponse(JSON.stringify(value), {
    status,
    headers: [...OPEN, ["cache-control", "no-store"], ["content-type", JSON_TYPE], ...Object.entries(headers)],
  });

/** A form that makes us do something, so another site's page may not have its readers send it. @throws Problem */
export function refuseOtherSites({ headers }: { headers: Headers }): void {
  if (headers.get("sec-fetch-site") !== "cross-site") return;
  throw new Problem("bad_request", "the form was sent from another site's page");
}

/** The answer to a form that was sent: a page with the form on it, kept by nobody. */
export const formAnswer = (text: string, status: number, headers: Record<string, string>): Response =>
  new FastResponse(text, {
    status,
    headers: {
      "content-type": HTML_TYPE,
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      ...FORM_HEADERS,
      ...headers,
    },
  });
