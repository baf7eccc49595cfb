import { getDomain } from "tldts";
import { Failure } from "../../infra/errors.ts";
import { parseUrl } from "../../infra/url.ts";

/** Longest url that a record may have, in characters (interface, Limits). */
const MAX_URL = 2048;

export class BadUrl extends Failure {
  constructor(
    readonly url: string,
    readonly says: string,
  ) {
    super("usage", `${says}: ${JSON.stringify(url.slice(0, 120))}`);
  }
}

const UNRESERVED = /[A-Za-z0-9\-._~]/;

/** Normalises escapes by RFC 3986 section 6.2.2: escapes in upper case, unreserved characters unescaped. */
const normaliseEscapes = (text: string): string =>
  text.replace(/%[0-9A-Fa-f]{2}/g, (triplet) => {
    const char = String.fromCharCode(Number.parseInt(triplet.slice(1), 16));
    return UNRESERVED.test(char) ? char : triplet.toUpperCase();
  });

function sortQuery(search: string): string {
  const pairs = search.slice(1).split("&").filter(Boolean).map(normaliseEscapes);
  const nameOf = (pair: string) => pair.split("=", 1)[0]!;
  // Array.prototype.sort is stable, so repeated names keep their order.
  pairs.sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : nameOf(a) > nameOf(b) ? 1 : 0));
  return pairs.length ? `?${pairs.join("&")}` : "";
}

/**
 * The dot that may end a host name. A name with it and a name without it mean one host (RFC 3986 section 3.2.2), and
 * egress connects to one server for both. Of several dots at the end none is removed: such a name does not resolve, and
 * if one were removed, normalising the result again would change it.
 */
const ROOT_DOT = /(?<=[^.])\.(?=$|:\d+$)/;

/**
 * Normalises a url to the form that identifies an endpoint (records.md): WHATWG form, without fragment, user info,
 * default port and the dot at the end of the host name, escapes normalised, query pairs sorted by name. http and https
 * stay different. A normalised url is returned unchanged.
 * @throws BadUrl for other schemes, for text that does not parse, and for more than 2,048 characters
 */
export function normaliseUrl(text: string): string {
  if (text.length > MAX_URL) throw new BadUrl(text, `longer than ${MAX_URL} characters`);
  const url = parseUrl(text);
  if (url === null) throw new BadUrl(text, "not a url");
  if (url.protocol !== "http:" && url.protocol !== "https:") throw new BadUrl(text, "not an http or https url");
  const host = url.host.replace(ROOT_DOT, "");
  const normalised = `${url.protocol}//${host}${normaliseEscapes(url.pathname)}${sortQuery(url.search)}`;
  if (normalised.length > MAX_URL) throw new BadUrl(text, `longer than ${MAX_URL} characters once normalised`);
  return normalised;
}

/**
 * Returns the name of the MCP tool that a url's fragment holds, or null. The record need not have such a tool.
 * @throws TypeError for a text that is no url
 */
export function toolInUrl(url: string): string | null {
  const { hash } = new URL(url);
  try {
    return hash.length > 1 ? decodeURIComponent(hash.slice(1)) : null;
  } catch {
    return null;
  }
}

/**
 * Returns host and port of a url that is known to be valid. Use `parseUrl` for text that may be invalid.
 * @throws TypeError
 */
export const hostOf = (url: string): string => new URL(url).host;

/**
 * Returns origin and path of a normalised url, without the query and without one trailing slash. For a url that is not
 * in the record, `check` may return the grade of a url with an equal result, and states `matched: path` then.
 */
export function pathKey(normalised: string): string {
  const query = normalised.indexOf("?");
  const withoutQuery = query < 0 ? normalised : normalised.slice(0, query);
  return withoutQuery.endsWith("/") ? withoutQuery.slice(0, -1) : withoutQuery;
}

/**
 * Returns the registrable domain of a url, by the public suffix list including the suffixes of private companies:
 * `name.vercel.app` is a domain. For a host without a registrable domain (an IP address, a single label) the result
 * is the host with its port, so that two services at one address are distinguished.
 */
export function registrableDomain(url: string): string {
  const { hostname, host } = new URL(url);
  return getDomain(hostname, { allowPrivateDomains: true }) ?? host;
}

/**
 * Returns the domain to which limits on money and shared resources apply, by the public suffix list without the
 * suffixes of private companies. Names under a hosting platform (`name.vercel.app`) cost nothing, so they all count
 * as the platform. Other domains have to be bought. For a host without a domain the result is that of {@link
 * registrableDomain}.
 */
export function platformOf(url: string): string {
  const { hostname, host } = new URL(url);
  return getDomain(hostname, { allowPrivateDomains: false }) ?? host;
}

/**
 * The spending cap of a hosting platform, with all names under it, as a multiple of the cap of one domain. Each name
 * also has the cap of a domain, but since names cost nothing, that cap alone would limit nobody.
 */
export const PLATFORM_CAP_FACTOR = 4;
