import { createHash } from "node:crypto";
import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls, type DetailedPeerCertificate, TLSSocket } from "node:tls";
import {
  type AddressRules,
  isSameAddress,
  parseAddress,
  type Resolve,
  type Target,
  validateAddress,
} from "./address.ts";
import type { Certificate, Limits, RefusalReason, TracedHop } from "./egress.ts";

/**
 * Why there is no connection. refused: the address is not allowed. transport: resolving the stranger's name, connecting
 * or TLS failed. ours: this machine could not try, so the stranger is not at fault.
 */
export type ConnectFault =
  | { fault: "refused"; reason: RefusalReason; says: string }
  | { fault: "transport" | "ours"; says: string };

export type CheckedConnection = { socket: Socket; remoteAddress: string };

/** Largest number of certificates of a chain that are reported; longer chains are cut. */
const MAX_CHAIN_LENGTH = 10;

const certificateName = (subject: DetailedPeerCertificate["subject"] | undefined): string => {
  const { CN, O } = (subject ?? {}) as Record<string, string | string[] | undefined>;
  return [CN ?? O ?? ""].flat().join(", ").slice(0, 200);
};

const certificateTime = (text: string): string => {
  const timeMs = Date.parse(text);
  return Number.isNaN(timeMs) ? "" : new Date(timeMs).toISOString();
};

/** Returns the TLS version and the certificates of a connection; null for a connection without TLS. */
export function tlsOf(socket: Socket): TracedHop["tls"] {
  if (!(socket instanceof TLSSocket)) return null;
  const chain: Certificate[] = [];
  const seenHashes = new Set<string>();
  let certificate: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true);
  while (certificate?.raw && chain.length < MAX_CHAIN_LENGTH) {
    const sha256 = createHash("sha256").update(certificate.raw).digest("hex");
    // A root is its own issuer.
    if (seenHashes.has(sha256)) break;
    seenHashes.add(sha256);
    const { subject, issuer, valid_from, valid_to } = certificate;
    chain.push({
      ...{ sha256, subject: certificateName(subject), issuer: certificateName(issuer) },
      ...{ valid_from: certificateTime(valid_from), valid_to: certificateTime(valid_to) },
    });
    certificate = certificate.issuerCertificate;
  }
  return { protocol: socket.getProtocol() ?? "", chain };
}

export interface ConnectOptions {
  /** Decide to which IP addresses a connection may be made. */
  rules: AddressRules;
  resolve: Resolve;
  limits: Pick<Limits, "resolveMs" | "connectMs" | "tlsMs">;
  signal: AbortSignal;
  /** Trusted roots instead of the built-in ones. */
  ca?: string | undefined;
  /** Picks the source address for a connection to `address`; undefined: the system's choice. */
  sourceTo?: (address: string) => string | undefined;
  /**
   * Opens a TCP connection to an address. Tests replace it with one that reaches another address, which must be
   * refused.
   */
  dial?: (address: string, port: number, source?: string) => Socket;
}

/**
 * Error codes for a lack of files, ports, memory or routes on this machine, or for a name server of ours that does not
 * run.
 */
const OUR_CODES = new Set(
  "EMFILE ENFILE ENOBUFS ENOMEM EADDRNOTAVAIL ENETUNREACH ENETDOWN EACCES EPERM ECONNREFUSED_DNS".split(" "),
);
/**
 * Largest number of addresses that are tried, one after the other. They share the time to connect. With two, each has
 * more than the one second after which TCP sends a lost packet again.
 */
const MAX_ADDRESSES_TRIED = 2;

const codeOf = (error: unknown): string =>
  (error as NodeJS.ErrnoException | null)?.code ?? (error instanceof Error ? error.message : "unknown fault");

const faultOf = (code: string, says: string): ConnectFault =>
  OUR_CODES.has(code) ? { fault: "ours", says: `our side: ${says}` } : { fault: "transport", says };

/** Waits for `work`; rejects after `ms` or when `signal` aborts. Then `work` continues, and its result is ignored. */
async function withDeadline<T>(work: Promise<T>, ms: number, signal: AbortSignal): Promise<T> {
  let stop = (_: Error): void => {};
  const deadline = new Promise<never>((_, reject) => {
    stop = reject;
  });
  const timer = setTimeout(() => stop(new Error(`nothing within ${ms} ms`)), ms);
  const callOff = () => stop(new Error("called off"));
  signal.addEventListener("abort", callOff, { once: true });
  if (signal.aborted) callOff();
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", callOff);
  }
}

/** Resolves when `socket` emits `event`; rejects on an error or close before that. Later events have no effect. */
const waitForEvent = (socket: Socket, event: "connect" | "secureConnect"): Promise<void> =>
  new Promise((resolve, reject) => {
    socket.once(event, resolve);
    socket.on("error", reject);
    socket.once("close", () => reject(new Error("closed")));
  });

/** Resolves the host and returns its addresses, IPv4 first. If one of them is not allowed, the name is refused. */
async function resolveChecked(target: Target, options: ConnectOptions): Promise<string[] | ConnectFault> {
  if (target.literal) return [target.host];
  let addresses: readonly string[];
  try {
    addresses = await withDeadline(options.resolve(target.host), options.limits.resolveMs, options.signal);
  } catch (error) {
    const code = codeOf(error);
    // ECONNREFUSED from the resolver (c-ares) means that our own name server refused the connection.
    return faultOf(code === "ECONNREFUSED" ? "ECONNREFUSED_DNS" : code, `${target.host} does not resolve: ${code}`);
  }
  for (const address of addresses) {
    const verdict = validateAddress(address, options.rules);
    if (!verdict.ok) return { fault: "refused", reason: verdict.reason, says: `${target.host}: ${verdict.says}` };
  }
  if (addresses.length === 0) return { fault: "transport", says: `${target.host} has no address` };
  return [...addresses].sort((a, b) => isIP(a) - isIP(b));
}

const dialTcp = (address: string, port: number, source?: string): Socket =>
  connect({
    host: address,
    port,
    autoSelectFamily: false,
    noDelay: true,
    ...(source === undefined ? {} : { localAddress: source }),
  });

/**
 * Connects to a checked address and checks the socket's remote address again, before a byte is written. Returns null if
 * this machine has no IPv6 and the address is one.
 */
async function openTcp(
  target: Target,
  address: string,
  ms: number,
  options: ConnectOptions,
): Promise<Socket | ConnectFault | null> {
  const socket = (options.dial ?? dialTcp)(address, target.port, options.sourceTo?.(address));
  try {
    await withDeadline(waitForEvent(socket, "connect"), ms, options.signal);
  } catch (error) {
    socket.destroy();
    const code = codeOf(error);
    if (code === "ENETUNREACH" && isIP(address) === 6) return null;
    return faultOf(code, `no connection to ${address} port ${target.port}: ${code}`);
  }
  const peerAddress = socket.remoteAddress;
  if (!isSameAddress(peerAddress, address) || !validateAddress(peerAddress ?? "", options.rules).ok) {
    socket.destroy();
    return { fault: "refused", reason: "address", says: `asked for ${address} and reached ${peerAddress ?? "nobody"}` };
  }
  return socket;
}

async function startTls(target: Target, socket: Socket, options: ConnectOptions): Promise<Socket | ConnectFault> {
  const { host } = target;
  const nameOptions = target.literal ? { host } : { host, servername: host };
  const caOptions = options.ca === undefined ? {} : { ca: options.ca };
  const tlsSocket = connectTls({ socket, ...nameOptions, ...caOptions, ALPNProtocols: ["http/1.1"] });
  try {
    await withDeadline(waitForEvent(tlsSocket, "secureConnect"), options.limits.tlsMs, options.signal);
    return tlsSocket;
  } catch (error) {
    tlsSocket.destroy();
    socket.destroy();
    const code = codeOf(error);
    return { fault: "transport", says: `no TLS with ${host}: ${code}` };
  }
}

/**
 * Resolves the name once, checks all its addresses, connects to one, checks the peer, and does the TLS handshake if
 * the url is https. No byte of the request is sent. Never throws for anything that a stranger does.
 */
export async function connectChecked(
  target: Target,
  options: ConnectOptions,
): Promise<CheckedConnection | ConnectFault> {
  const addresses = await resolveChecked(target, options);
  if (!Array.isArray(addresses)) return addresses;
  const addressesToTry = addresses.slice(0, MAX_ADDRESSES_TRIED);
  let lastFault: ConnectFault | null = null;
  for (const address of addressesToTry) {
    if (options.signal.aborted) break;
    const tcpSocket = await openTcp(target, address, options.limits.connectMs / addressesToTry.length, options);
    // Null: this machine has no IPv6. The IPv6 address is skipped, as if the name did not have it.
    if (tcpSocket === null) continue;
    if ("fault" in tcpSocket) {
      lastFault = tcpSocket;
      if (tcpSocket.fault === "refused") break;
      continue;
    }
    const socket = target.tls ? await startTls(target, tcpSocket, options) : tcpSocket;
    if ("fault" in socket) return socket;
    return { socket, remoteAddress: parseAddress(address)!.toString() };
  }
  if (options.signal.aborted) return { fault: "ours", says: "called off" };
  return lastFault ?? { fault: "transport", says: `${target.host} has no IPv4 address, and this machine no IPv6` };
}
