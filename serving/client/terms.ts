import { NETWORK_NAMES } from "../../pipelines/record/networks.ts";
import { readBounded } from "./http.ts";

/** One way to pay that a 402 offers, as far as a guard looks at it. */
export interface Offer {
  /** CAIP-2 where the name is known, else as the seller wrote it. */
  network: string | null;
  asset: string | null;
  /** Atomic units of the asset. */
  amount: bigint | null;
  payTo: string | null;
  scheme: string | null;
}

/** A payment that is about to be signed. */
export interface Demand {
  /** Where the request went, not what the 402 says of itself. A tool of an MCP server is `url#tool`. */
  url: string;
  method?: string | undefined;
  /** The offer that is taken; all that may be taken, where that is not known yet. */
  offers: readonly Offer[];
}

const MAX_HEADER = 64 * 1024;
const MAX_BODY_BYTES = 1024 * 1024;
/** Offers of one 402 that are looked at. */
const MAX_OFFERS = 64;

type Json = Record<string, unknown>;

const member = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && Object.hasOwn(value, name) ? (value as Json)[name] : undefined;

const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);

const atomic = (value: unknown): bigint | null => {
  const digits = typeof value === "number" && Number.isSafeInteger(value) ? String(value) : value;
  return typeof digits === "string" && /^\d{1,78}$/.test(digits) ? BigInt(digits) : null;
};

/** `base` and `eip155:8453` are one network. */
function networkId(name: string | null): string | null {
  const key = name?.trim().toLowerCase() ?? "";
  return Object.hasOwn(NETWORK_NAMES, key) ? NETWORK_NAMES[key]! : name;
}

/** An entry of `accepts`, of x402 version 1 or 2. */
export const offerOf = (entry: unknown): Offer => ({
  network: networkId(text(member(entry, "network"))),
  asset: text(member(entry, "asset")),
  // Where both stand, the one that costs more: a client may take either.
  amount: larger(atomic(member(entry, "amount")), atomic(member(entry, "maxAmountRequired"))),
  payTo: text(member(entry, "payTo")),
  scheme: text(member(entry, "scheme")),
});

const larger = (a: bigint | null, b: bigint | null): bigint | null =>
  a !== null && b !== null && b > a ? b : (a ?? b);

/** Offers of x402 terms, a decoded header, a body or the structured content of an MCP tool's result; [] for anything else. */
export function offersOf(terms: unknown): Offer[] {
  const accepts = member(terms, "accepts");
  return Array.isArray(accepts) ? accepts.map(offerOf) : [];
}

/** JSON in base64 or base64url, as headers carry it; undefined for anything else. */
function decoded(base64: string): unknown {
  try {
    const binary = atob(base64.replaceAll("-", "+").replaceAll("_", "/"));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(binary, (char) => char.charCodeAt(0))));
  } catch {
    return undefined;
  }
}

/**
 * What an mpp challenge asks for, from its decoded request: one offer for its recipient, and one for each address among which
 * it is split, since each of them is paid.
 */
export function mppOffersOf(method: string | null, request: unknown): Offer[] {
  const details = member(request, "methodDetails");
  const chain = atomic(member(details, "chainId"));
  const splits = member(details, "splits");
  const payees = [request, ...(Array.isArray(splits) ? splits : [])];
  return payees.map((payee) => ({
    network: chain === null ? null : `eip155:${chain}`,
    asset: text(member(request, "currency")),
    amount: atomic(member(payee, "amount")),
    payTo: text(member(payee, "recipient")),
    scheme: method === null ? "mpp" : `mpp:${method}`,
  }));
}

/** `name="value"` of a challenge; quoted pairs do not stand in base64url or in names of methods. */
const PARAMETER = /(?:^|[\s,])(method|request)="([^"\\]*)"/g;

/** What a 402 asks for. `unread`: it says more than we can read, so there may be offers that nobody looked at. */
export interface Read402 {
  offers: Offer[];
  unread: boolean;
}

/** Challenges of the scheme `Payment` in a `WWW-Authenticate` header (RFC 9110 section 11.6.1), which a comma may join. */
function mppOffers(header: string): Read402 {
  const challenges = header.split(/(?:^|[\s,])Payment\s+(?=[a-z])/i).slice(1);
  const read = challenges.slice(0, MAX_OFFERS).map((challenge) => {
    const found = new Map([...challenge.matchAll(PARAMETER)].map(([, name, value]) => [name!, value!]));
    return { method: found.get("method") ?? null, request: decoded(found.get("request") ?? "") };
  });
  const unread = challenges.length > MAX_OFFERS || read.some(({ request }) => request === undefined);
  return { offers: read.flatMap(({ method, request }) => mppOffersOf(method, request)), unread };
}

/** What the headers ask for. */
function inHeaders(headers: Headers): Read402 {
  const header = headers.get("payment-required") ?? "";
  const challenge = headers.get("www-authenticate") ?? "";
  if (header.length > MAX_HEADER || challenge.length > MAX_HEADER) return { offers: [], unread: true };
  const terms = header === "" ? null : decoded(header);
  const mpp = mppOffers(challenge);
  return { offers: [...offersOf(terms), ...mpp.offers], unread: terms === undefined || mpp.unread };
}

/**
 * Every offer of a 402, wherever it stands: header `PAYMENT-REQUIRED`, body (x402 version 1, and version 2 of some sellers),
 * mpp challenges. The response is read from a copy, and stays whole for its reader.
 * @param within_ms for the body, which a seller may let trickle
 */
export async function read402(response: Response, within_ms: number): Promise<Read402> {
  const { offers, unread: unreadHeaders } = inHeaders(response.headers);
  let unread = unreadHeaders;
  const copy = response.clone();
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error("late")), within_ms);
    });
    const bytes = await Promise.race([readBounded(copy.body, MAX_BODY_BYTES), late]);
    offers.push(...offersOf(bodyOf(bytes)));
  } catch {
    unread = true;
  } finally {
    clearTimeout(timer);
  }
  return { offers: offers.slice(0, MAX_OFFERS), unread: unread || offers.length > MAX_OFFERS };
}

function bodyOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    // Many a 402 has a page or nothing for its body.
    return undefined;
  }
}
