import { isIP } from "node:net";
import ipaddr from "ipaddr.js";
import { type Address, networkKey } from "../../infra/egress/address.ts";

/** A limit: `quota` requests in `windowS` seconds, refilled steadily (token bucket with the quota as burst). */
export interface Limit {
  name: string;
  quota: number;
  windowS: number;
}

export interface LimitResult {
  ok: boolean;
  /** Whole tokens left. */
  remaining: number;
  /** Seconds until the bucket is full again (RateLimit `t`), or until a token is there when refused (Retry-After). */
  resetS: number;
}

/** Clients remembered by one limiter; the one seen longest ago goes first. */
const MAX_CLIENTS = 100_000;

/**
 * Token buckets by client key, bounded. `now` is a steady counter in ms. A client that is pushed out of the table starts
 * with a full bucket again: a flood of addresses can loosen the limit of others, never exhaust memory.
 */
export class Limiter {
  readonly #buckets = new Map<string, { tokens: number; at: number }>();

  constructor(
    readonly limit: Limit,
    private readonly now: () => number,
    private readonly maxClients = MAX_CLIENTS,
  ) {}

  /** Take `cost` tokens of this client, if it has at least one; into debt where it has fewer than they cost. */
  take(client: string, cost = 1): LimitResult {
    const { quota } = this.limit;
    const tokens = this.#tokensOf(client);
    // Refilling by fractions must not leave a client a hair short of the token it was promised.
    const ok = tokens >= 1 - 1e-6;
    const left = ok ? tokens - cost : tokens;
    this.#keep(client, left);
    const waitMs = (ok ? quota - left : 1 - left) / this.#perMs;
    const remaining = Math.max(0, Math.floor(left + 1e-6));
    return { ok, remaining, resetS: Math.max(1, Math.ceil(Math.round(waitMs) / 1000)) };
  }

  /** Real ms until this client has `cost` tokens. */
  msUntil(client: string, cost: number): number {
    return Math.max(0, cost - this.#tokensOf(client)) / this.#perMs;
  }

  /** Take tokens whether or not they are there: what was sent cannot be refused any more. */
  charge(client: string, cost: number): void {
    this.#keep(client, this.#tokensOf(client) - cost);
  }

  get #perMs(): number {
    return this.limit.quota / (this.limit.windowS * 1000);
  }

  #tokensOf(client: string): number {
    const { quota } = this.limit;
    const held = this.#buckets.get(client);
    return held ? Math.min(quota, held.tokens + Math.max(0, this.now() - held.at) * this.#perMs) : quota;
  }

  #keep(client: string, tokens: number): void {
    if (!this.#buckets.delete(client) && this.#buckets.size >= this.maxClients) {
      this.#buckets.delete(this.#buckets.keys().next().value!);
    }
    this.#buckets.set(client, { tokens, at: this.now() });
  }

  /** `RateLimit-Policy` and `RateLimit` of an answer, and `Retry-After` of a refusal. */
  headers(taken: LimitResult): Record<string, string> {
    const { name, quota, windowS } = this.limit;
    const headers: Record<string, string> = {
      "ratelimit-policy": `"${name}";q=${quota};w=${windowS}`,
      ratelimit: `"${name}";r=${taken.remaining};t=${taken.resetS}`,
    };
    if (!taken.ok) headers["retry-after"] = String(taken.resetS);
    return headers;
  }
}

export type Cidr = [Address, number];

/** Which peers may name the client in X-Forwarded-For. @throws Error for a text that is no address or CIDR block. */
export function parseProxies(proxies: readonly string[]): Cidr[] {
  return proxies.map((text) => {
    try {
      // ipaddr.js alone would take "10.0.0" as 10.0.0.0, a proxy that nobody meant.
      if (!isIP(text.split("/", 1)[0]!)) throw new Error("no address");
      if (text.includes("/")) return ipaddr.parseCIDR(text);
      const address = ipaddr.process(text);
      return [address, address.kind() === "ipv4" ? 32 : 128];
    } catch {
      throw new Error(`trusted proxy ${JSON.stringify(text)}: neither an address nor a CIDR block`);
    }
  });
}

const isTrusted = (address: Address, trusted: readonly Cidr[]): boolean =>
  trusted.some(([block, bits]) => block.kind() === address.kind() && address.match(block, bits));

const readAddress = (text: string): Address | null => {
  const bare = text
    .trim()
    .replace(/^\[(.*)\](?::\d+)?$/, "$1")
    .split("%", 1)[0]!;
  return isIP(bare) ? ipaddr.process(bare) : null;
};

/**
 * The key of a client. X-Forwarded-For counts only when the peer itself is a configured proxy, read from the right
 * past further proxies; a part that is no address ends the search at the last address that was one.
 */
export function clientKey(peer: string | undefined, forwarded: string | null, trusted: readonly Cidr[]): string {
  if (!peer) return "local";
  if (trusted.length === 0 && !peer.includes(":")) return peer;
  let client = readAddress(peer);
  if (!client) return "local";
  const hops = forwarded && trusted.length > 0 ? forwarded.slice(-2000).split(",") : [];
  while (hops.length > 0 && isTrusted(client, trusted)) {
    const hop = readAddress(hops.pop()!);
    if (!hop) break;
    client = hop;
  }
  return networkKey(client);
}

/**
 * The key of whom a socket belongs to, or null for a configured proxy: many clients share its sockets, and their requests
 * are told apart by {@link clientKey}.
 */
export function socketKey(peer: string | undefined, trusted: readonly Cidr[]): string | null {
  const address = peer === undefined ? null : readAddress(peer);
  return address !== null && isTrusted(address, trusted) ? null : clientKey(peer, null, []);
}
