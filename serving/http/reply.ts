import { FastResponse } from "srvx";
import { sha256hex } from "../../infra/canonical.ts";
import { FORM_HEADERS } from "../pages/layout.ts";
import { OPEN_HEADERS } from "./open.ts";
import { Problem } from "./problem.ts";

const OPEN_HEADER_LINES = Object.entries(OPEN_HEADERS);

/** The part of a request that conditional answers need. */
export interface ConditionalRequest {
  headers: Headers;
}

/** Returns a strong ETag from a hash of a text. */
export const etagOfText = (text: string): string => `"${sha256hex(text).slice(0, 32)}"`;

/**
 * Returns true if If-None-Match matches an ETag, by weak comparison (RFC 9110 section 13.1.2). Returns false if it does
 * not, or if the header is absent.
 */
export function matchesEtag(request: ConditionalRequest, etag: string): boolean {
  const header = request.headers.get("if-none-match");
  if (header === null) return false;
  if (header.trim() === "*") return true;
  return header.split(",").some((tag) => tag.trim().replace(/^W\//, "") === etag);
}

/**
 * Returns true if If-Modified-Since shows that the client has the object. Returns false if it does not, and also if it
 * is absent or If-None-Match is present (RFC 9110 section 13.1.3). Only for objects that never change, since the header
 * has a resolution of one second.
 */
export function isUnmodifiedSince(request: ConditionalRequest, modifiedAt: Date): boolean {
  const since = Date.parse(request.headers.get("if-modified-since") ?? "");
  return !request.headers.has("if-none-match") && Math.floor(modifiedAt.getTime() / 1000) * 1000 <= since;
}

/** Media type, Cache-Control, ETag and further headers of an answer. */
export interface Representation {
  type: string;
  cache: string;
  etag?: string;
  headers?: Record<string, string>;
}

/** Returns a 200 with a body, or a 304 when the client has it already. */
export function reply(
  request: ConditionalRequest,
  body: string | Uint8Array | ReadableStream | null,
  { type, cache, etag, headers }: Representation,
): Response {
  const headerLines: [string, string][] = [...OPEN_HEADER_LINES, ["cache-control", cache]];
  for (const name in headers) headerLines.push([name, headers[name]!]);
  if (etag !== undefined) headerLines.push(["etag", etag]);
  if (etag !== undefined && matchesEtag(request, etag))
    return new FastResponse(null, { status: 304, headers: headerLines });
  headerLines.push(["content-type", type]);
  return new FastResponse(body, { status: 200, headers: headerLines });
}

export const JSON_TYPE = "application/json";
export const NDJSON_TYPE = "application/x-ndjson";
export const HTML_TYPE = "text/html; charset=utf-8";
export const TEXT_TYPE = "text/plain; charset=utf-8";

/** Returns a JSON response that must not be cached. */
export const uncachedJson = (value: object, status: number, headers: Record<string, string>): Response =>
  new FastResponse(JSON.stringify(value), {
    status,
    headers: [
      ...OPEN_HEADER_LINES,
      ["cache-control", "no-store"],
      ["content-type", JSON_TYPE],
      ...Object.entries(headers),
    ],
  });

/** Refuses a form that was submitted from a page of another site. @throws Problem bad_request */
export function refuseOtherSites({ headers }: { headers: Headers }): void {
  if (headers.get("sec-fetch-site") !== "cross-site") return;
  throw new Problem("bad_request", "the form was sent from another site's page");
}

/** Returns the page that answers a submitted form, which must not be cached. */
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
