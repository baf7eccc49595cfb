/**
 * Headers that are dropped from a caller's headers: those of one connection (RFC 9110 section 7.6.1), and those that
 * only egress sets.
 */
const NOT_FORWARDED = new Set([
  "accept-encoding",
  "connection",
  "content-length",
  "expect",
  "host",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/**
 * Headers that are sent again after a redirect. Payment, authorization and cookies were meant for the first host only.
 */
const KEPT_AFTER_REDIRECT = new Set(
  "accept accept-encoding accept-language connection sec-fetch-mode user-agent".split(" "),
);

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/**
 * Matches the values of headers that are sent: tab, printable ASCII and obs-text (RFC 9110 section 5.5). CR or LF would
 * begin another header or request.
 */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

type HeaderLines = readonly (readonly [name: string, value: string])[];

/** Headers to send before and after the caller's headers, in order. A caller's header replaces one of the same name. */
export interface HeaderTemplate {
  before: HeaderLines;
  after: HeaderLines;
}

/** Headers of a request that names its sender in User-Agent and accepts only bodies that are not compressed. */
export const declaredHeaders = (userAgent: string): HeaderTemplate => ({
  before: [["user-agent", userAgent]],
  after: [["accept-encoding", "identity"]],
});

/**
 * Headers that Node's built-in fetch sends, with its names and in its order (equal in Node 20, 22 and 24). The stock
 * clients of the payment protocols use that fetch. To such a request servers may send compressed bodies, which
 * reading.ts decodes within a bound.
 */
export const stockHeaders = (tls: boolean): HeaderTemplate => ({
  before: [["connection", "keep-alive"]],
  after: [
    ["accept", "*/*"],
    ["accept-language", "*"],
    ["sec-fetch-mode", "cors"],
    ["user-agent", "node"],
    ["accept-encoding", tls ? "br, gzip, deflate" : "gzip, deflate"],
  ],
});

/** The headers to send, in order and with the spelling of their names; or why they are refused. */
export type PreparedHeaders = { ok: true; headers: Map<string, string> } | { ok: false; says: string };

/** Puts a caller's headers, without those that egress sets, into a template. Refuses an unsafe name or value. */
export function prepareHeaders(callerHeaders: Record<string, string>, template: HeaderTemplate): PreparedHeaders {
  const lines = new Map<string, readonly [string, string]>();
  for (const line of template.before) lines.set(line[0], line);
  for (const [name, value] of Object.entries(callerHeaders)) {
    if (!HEADER_NAME.test(name)) return { ok: false, says: `${JSON.stringify(name)} is not a header name` };
    if (!HEADER_VALUE.test(value))
      return { ok: false, says: `header ${name} holds CR, LF, NUL or another unsafe character` };
    const key = name.toLowerCase();
    if (!NOT_FORWARDED.has(key)) lines.set(key, [name, value]);
  }
  for (const line of template.after) if (!lines.has(line[0])) lines.set(line[0], line);
  return { ok: true, headers: new Map(lines.values()) };
}

export const headersAfterRedirect = (headers: Map<string, string>): Map<string, string> =>
  new Map([...headers].filter(([name]) => KEPT_AFTER_REDIRECT.has(name.toLowerCase())));

/** Converts Node's flat list of names and values: names in lower case, repeated headers joined, set-cookie left out. */
export function answerHeaders(raw: readonly string[]): Record<string, string> {
  const headers = new Map<string, string>();
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    const value = raw[i + 1]!;
    if (name === "set-cookie") continue;
    const earlierValue = headers.get(name);
    headers.set(name, earlierValue === undefined ? value : `${earlierValue}, ${value}`);
  }
  // Assigning a header named __proto__ to an object would set the object's prototype.
  return Object.fromEntries(headers);
}

/**
 * Returns the size of header lines on the wire, including separators. The cap of Node's parser counts only names and
 * values.
 */
export const headerBytesOf = (raw: readonly string[]): number => raw.reduce((sum, text) => sum + text.length + 2, 0);

/**
 * Returns the milliseconds to wait by a Retry-After header (RFC 9110 section 10.2.3), which is a number of seconds or
 * an HTTP date; null for a header that is absent or malformed.
 * @param now the current time, ms since 1970
 */
export function retryAfterMs(header: string | undefined, now: number): number | null {
  if (header === undefined) return null;
  const text = header.trim();
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1_000;
  const timeMs = /^[A-Za-z]{3}, \d{2} [A-Za-z]{3} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(text)
    ? Date.parse(text)
    : Number.NaN;
  return Number.isNaN(timeMs) ? null : Math.max(0, timeMs - now);
}
