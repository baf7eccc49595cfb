import { fromBase58 } from "../base58.ts";
import { clean, show } from "../json.ts";
import { NETWORK_NAMES, USDC } from "../networks.ts";

/**
 * namespace:reference. Wider than the CAIP-2 grammar on purpose: ids in use break its lengths and alphabet
 * (`hyperliquid:mainnet`, the full Solana genesis hash, base64 references), and refusing them would lose the offer.
 */
const LOOKS_CAIP = /^[A-Za-z0-9-]{2,32}:[^\s:]{1,100}$/;

export type NetworkForm = "name" | "caip2" | "unknown";

export interface Network {
  /** CAIP-2 where the name is known, else the seller's own text. */
  id: string;
  raw: string;
  form: NetworkForm;
  /** Was it written as text? Some sellers write an object. */
  isText: boolean;
}

/**
 * The form in which ids are compared: a Solana network's reference is cut to 32 characters of its genesis hash (CAIP-2,
 * namespace solana).
 */
const caip2 = (id: string): string => (/^solana:/i.test(id) ? id.slice(0, "solana:".length + 32) : id);

/** Reads a network as it is written. Never guesses: an unknown text, or a value that is no text, is kept as it is. */
export function readNetwork(value: unknown): Network | null {
  const raw = typeof value === "string" ? value.trim() : value == null ? "" : show(value);
  if (!raw) return null;
  const short = clean(raw, 120);
  const named = Object.hasOwn(NETWORK_NAMES, short.toLowerCase()) ? NETWORK_NAMES[short.toLowerCase()] : undefined;
  const isText = typeof value === "string";
  if (named) return { id: named, raw: short, form: "name", isText };
  return { id: short, raw: short, form: isText && LOOKS_CAIP.test(short) ? "caip2" : "unknown", isText };
}

/**
 * Do two texts name one network? Null where one of them is not known to us, since it may be another name of the
 * other's.
 */
export function sameNetwork(a: string, b: string): boolean | null {
  const [one, other] = [readNetwork(a), readNetwork(b)];
  if (!one || !other) return null;
  if (caip2(one.id) === caip2(other.id)) return true;
  return one.form === "unknown" || other.form === "unknown" ? null : false;
}

/**
 * Do two texts name one asset of this network? Each may be a contract or mint, that in CAIP-19, or the symbol `usdc`
 * where the network's USDC is known. Null where it cannot be known.
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

/** USDC of this network, where it is known to us. */
export const usdcOf = (network: string): string | undefined =>
  Object.hasOwn(USDC, caip2(network)) ? USDC[caip2(network)] : undefined;

/** Decimals of an asset whose amounts count as money (USDC); null for every other one. */
export function decimalsOf(network: string, asset: string | null): number | null {
  const usdc = usdcOf(network);
  return asset !== null && usdc !== undefined && tokenOf(network, asset) === usdc ? 6 : null;
}

/**
 * Is this the USDC of another network, where this network's own is known? Then a payment would be in something else.
 */
export function isOtherNetworksUsdc(network: string, asset: string): boolean {
  const [usdc, token] = [usdcOf(network), tokenOf(network, asset)];
  return usdc !== undefined && token !== null && token !== usdc && Object.values(USDC).includes(token);
}

/**
 * Is this an EVM chain? `space` is a CAIP-2 id, or, for an mpp challenge that names no chain, its method with a colon
 * (`tempo:`).
 */
const isEvm = (space: string): boolean => /^(?:eip155|evm|tempo):/.test(space);
const isSolana = (space: string): boolean => space.startsWith("solana:");

/** Base58 of a length that 32 bytes can have. */
const BASE58_KEY = /^[1-9A-HJ-NP-Za-km-z]{32,44}$/;

/** Is this base58 of exactly 32 bytes, as every account and mint of Solana is? */
const isBase58Key = (text: string): boolean => fromBase58(text, 32) !== null;

const HEX_ADDRESS = /^0x[0-9a-fA-F]{40}$/;
/** Addresses that nobody owns: the zero address, and Solana's system program (32 zero bytes). */
const NOBODYS = /^(?:0x0+|1{32})$/;
/** How some sellers write a chain's own coin, which no token scheme pays in. */
const OWN_COIN = /^0x(?:ee){20}$/i;
const PLACEHOLDER = /address|placeholder|your|wallet|<|\.\.\.|xxx/i;

/**
 * Has a payee the form of its chain: 0x and 40 hex digits on EVM, base58 of 32 bytes on Solana, and elsewhere any plain
 * text that is no placeholder?
 */
export function looksLikeAddress(space: string, text: string): boolean {
  if (NOBODYS.test(text)) return false;
  if (isEvm(space)) return HEX_ADDRESS.test(text);
  if (isSolana(space)) return isBase58Key(text);
  return /^[A-Za-z0-9:._@/-]{8,200}$/.test(text) && !/address|placeholder|your|wallet/i.test(text);
}

/** Do we know the form of payees on this chain? */
export const hasKnownAddresses = (space: string): boolean => isEvm(space) || isSolana(space);

/**
 * A contract or mint in the form in which two are compared: hex in lower case, base58 as it is; null for anything else.
 */
function tokenOf(space: string, asset: string): string | null {
  if (isEvm(space)) return HEX_ADDRESS.test(asset) ? asset.toLowerCase() : null;
  return isSolana(space) && BASE58_KEY.test(asset) ? asset : null;
}

/** Coins that are named by a symbol on their network, by namespace. */
const COINS: Readonly<Record<string, readonly string[]>> = {
  lightning: ["sat", "sats", "msat", "btc"],
  bitcoin: ["sat", "sats", "btc"],
  bip122: ["sat", "sats", "btc"],
  xrpl: ["xrp"],
  stellar: ["xlm", "native"],
  algorand: ["algo"],
  hedera: ["hbar"],
  near: ["near"],
  ton: ["ton"],
  tron: ["trx"],
  keeta: ["kta", "usdc", "eurc"],
  solana: ["sol"],
  hyperliquid: ["usdc", "hype"],
};

const ISO_4217: ReadonlySet<string> = new Set(Intl.supportedValuesOf("currency"));
/**
 * A contract on a network whose forms we do not know: a text of at least 20 characters, one in parts, or the number of
 * an asset.
 */
const CONTRACT_ELSEWHERE = /^(?:[!-~]{20,200}|[!-~]*:[!-~]*|\d[\d.]*)$/;

/**
 * How an asset is named: by its contract (or mint), by an ISO 4217 code, by a symbol that is known on its network, by a
 * placeholder or the zero address (which nobody can pay in), or in an unknown way.
 */
export type AssetForm = "contract" | "code" | "symbol" | "placeholder" | "unknown";

/** Can a client that knows what is meant pay in an asset that is named in this way? */
export const isPayableIn = (form: AssetForm | "missing"): boolean =>
  form === "contract" || form === "code" || form === "symbol";

/** @param hasUsdc do we know the USDC contract of this network? */
export function assetForm(space: string, asset: string, hasUsdc: boolean): AssetForm {
  if (NOBODYS.test(asset) || OWN_COIN.test(asset)) return "placeholder";
  if (isSolana(space) ? isBase58Key(asset) : tokenOf(space, asset) !== null) return "contract";
  const word = asset.toLowerCase();
  const namespace = space.split(":", 1)[0]!.toLowerCase();
  if (word === "usdc" && hasUsdc) return "symbol";
  if (Object.hasOwn(COINS, namespace) && COINS[namespace]!.includes(word)) return "symbol";
  if (ISO_4217.has(asset.toUpperCase())) return "code";
  if (PLACEHOLDER.test(asset) || (hasKnownAddresses(space) && word.startsWith("0x"))) return "placeholder";
  return !hasKnownAddresses(space) && CONTRACT_ELSEWHERE.test(asset) ? "contract" : "unknown";
}
