import { clean, show } from "../json.ts";
import { tokenOf } from "./addresses.ts";

/**
 * Names of x402 version 1 (all of the table that @x402/evm 2.27 has) and names seen in the wild -> CAIP-2. A name that is
 * not here stays as it was written.
 */
const NAMES: Readonly<Record<string, string>> = {
  ethereum: "eip155:1",
  sepolia: "eip155:11155111",
  base: "eip155:8453",
  "base-mainnet": "eip155:8453",
  "base-sepolia": "eip155:84532",
  optimism: "eip155:10",
  arbitrum: "eip155:42161",
  polygon: "eip155:137",
  "polygon-amoy": "eip155:80002",
  avalanche: "eip155:43114",
  "avalanche-fuji": "eip155:43113",
  abstract: "eip155:2741",
  "abstract-testnet": "eip155:11124",
  sei: "eip155:1329",
  "sei-testnet": "eip155:1328",
  iotex: "eip155:4689",
  peaq: "eip155:3338",
  story: "eip155:1514",
  educhain: "eip155:41923",
  "skale-base-sepolia": "eip155:324705682",
  megaeth: "eip155:4326",
  monad: "eip155:143",
  stable: "eip155:988",
  "stable-testnet": "eip155:2201",
  celo: "eip155:42220",
  flare: "eip155:14",
  bsc: "eip155:56",
  solana: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
  "solana-mainnet": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
  "solana-devnet": "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
  "solana-testnet": "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z",
};

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

/** Contracts of USDC, which has 6 decimals on each of these chains: the only assets whose amount is money to us. Hex in lower case. */
const USDC: Readonly<Record<string, string>> = {
  "eip155:1": "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48",
  "eip155:8453": "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
  "eip155:84532": "0x036cbd53842c5426634e7929541ec2318f3dcf7e",
  "eip155:10": "0x0b2c639c533813f4aa9d7837caf62653d097ff85",
  "eip155:42161": "0xaf88d065e77c8cc2239327c5edb3a432268e5831",
  "eip155:137": "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359",
  "eip155:43114": "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e",
  "eip155:43113": "0x5425890298aed601595a70ab815c96711a31bc65",
  "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
};

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
  const named = Object.hasOwn(NAMES, short.toLowerCase()) ? NAMES[short.toLowerCase()] : undefined;
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
