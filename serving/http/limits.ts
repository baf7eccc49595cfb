import { isIP } from "node:net";
import ipaddr from "ipaddr.js";
import { type Address, networkKey, parseNetwork, type Range } from "../../infra/egress/address.ts";

/** A rate limit of `quota` tokens in `windowS` seconds: a token bucket with the quota as burst. */
export interface Limit {
  /** Name of the limit in the RateLimit headers. */
  name: string;
  quota: number;
  windowS: number;
}

/** The result of taking tokens. */
export interface LimitResult {
  /** True if the tokens were taken. False if the client is refused. */
  ok: boolean;
  /** Whole tokens left. */
  remaining: number;
  /** Seconds until the bucket is full (RateLimit `t`), or, when refused, until it has a token (Retry-After). */
  resetS: number;
}

/** Largest number of clients of one limiter; the one seen longest ago is forgotten first. */
const MAX_CLIENTS = 100_000;

/**
 * Token buckets by client key. `now` returns ms of a monotonic clock. The number of buckets is bounded: a client that
 * is forgotten starts with a full bucket again, so a flood of addresses can loosen limits but not exhaust memory.
 */
export class Limiter {
  readonly #buckets = new Map<string, { tokens: number; countedAt: number }>();

  constructor(
    readonly limit: Limit,
    private readonly now: () => number,
    private readonly maxClients = MAX_CLIENTS,
  ) {}

  /** Takes `cost` tokens of a client if it has at least one, even if its bucket then goes below zero. */
  take(client: string, cost = 1): LimitResult {
    const { quota } = this.limit;
    const tokens = this.#tokensOf(client);
    // Rounding of fractional refills must not refuse a client that waited as long as Retry-After requires.
    const ok = tokens >= 1 - 1e-6;
    const tokensLeft = ok ? tokens - cost : tokens;
    this.#setBucket(client, tokensLeft);
    const waitMs = (ok ? quota - tokensLeft : 1 - tokensLeft) / this.#tokensPerMs;
    const remaining = Math.max(0, Math.floor(tokensLeft + 1e-6));
    return { ok, remaining, resetS: Math.max(1, Math.ceil(Math.round(waitMs) / 1000)) };
  }

  /** Returns the ms until a client has `cost` tokens. */
  msUntil(client: string, cost: number): number {
    return Math.max(0, cost - this.#tokensOf(client)) / this.#tokensPerMs;
  }

  /** Takes tokens even if the client has none, such as for bytes already sent. A negative cost returns tokens. */
  charge(client: string, cost: number): void {
    this.#setBucket(client, this.#tokensOf(client) - cost);
  }

  get #tokensPerMs(): number {
    return this.limit.quota / (this.limit.windowS * 1000);
  }

  #tokensOf(client: string): number {
    const { quota } = this.limit;
    const bucket = this.#buckets.get(client);
    return bucket
      ? Math.min(quota, bucket.tokens + Math.max(0, this.now() - bucket.countedAt) * this.#tokensPerMs)
      : quota;
  }

  #setBucket(client: string, tokens: number): void {
    if (!this.#buckets.delete(client) && this.#buckets.size >= this.maxClients) {
      this.#buckets.delete(this.#buckets.keys().next().value!);
    }
    this.#buckets.set(client, { tokens, countedAt: this.now() });
  }

  /** Returns the headers `RateLimit-Policy` and `RateLimit`, and `Retry-After` when refused. */
  headers(result: LimitResult): Record<string, string> {
    const { name, quota, windowS } = this.limit;
    const headers: Record<string, string> = {
      "ratelimit-policy": `"${name}";q=${quota};w=${windowS}`,
      ratelimit: `"${name}";r=${result.remaining};t=${result.resetS}`,
    };
    if (!result.ok) headers["retry-after"] = String(result.resetS);
    return headers;
  }
}

/**
 * Takes one token of each limiter for its client if all of them have one, else none of any: a request that one limit
 * refuses does not use up the others.
 * @returns null if a token was taken of each, else the first refusal
 */
export function takeOfEach(...limits: readonly [limiter: Limiter, client: string][]): LimitResult | null {
  const refusal = limits.map(([limiter, client]) => limiter.take(client, 0)).find(({ ok }) => !ok);
  if (refusal) return refusal;
  for (const [limiter, client] of limits) limiter.take(client);
  return null;
}

/** Parses the setting `trusted_proxies`: addresses and CIDR blocks. @throws Error for any other text */
export const parseProxies = (proxies: readonly string[]): Range[] =>
  proxies.map((text) => {
    const network = parseNetwork(text);
    if (network === null) throw new Error(`trusted proxy ${JSON.stringify(text)}: neither an address nor a CIDR block`);
    return network;
  });

const isTrusted = (address: Address, trusted: readonly Range[]): boolean =>
  trusted.some(([block, bits]) => block.kind() === address.kind() && address.match(block, bits));

/** Parses an address, which may have brackets, a port and a zone; null for a text that is no address. */
const parseAddress = (text: string): Address | null => {
  const addressText = text
    .trim()
    .replace(/^\[(.*)\](?::\d+)?$/, "$1")
    .replace(/^([\d.]+):\d+$/, "$1")
    .split("%", 1)[0]!;
  return isIP(addressText) ? ipaddr.process(addressText) : null;
};

/**
 * Returns the key of the client behind a connection. X-Forwarded-For counts only when the peer is a trusted proxy.
 * Its addresses are read from the right, past further trusted proxies; an invalid one ends the search at the last
 * valid address.
 */
export function clientKeyOf(peer: string | undefined, forwarded: string | null, trusted: readonly Range[]): string {
  if (!peer) return "local";
  if (trusted.length === 0 && !peer.includes(":")) return peer;
  let client = parseAddress(peer);
  if (!client) return "local";
  const hops = forwarded && trusted.length > 0 ? forwarded.slice(-2000).split(",") : [];
  while (hops.length > 0 && isTrusted(client, trusted)) {
    const hop = parseAddress(hops.pop()!);
    if (!hop) break;
    client = hop;
  }
  return networkKey(client);
}

/**
 * Returns the key of the client that a socket belongs to; null for a trusted proxy, whose sockets many clients share
 * ({@link clientKeyOf} tells their requests apart).
 */
export function socketKeyOf(peer: string | undefined, trusted: readonly Range[]): string | null {
  const address = peer === undefined ? null : parseAddress(peer);
  return address !== null && isTrusted(address, trusted) ? null : clientKeyOf(peer, null, []);
}
