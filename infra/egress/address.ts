import { createHash } from "node:crypto";
import { Resolver } from "node:dns/promises";
import { createServer, isIP } from "node:net";
import { networkInterfaces } from "node:os";
import ipaddr from "ipaddr.js";
import { parseUrl } from "../url.ts";
import type { RefusalReason } from "./egress.ts";

export type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Range = [Address, number];

export interface AddressRules {
  /** Development switch: addresses of this machine may be fetched. */
  allowLoopback: boolean;
  /** Our own addresses and networks, public ones too. */
  own: Range[];
}

export type AddressVerdict = { ok: true } | { ok: false; reason: "address" | "own_address"; says: string };

const range = (text: string): Range => ipaddr.parseCIDR(text);

/** Public by number and yet the host of a cloud's virtual machine: Azure's WireServer (metadata, health, keys). */
const AZURE_HOST = range("168.63.129.16/32");
const GLOBAL_V6 = range("2000::/3");
/** Inside 2000::/3 and not the public internet (IANA special registry): Teredo, ORCHID, benchmarks; 6to4; documentation. */
const SPECIAL_V6 = ["2001::/23", "2002::/16", "2001:db8::/32", "3fff::/20"].map(range);
/** Forms that carry an IPv4 address to which the packet will go: v4-mapped and the well-known NAT64 prefix (RFC 6052). */
const CARRIES_V4 = ["::ffff:0:0/96", "64:ff9b::/96"].map(range);

const within = (address: Address, [network, bits]: Range): boolean =>
  address.kind() === network.kind() && address.match(network, bits);

/**
 * What an address really is: the IPv4 inside of mapped and NAT64 forms, else itself. Null when the text is no plain
 * address; a zone (`fe80::1%eth0`) is never one that a stranger may name.
 */
export function parseAddress(text: string): Address | null {
  const family = isIP(text);
  if (family === 0 || text.includes("%")) return null;
  // Through WHATWG first: ipaddr.js reads the dotted `::8.8.8.8` as v4-mapped, the network stack does not.
  const address = ipaddr.parse(family === 6 ? new URL(`http://[${text}]`).hostname.slice(1, -1) : text);
  if (!CARRIES_V4.some((form) => within(address, form))) return address;
  return new ipaddr.IPv4(address.toByteArray().slice(12));
}

/** Whose network it is: IPv4 whole, IPv6 by its first 56 bits, which one household or machine has to itself. */
export const networkKey = (address: Address): string =>
  address.kind() === "ipv4"
    ? address.toString()
    : `${Buffer.from(address.toByteArray().slice(0, 7)).toString("hex")}/56`;

/** Do two texts name one address, whatever their form? */
export function sameAddress(a: string | undefined, b: string): boolean {
  const left = a === undefined ? null : parseAddress(a);
  const right = parseAddress(b);
  return left !== null && right !== null && left.toString() === right.toString();
}

/** An allow-list: public unicast and nothing else. Libraries' deny-lists miss forms (`::7f00:1` is "unicast" to one). */
function isPublic(address: Address): boolean {
  if (address instanceof ipaddr.IPv4) return address.range() === "unicast" && !within(address, AZURE_HOST);
  return within(address, GLOBAL_V6) && !SPECIAL_V6.some((special) => within(address, special));
}

/** May we connect to this address? */
export function validateAddress(text: string, rules: AddressRules): AddressVerdict {
  const address = parseAddress(text);
  if (address === null) return { ok: false, reason: "address", says: `${text} is not an address` };
  if (address.range() === "loopback" && rules.allowLoopback) return { ok: true };
  if (!isPublic(address)) return { ok: false, reason: "address", says: `${text} is no public address` };
  if (!rules.own.some((own) => within(address, own))) return { ok: true };
  return { ok: false, reason: "own_address", says: `${text} is an address of ours` };
}

/**
 * Our own addresses: those configured (what the world sees of us may be on no interface) and those of the interfaces.
 * @throws TypeError when a configured one is neither an address nor a network in CIDR form.
 */
export function ownRanges(configured: readonly string[]): Range[] {
  const interfaces = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const texts = [...configured, ...interfaces.map((face) => face.address.replace(/%.*$/, ""))];
  return texts.map((text) => {
    if (ipaddr.isValidCIDR(text)) return ipaddr.parseCIDR(text);
    const address = parseAddress(text);
    if (address === null) throw new TypeError(`own address '${text}' is neither an address nor a network`);
    return [address, address.kind() === "ipv4" ? 32 : 128];
  });
}

/** Addresses of this machine that connections leave from; empty: the system's choice. */
export interface Sources {
  /** Of requests that say they are ours. */
  declared: readonly string[];
  /** Of those that look like a stock client's. */
  stock: readonly string[];
}

/**
 * The source address for a connection to `address`: of its family, the one that the key picks. Undefined where none of
 * that family is named: the system chooses, as it would without any.
 */
export function pickSource(sources: readonly string[], address: string, key: string): string | undefined {
  const fitting = sources.filter((source) => isIP(source) === isIP(address));
  if (fitting.length === 0) return undefined;
  return fitting[createHash("sha256").update(key).digest().readUInt32BE() % fitting.length];
}

/** Can connections leave from this address? Null, or why not: the system's code. */
export function whyNotOurs(address: string): Promise<string | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ host: address, port: 0, exclusive: true }, () => server.close(() => resolve(null)));
  });
}

/** All addresses of a name, in any order. Rejects with an `Error` that may carry a `code`. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/**
 * Resolver for strangers' names: asks the name servers and reads neither the hosts file nor search domains, so a name
 * means the same here as anywhere. It does not use getaddrinfo, whose four threads a slow name server would hold.
 * `localhost` and names under it are the loopback addresses (RFC 6761 section 6.3); only development lets them through.
 * @param servers `address:port` of the name servers to ask; default: the machine's.
 */
export function systemResolve(servers?: readonly string[]): Resolve {
  const resolver = new Resolver({ timeout: 1_000, tries: 2 });
  if (servers) resolver.setServers(servers);
  return async (host) => {
    if (host === "localhost" || host.endsWith(".localhost")) return ["127.0.0.1", "::1"];
    const [v4, v6] = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    const found = [v4, v6].flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
    if (found.length === 0 && v4.status === "rejected") throw v4.reason;
    return found;
  };
}

/** For development: every name is at this one address, so that a stand-in on this machine answers for all of them. */
export const resolveTo =
  (address: string): Resolve =>
  async () => [address];

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

type UrlVerdict = { ok: true; target: Target } | { ok: false; reason: RefusalReason; says: string };

const MAX_URL_CHARS = 8_192;

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
  const url = parseUrl(text);
  if (url === null) return no("bad_url", "not a url");
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
