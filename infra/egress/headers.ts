/** Lines that belong to one connection (RFC 9110 section 7.6.1) or that we alone set; a caller's are dropped. */
const OURS = new Set([
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

/** What a redirect's next host may see. Payment, authorization and cookies were meant for the first one only. */
const AFTER_REDIRECT = new Set(
  "accept accept-encoding accept-language connection sec-fetch-mode user-agent".split(" "),
);

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Tab, printable ASCII and obs-text: CR, LF and NUL would start a header, a request or nothing (RFC 9110 5.5). */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

type Lines = readonly (readonly [name: string, value: string])[];

/** Lines that stand before and after a caller's own, in this order; where the caller has a name too, its line counts. */
export interface Dress {
  before: Lines;
  after: Lines;
}

/** A request that says who sends it, and takes a body as it is. */
export const declaredDress = (userAgent: string): Dress => ({
  before: [["user-agent", userAgent]],
  after: [["accept-encoding", "identity"]],
});

/**
 * What Node's own fetch sends, name for name and in its order (the same in Node 20, 22 and 24): the ground that the
 * stock clients of the payment protocols stand on. Bodies then come coded, which reading.ts bounds.
 */
export const stockDress = (tls: boolean): Dress => ({
  before: [["connection", "keep-alive"]],
  after: [
    ["accept", "*/*"],
    ["accept-language", "*"],
    ["sec-fetch-mode", "cors"],
    ["user-agent", "node"],
    ["accept-encoding", tls ? "br, gzip, deflate" : "gzip, deflate"],
  ],
});

/** Names as they are sent. */
export type Prepared = { ok: true; headers: Map<string, string> } | { ok: false; says: string };

/** A caller's headers in a dress, without those that are ours to set; refused when a name or value is unsafe. */
export function prepareHeaders(given: Record<string, string>, dress: Dress): Prepared {
  const lines = new Map<string, readonly [string, string]>();
  for (const line of dress.before) lines.set(line[0], line);
  for (const [name, value] of Object.entries(given)) {
    if (!TOKEN.test(name)) return { ok: false, says: `${JSON.stringify(name)} is not a header name` };
    if (!VALUE.test(value)) return { ok: false, says: `header ${name} holds CR, LF, NUL or another unsafe character` };
    const key = name.toLowerCase();
    if (!OURS.has(key)) lines.set(key, [name, value]);
  }
  for (const line of dress.after) if (!lines.has(line[0])) lines.set(line[0], line);
  return { ok: true, headers: new Map(lines.values()) };
}

export const afterRedirect = (headers: Map<string, string>): Map<string, string> =>
  new Map([...headers].filter(([name]) => AFTER_REDIRECT.has(name.toLowerCase())));

/** Node's flat list of names and values as the contract has it: lower case, repeated ones joined, no set-cookie. */
export function answerHeaders(raw: readonly string[]): Record<string, string> {
  const headers = new Map<string, string>();
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    const value = raw[i + 1]!;
    if (name === "set-cookie") continue;
    const before = headers.get(name);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  // Not by assignment: a stranger's header may be called __proto__.
  return Object.fromEntries(headers);
}

/** Size of header lines as written. The parser's own cap counts names and values, not what is between them. */
export const headBytes = (raw: readonly string[]): number => raw.reduce((sum, text) => sum + text.length + 2, 0);

/** Milliseconds of a Retry-After header (RFC 9110 section 10.2.3): seconds or an HTTP date; null for none and nonsense. */
export function retryAfterMs(header: string | undefined, now: number): number | null {
  if (header === undefined) return null;
  const text = header.trim();
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1_000;
  const at = /^[A-Za-z]{3}, \d{2} [A-Za-z]{3} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? null : Math.max(0, at - now);
}
