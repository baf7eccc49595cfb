import { clean, show } from "./json.ts";

/** Names of x402 version 1 and names seen in the wild -> CAIP-2. A name that is not here stays as it was written. */
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
  bsc: "eip155:56",
  solana: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
  "solana-mainnet": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
  "solana-devnet": "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
};

const TESTNETS = new Set([
  "eip155:11155111",
  "eip155:84532",
  "eip155:80002",
  "eip155:43113",
  "eip155:11124",
  "eip155:1328",
  "eip155:42431",
  "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
  "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z",
]);

/** Contracts of USDC, which has 6 decimals on each of these chains: the only assets whose amount is money to us. */
const USDC: Readonly<Record<string, string>> = {
  "eip155:1": "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48",
  "eip155:8453": "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
  "eip155:84532": "0x036cbd53842c5426634e7929541ec2318f3dcf7e",
  "eip155:10": "0x0b2c639c533813f4aa9d7837caf62653d097ff85",
  "eip155:42161": "0xaf88d065e77c8cc2239327c5edb3a432268e5831",
  "eip155:137": "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359",
  "eip155:43114": "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e",
  "eip155:43113": "0x5425890298aed601595a70ab815c96711a31bc65",
  "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp": "epjfwdd5aufqssqem2qn1xzybapc8g4weggkzwytdt1v",
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
}

/** Reads a network as written. Never guesses: an unknown text, or a value that is no text, stays opaque. */
export function readNetwork(value: unknown): Network | null {
  const raw = typeof value === "string" ? value.trim() : value == null ? "" : show(value);
  if (!raw) return null;
  const short = clean(raw, 120);
  const named = Object.hasOwn(NAMES, short.toLowerCase()) ? NAMES[short.toLowerCase()] : undefined;
  if (named) return { id: named, raw: short, form: "name" };
  const form = typeof value === "string" && LOOKS_CAIP.test(short) ? "caip2" : "unknown";
  return { id: short, raw: short, form };
}

export const isTestnet = (network: string): boolean => TESTNETS.has(network);

/** Decimals of an asset that we know to be worth its face in money (USDC); null for every other one. */
export function decimalsOf(network: string, asset: string | null): number | null {
  return asset !== null && Object.hasOwn(USDC, network) && USDC[network] === asset.toLowerCase() ? 6 : null;
}

/** An address in the form of its chain: 0x and 40 hex on EVM; elsewhere any plain text that is no placeholder. */
export function looksLikeAddress(network: string, text: string): boolean {
  if (network.startsWith("eip155:")) return /^0x[0-9a-fA-F]{40}$/.test(text) && !/^0x0{40}$/.test(text);
  return /^[A-Za-z0-9:._@/-]{8,200}$/.test(text) && !/address|placeholder|your|wallet/i.test(text);
}

/** Is this the USDC of another network, where this network's own is known? It pays with something else then. */
export const isOtherNetworksUsdc = (network: string, asset: string): boolean =>
  Object.hasOwn(USDC, network) &&
  USDC[network] !== asset.toLowerCase() &&
  Object.values(USDC).includes(asset.toLowerCase());
