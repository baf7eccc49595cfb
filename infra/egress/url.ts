import { isIP } from "node:net";
import { type AddressRules, validateAddress } from "./address.ts";
import type { RefusalReason } from "./egress.ts";

export interface UrlRules extends AddressRules {
  /** Besides 80 and 443. */
  extraPorts: readonly number[];
}

/** Where a url leads, as far as it says so itself. */
export interface Target {
  url: URL;
  tls: boolean;
  /** Lower case, no trailing dot, no brackets: what is resolved, sent as SNI and, with the port, as Host. */
  host: string;
  port: number;
  /** The host is an address and needs no resolver. */
  literal: boolean;
}

export type UrlVerdict = { ok: true; target: Target } | { ok: false; reason: RefusalReason; says: string };

export const MAX_URL_CHARS = 8_192;

/** Names that lead into a network and never across the internet (RFC 6761, 6762, 7686, 8375; `.internal` by ICANN). */
const LOCAL_NAMES = ["local", "internal", "onion", "home.arpa"];
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

const no = (reason: RefusalReason, says: string): UrlVerdict => ({ ok: false, reason, says });

const isUnder = (host: string, name: string): boolean => host === name || host.endsWith(`.${name}`);

function validateName(host: string, allowLoopback: boolean): UrlVerdict | null {
  const labels = host.split(".");
  if (host.length > 253 || !labels.every((label) => LABEL.test(label))) return no("host", `${host} is not a host name`);
  const local = LOCAL_NAMES.find((name) => isUnder(host, name));
  if (local !== undefined) return no("host", `names under .${local} are not on the internet`);
  if (allowLoopback) return null;
  if (isUnder(host, "localhost")) return no("host", "localhost is not on the internet");
  if (labels.length === 1) return no("host", `${host} is a plain name, not one of the internet`);
  return null;
}

/**
 * Validate a url by its text alone. WHATWG parsing comes first: it turns decimal, octal, hex, short and full-width hosts
 * into the address they mean, so that there is one form left to look at.
 */
export function validateUrl(text: string, rules: UrlRules): UrlVerdict {
  if (text.length > MAX_URL_CHARS) return no("bad_url", `longer than ${MAX_URL_CHARS} characters`);
  // The parser drops tabs and line ends in silence; what was asked would not be what is fetched.
  if (/\p{Cc}/u.test(text)) return no("bad_url", "control characters in the url");
  if (!URL.canParse(text)) return no("bad_url", "not a url");
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:")
    return no("scheme", `${url.protocol} is not http or https`);
  if (url.username !== "" || url.password !== "") return no("userinfo", "user or password in the url");
  const tls = url.protocol === "https:";
  const port = url.port === "" ? (tls ? 443 : 80) : Number(url.port);
  const host = url.hostname.replace(/\.$/, "").replace(/^\[(.*)\]$/, "$1");
  const literal = isIP(host) !== 0;
  if (literal) {
    const verdict = validateAddress(host, rules);
    if (!verdict.ok) return verdict;
  } else {
    const refusal = validateName(host, rules.allowLoopback);
    if (refusal) return refusal;
  }
  const allowed = port === 80 || port === 443 || rules.extraPorts.includes(port) || (rules.allowLoopback && port > 0);
  if (!allowed) return no("port", `port ${port} is not fetched`);
  return { ok: true, target: { url, tls, host, port, literal } };
}
