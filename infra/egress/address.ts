import { createHash } from "node:crypto";
import { Resolver } from "node:dns/promises";
import { createServer, isIP } from "node:net";
import { networkInterfaces } from "node:os";
import ipaddr from "ipaddr.js";
import { parseUrl } from "../url.ts";
import type { RefusalReason } from "./egress.ts";

export type Address = ipaddr.IPv4 | ipaddr.IPv6;
/** A network: an address in it, and the length of its prefix in bits. */
export type Range = [Address, number];

export interface AddressRules {
  /** Development switch: addresses of this machine may be fetched. */
  allowLoopback: boolean;
  /** Our own addresses and networks, public ones too; they are never connected to. */
  own: Range[];
}

export type AddressVerdict = { ok: true } | { ok: false; reason: "address" | "own_address"; says: string };

const parseRange = (text: string): Range => ipaddr.parseCIDR(text);

/** Azure's WireServer (metadata, health, keys): a public address that leads to the host of a virtual machine. */
const AZURE_HOST = parseRange("168.63.129.16/32");
const GLOBAL_V6 = parseRange("2000::/3");
/**
 * Networks inside 2000::/3 that are not the public internet (IANA special registry): protocol assignments such as
 * Teredo, ORCHID and benchmarks, then 6to4, then two networks for documentation.
 */
const SPECIAL_V6 = ["2001::/23", "2002::/16", "2001:db8::/32", "3fff::/20"].map(parseRange);
/**
 * Forms of IPv6 addresses that hold an IPv4 address to which the packets go: v4-mapped ones, and the well-known NAT64
 * prefix (RFC 6052).
 */
const V4_EMBEDDING = ["::ffff:0:0/96", "64:ff9b::/96"].map(parseRange);

const isInRange = (address: Address, [network, bits]: Range): boolean =>
  address.kind() === network.kind() && address.match(network, bits);

/**
 * Parses an address. For v4-mapped and NAT64 forms it returns the IPv4 address inside. Null when the text is not an
 * address, or has a zone (`fe80::1%eth0`), which no stranger may name.
 */
export function parseAddress(text: string): Address | null {
  const family = isIP(text);
  if (family === 0 || text.includes("%")) return null;
  // WHATWG URL first rewrites the dotted form `::8.8.8.8`, which ipaddr.js would read as v4-mapped, while the network
  // stack does not.
  const address = ipaddr.parse(family === 6 ? new URL(`http://[${text}]`).hostname.slice(1, -1) : text);
  if (!V4_EMBEDDING.some((form) => isInRange(address, form))) return address;
  return new ipaddr.IPv4(address.toByteArray().slice(12));
}

/** Parses an address or a network in CIDR form, as an operator writes them; null for any other text. */
export function parseNetwork(text: string): Range | null {
  // ipaddr.js alone would parse "10.0.0" as 10.0.0.0.
  if (!isIP(text.split("/", 1)[0]!)) return null;
  try {
    if (text.includes("/")) return ipaddr.parseCIDR(text);
    const address = ipaddr.process(text);
    return [address, address.kind() === "ipv4" ? 32 : 128];
  } catch {
    return null;
  }
}

/**
 * Returns the key of an address's network: a whole IPv4 address, or the 56 bits of IPv6 that one household or machine
 * gets.
 */
export const networkKey = (address: Address): string =>
  address.kind() === "ipv4"
    ? address.toString()
    : `${Buffer.from(address.toByteArray().slice(0, 7)).toString("hex")}/56`;

/**
 * Returns true if both texts are one IP address, even if written in different forms. Returns false if they are two, and
 * also if one of them is no address.
 */
export function isSameAddress(a: string | undefined, b: string): boolean {
  const left = a === undefined ? null : parseAddress(a);
  const right = parseAddress(b);
  return left !== null && right !== null && left.toString() === right.toString();
}

/**
 * Reports whether this is a public unicast address. The check states what is allowed, since the lists of special
 * addresses in libraries are incomplete: ipaddr.js 2.5 classifies `::7f00:1` as "unicast".
 */
function isPublic(address: Address): boolean {
  if (address instanceof ipaddr.IPv4) return address.range() === "unicast" && !isInRange(address, AZURE_HOST);
  return isInRange(address, GLOBAL_V6) && !SPECIAL_V6.some((special) => isInRange(address, special));
}

/** Decides whether this process may connect to an IP address that a stranger's url or name led to. */
export function validateAddress(text: string, rules: AddressRules): AddressVerdict {
  const address = parseAddress(text);
  if (address === null) return { ok: false, reason: "address", says: `${text} is not an address` };
  if (address.range() === "loopback" && rules.allowLoopback) return { ok: true };
  if (!isPublic(address)) return { ok: false, reason: "address", says: `${text} is no public address` };
  if (!rules.own.some((own) => isInRange(address, own))) return { ok: true };
  return { ok: false, reason: "own_address", says: `${text} is an address of ours` };
}

/**
 * Returns our own addresses: those of this machine's interfaces and the configured ones, since a public address of ours
 * may be on no interface.
 * @throws TypeError when a configured one is neither an address nor a network in CIDR form.
 */
export function ownRanges(configured: readonly string[]): Range[] {
  const interfaces = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const texts = [...configured, ...interfaces.map((networkInterface) => networkInterface.address.replace(/%.*$/, ""))];
  return texts.map((text) => {
    if (ipaddr.isValidCIDR(text)) return ipaddr.parseCIDR(text);
    const address = parseAddress(text);
    if (address === null) throw new TypeError(`own address '${text}' is neither an address nor a network`);
    return [address, address.kind() === "ipv4" ? 32 : 128];
  });
}

/** Source addresses of connections, on this machine. If a list is empty, the system chooses. */
export interface Sources {
  /** For requests that name us in User-Agent. */
  declared: readonly string[];
  /** For requests with the headers of Node's built-in fetch. */
  stock: readonly string[];
}

/**
 * Picks the source address for a connection to `address` by a hash of `key`, among those of its family (IPv4 or IPv6).
 * Undefined when there is none of that family: then the system chooses.
 */
export function pickSource(sources: readonly string[], address: string, key: string): string | undefined {
  const sameFamily = sources.filter((source) => isIP(source) === isIP(address));
  if (sameFamily.length === 0) return undefined;
  return sameFamily[createHash("sha256").update(key).digest().readUInt32BE() % sameFamily.length];
}

/** Tries to bind a socket to `address`. Returns null when it can be a source address, else the system's error code. */
export function whyNotBindable(address: string): Promise<string | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ host: address, port: 0, exclusive: true }, () => server.close(() => resolve(null)));
  });
}

/** Finds all addresses of a name, in any order. Rejects with an `Error` that may have a `code`. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/**
 * Resolver for strangers' names: asks the name servers and reads neither the hosts file nor search domains, so a name
 * means the same here as anywhere. It does not use getaddrinfo, since a slow name server would occupy its four threads.
 * `localhost` and names under it are the loopback addresses (RFC 6761 section 6.3); only development lets them through.
 * @param servers `address:port` of the name servers to ask; default: the machine's.
 */
export function createSystemResolver(servers?: readonly string[]): Resolve {
  const resolver = new Resolver({ timeout: 1_000, tries: 2 });
  if (servers) resolver.setServers(servers);
  return async (host) => {
    if (host === "localhost" || host.endsWith(".localhost")) return ["127.0.0.1", "::1"];
    const [v4, v6] = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    const addresses = [v4, v6].flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
    if (addresses.length === 0 && v4.status === "rejected") throw v4.reason;
    return addresses;
  };
}

/**
 * Makes a resolver for development: it resolves every name to one address, at which a server on this machine answers
 * in place of the sellers.
 */
export const resolveTo =
  (address: string): Resolve =>
  async () => [address];

export interface UrlRules extends AddressRules {
  /** Allowed ports besides 80 and 443. */
  extraPorts: readonly number[];
}

/** Host and port of a url, before its name is resolved. */
export interface Target {
  url: URL;
  /** True for https, false for http. */
  tls: boolean;
  /** Lower case, no trailing dot, no brackets. It is resolved, sent as SNI and, with the port, as Host. */
  host: string;
  port: number;
  /** True when the host is an IP address, so that no name has to be resolved. False when it is a name. */
  literal: boolean;
}

type UrlVerdict = { ok: true; target: Target } | { ok: false; reason: RefusalReason; says: string };

const MAX_URL_CHARS = 8_192;

/**
 * Top-level names of local networks, which are never names of the internet (RFC 6761, 6762, 7686, 8375; `.internal` by
 * ICANN).
 */
const LOCAL_NAMES = ["local", "internal", "onion", "home.arpa"];
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

const refuse = (reason: RefusalReason, says: string): UrlVerdict => ({ ok: false, reason, says });

const isUnder = (host: string, name: string): boolean => host === name || host.endsWith(`.${name}`);

/** Checks a host name that is not an address. Returns the refusal, or null when the name may be resolved. */
function validateName(host: string, allowLoopback: boolean): UrlVerdict | null {
  const labels = host.split(".");
  if (host.length > 253 || !labels.every((label) => LABEL.test(label)))
    return refuse("host", `${host} is not a host name`);
  const localName = LOCAL_NAMES.find((name) => isUnder(host, name));
  if (localName !== undefined) return refuse("host", `names under .${localName} are not on the internet`);
  if (allowLoopback) return null;
  if (isUnder(host, "localhost")) return refuse("host", "localhost is not on the internet");
  if (labels.length === 1) return refuse("host", `${host} is a plain name, not one of the internet`);
  return null;
}

/**
 * Validates a url by its text alone. The WHATWG parser first turns decimal, octal, hex, short and full-width hosts
 * into the address they stand for; the checks then see only that form.
 */
export function validateUrl(text: string, rules: UrlRules): UrlVerdict {
  if (text.length > MAX_URL_CHARS) return refuse("bad_url", `longer than ${MAX_URL_CHARS} characters`);
  // The parser drops tabs and line ends silently, so another url than the given one would be fetched.
  if (/\p{Cc}/u.test(text)) return refuse("bad_url", "control characters in the url");
  const url = parseUrl(text);
  if (url === null) return refuse("bad_url", "not a url");
  if (url.protocol !== "http:" && url.protocol !== "https:")
    return refuse("scheme", `${url.protocol} is not http or https`);
  if (url.username !== "" || url.password !== "") return refuse("userinfo", "user or password in the url");
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
  const isPortAllowed =
    port === 80 || port === 443 || rules.extraPorts.includes(port) || (rules.allowLoopback && port > 0);
  if (!isPortAllowed) return refuse("port", `port ${port} is not fetched`);
  return { ok: true, target: { url, tls, host, port, literal } };
}
