import { NETWORK_NAMES, USDC } from "../../record/networks.ts";
import { clean, show } from "../json.ts";
import { tokenOf } from "./addresses.ts";

const TESTNETS = new Set([
  "eip155:11155111",
  "eip155:84532",
  "eip155:80002",
  "eip155:43113",
  "eip155:11124",
  "eip155:1328",
  "eip155:42431",
  "eip155:324705682",
  "eip155:2201",
  "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
  "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z",
]);

/**
 * namespace:reference, wider than the CAIP-2 grammar on purpose: deployed ids break its lengths and alphabet
 * (`hyperliquid:mainnet`, the full Solana genesis hash, base64 references), and refusing them would lose the offer.
 */
const LOOKS_CAIP = /^[A-Za-z0-9-]{2,32}:[^\s:]{1,100}$/;

export type NetworkForm = "name" | "caip2" | "unknown";

export interface Network {
  /** CAIP-2 where the name is known, else the seller's own text. */
  id: string;
  raw: string;
  form: NetworkForm;
  /** Was it written as text? Some write an object. */
  isText: boolean;
}

/** To compare with: the reference of a Solana network is the first 32 characters of its genesis hash (CAIP-2, namespace solana). */
const caip2 = (id: string): string => (/^solana:/i.test(id) ? id.slice(0, "solana:".length + 32) : id);

/** Reads a network as written. Never guesses: an unknown text, or a value that is no text, stays opaque. */
export function readNetwork(value: unknown): Network | null {
  const raw = typeof value === "string" ? value.trim() : value == null ? "" : show(value);
  if (!raw) return null;
  const short = clean(raw, 120);
  const named = Object.hasOwn(NETWORK_NAMES, short.toLowerCase()) ? NETWORK_NAMES[short.toLowerCase()] : undefined;
  const isText = typeof value === "string";
  if (named) return { id: named, raw: short, form: "name", isText };
  return { id: short, raw: short, form: isText && LOOKS_CAIP.test(short) ? "caip2" : "unknown", isText };
}

/** Is it one network, each written as a seller likes? Null where a name is not known to us: it may be another for the same. */
export function sameNetwork(a: string, b: string): boolean | null {
  const [one, other] = [readNetwork(a), readNetwork(b)];
  if (!one || !other) return null;
  if (caip2(one.id) === caip2(other.id)) return true;
  return one.form === "unknown" || other.form === "unknown" ? null : false;
}

/**
 * Is it one asset of this network, each written as a seller likes: a contract or mint, the same as CAIP-19, or the symbol
 * `usdc` where the network's is known? Null where it cannot be known.
 */
export function sameAsset(network: string, a: string, b: string): boolean | null {
  const id = caip2(readNetwork(network)?.id ?? network);
  const [one, other] = [a, b].map((text) =>
    text
      .trim()
      .replace(/^.*\//, "")
      .replace(/^(?:erc20|token):/i, ""),
  );
  if (one!.toLowerCase() === "usdc" || other!.toLowerCase() === "usdc") {
    const [symbol, named] = one!.toLowerCase() === "usdc" ? [one, other] : [other, one];
    if (named!.toLowerCase() === symbol!.toLowerCase()) return true;
    const token = tokenOf(id, named!);
    return token !== null && Object.hasOwn(USDC, id) ? USDC[id] === token : null;
  }
  const [left, right] = [tokenOf(id, one!), tokenOf(id, other!)];
  if (left !== null && right !== null) return left === right;
  return one === other ? true : null;
}

export const isTestnet = (network: string): boolean => TESTNETS.has(network);

/** USDC of this network, where it is known to us. */
export const usdcOf = (network: string): string | undefined =>
  Object.hasOwn(USDC, caip2(network)) ? USDC[caip2(network)] : undefined;

/** Decimals of an asset that we know to be worth its face in money (USDC); null for every other one. */
export function decimalsOf(network: string, asset: string | null): number | null {
  const usdc = usdcOf(network);
  return asset !== null && usdc !== undefined && tokenOf(network, asset) === usdc ? 6 : null;
}

/** Is this the USDC of another network, where this network's own is known? It pays with something else then. */
export function isOtherNetworksUsdc(network: string, asset: string): boolean {
  const [usdc, token] = [usdcOf(network), tokenOf(network, asset)];
  return usdc !== undefined && token !== null && token !== usdc && Object.values(USDC).includes(token);
}
