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
const AFTER_REDIRECT = new Set(["accept", "accept-language", "user-agent"]);

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Tab, printable ASCII and obs-text: CR, LF and NUL would start a header, a request or nothing (RFC 9110 5.5). */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

export type Prepared = { ok: true; headers: Map<string, string> } | { ok: false; says: string };

/** A caller's headers, in lower case and without those that are ours to set; refused when a name or value is unsafe. */
export function prepareHeaders(given: Record<string, string>, userAgent: string): Prepared {
  const headers = new Map([["user-agent", userAgent]]);
  for (const [name, value] of Object.entries(given)) {
    if (!TOKEN.test(name)) return { ok: false, says: `${JSON.stringify(name)} is not a header name` };
    if (!VALUE.test(value)) return { ok: false, says: `header ${name} holds CR, LF, NUL or another unsafe character` };
    const key = name.toLowerCase();
    if (!OURS.has(key)) headers.set(key, value);
  }
  return { ok: true, headers };
}

export const afterRedirect = (headers: Map<string, string>): Map<string, string> =>
  new Map([...headers].filter(([name]) => AFTER_REDIRECT.has(name)));

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
