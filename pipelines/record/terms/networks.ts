import { fromBase58 } from "../base58.ts";
import { clean, show } from "../json.ts";
import { NETWORK_NAMES, USDC } from "../networks.ts";

/**
 * Matches `namespace:reference` as in CAIP-2, but with fewer limits. Sellers use ids that break its limits on length
 * and alphabet (`hyperliquid:mainnet`, the full Solana genesis hash, base64 references), and refusing these ids would
 * lose the offer.
 */
const CAIP_LIKE_ID = /^[A-Za-z0-9-]{2,32}:[^\s:]{1,100}$/;

export type NetworkForm = "name" | "caip2" | "unknown";

export interface Network {
  /** CAIP-2 id where we know the name, else the seller's own text. */
  id: string;
  raw: string;
  form: NetworkForm;
  /** Was the network a JSON string? Some sellers write an object. */
  isText: boolean;
}

/**
 * Returns a network id in the form in which ids are compared. Of a Solana id only the first 32 characters of the
 * genesis hash are kept (CAIP-2, namespace solana).
 */
const normaliseNetworkId = (id: string): string => (/^solana:/i.test(id) ? id.slice(0, "solana:".length + 32) : id);

/**
 * Reads a network from payment terms; null if none is named. A name that we do not know is kept unchanged, and a
 * value that is no text is kept as its JSON.
 */
export function readNetwork(value: unknown): Network | null {
  const raw = typeof value === "string" ? value.trim() : value == null ? "" : show(value);
  if (!raw) return null;
  const shortText = clean(raw, 120);
  const knownId = Object.hasOwn(NETWORK_NAMES, shortText.toLowerCase())
    ? NETWORK_NAMES[shortText.toLowerCase()]
    : undefined;
  const isText = typeof value === "string";
  if (knownId) return { id: knownId, raw: shortText, form: "name", isText };
  return { id: shortText, raw: shortText, form: isText && CAIP_LIKE_ID.test(shortText) ? "caip2" : "unknown", isText };
}

/**
 * Do two texts name one network? null if we do not know one of the names, since it may be another name of the other
 * network.
 */
export function sameNetwork(a: string, b: string): boolean | null {
  const [one, other] = [readNetwork(a), readNetwork(b)];
  if (!one || !other) return null;
  if (normaliseNetworkId(one.id) === normaliseNetworkId(other.id)) return true;
  return one.form === "unknown" || other.form === "unknown" ? null : false;
}

/**
 * Do two texts name one asset of this network? Each may be a contract or mint, also in CAIP-19 form, or the symbol
 * `usdc` if we know the network's USDC. null if this cannot be decided.
 */
export function sameAsset(network: string, a: string, b: string): boolean | null {
  const id = normaliseNetworkId(readNetwork(network)?.id ?? network);
  const [one, other] = [a, b].map((text) =>
    text
      .trim()
      .replace(/^.*\//, "")
      .replace(/^(?:erc20|token):/i, ""),
  );
  if (one!.toLowerCase() === "usdc" || other!.toLowerCase() === "usdc") {
    const [symbol, otherText] = one!.toLowerCase() === "usdc" ? [one, other] : [other, one];
    if (otherText!.toLowerCase() === symbol!.toLowerCase()) return true;
    const token = normaliseToken(id, otherText!);
    return token !== null && Object.hasOwn(USDC, id) ? USDC[id] === token : null;
  }
  const [left, right] = [normaliseToken(id, one!), normaliseToken(id, other!)];
  if (left !== null && right !== null) return left === right;
  return one === other ? true : null;
}

/** Returns the USDC contract of this network; undefined if we do not know it. */
export const usdcOf = (network: string): string | undefined =>
  Object.hasOwn(USDC, normaliseNetworkId(network)) ? USDC[normaliseNetworkId(network)] : undefined;

/** Returns the decimals of USDC, whose amounts are converted to dollars; null for every other asset. */
export function decimalsOf(network: string, asset: string | null): number | null {
  const usdc = usdcOf(network);
  return asset !== null && usdc !== undefined && normaliseToken(network, asset) === usdc ? 6 : null;
}

/**
 * Is this asset the USDC contract of another network, while we know a different one for this network? Then a payment
 * on this network would not be in USDC.
 */
export function isOtherNetworksUsdc(network: string, asset: string): boolean {
  const [usdc, token] = [usdcOf(network), normaliseToken(network, asset)];
  return usdc !== undefined && token !== null && token !== usdc && Object.values(USDC).includes(token);
}

/**
 * Is this an EVM chain?
 * @param space a CAIP-2 id or, for an mpp challenge that names no chain, the challenge's method with a colon
 * (`tempo:`)
 */
const isEvm = (space: string): boolean => /^(?:eip155|evm|tempo):/.test(space);
const isSolana = (space: string): boolean => space.startsWith("solana:");

/** Matches base58 text of a length that the encoding of 32 bytes can have. */
const BASE58_KEY = /^[1-9A-HJ-NP-Za-km-z]{32,44}$/;

/** Is this base58 text of exactly 32 bytes, as for every account and mint of Solana? */
const isBase58Key = (text: string): boolean => fromBase58(text, 32) !== null;

const HEX_ADDRESS = /^0x[0-9a-fA-F]{40}$/;
/** Addresses that nobody owns: the zero address, and Solana's system program (32 zero bytes). */
const UNOWNED_ADDRESS = /^(?:0x0+|1{32})$/;
/** The address by which some sellers name a chain's own coin. x402 and mpp pay only in tokens, not in that coin. */
const NATIVE_COIN = /^0x(?:ee){20}$/i;
const PLACEHOLDER = /address|placeholder|your|wallet|<|\.\.\.|xxx/i;

/**
 * Does a payee's address have the form of its chain? On EVM chains: 0x and 40 hex digits; on Solana: base58 of 32
 * bytes; elsewhere: any plain text that is no placeholder, of 8 characters or more, or a name of NEAR (`ab.near`).
 */
export function looksLikeAddress(space: string, text: string): boolean {
  if (UNOWNED_ADDRESS.test(text)) return false;
  if (isEvm(space)) return HEX_ADDRESS.test(text);
  if (isSolana(space)) return isBase58Key(text);
  return /^(?:[\w:.@/-]{8,200}|[\w-]+\.near)$/.test(text) && !/address|placeholder|your|wallet/i.test(text);
}

/** Do we know the form of addresses on this chain? */
export const hasKnownAddresses = (space: string): boolean => isEvm(space) || isSolana(space);

/**
 * Returns a contract or mint in the form in which they are compared: hex in lower case, base58 unchanged; null for any
 * other text.
 */
function normaliseToken(space: string, asset: string): string | null {
  if (isEvm(space)) return HEX_ADDRESS.test(asset) ? asset.toLowerCase() : null;
  return isSolana(space) && BASE58_KEY.test(asset) ? asset : null;
}

/** Symbols of coins that have no contract on their network, by CAIP-2 namespace. */
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
 * Matches the texts that we accept as a contract on a network whose form of addresses we do not know: at least 20
 * characters, a text with a colon, or a number, as some networks have for assets.
 */
const CONTRACT_ELSEWHERE = /^(?:[!-~]{20,200}|[!-~]*:[!-~]*|\d[\d.]*)$/;

/**
 * The way in which payment terms name an asset: by its contract (or mint), by an ISO 4217 currency code, by a symbol
 * that is known on the network, by a placeholder or the zero address (with which nobody can pay), or in an unknown
 * way.
 */
export type AssetForm = "contract" | "code" | "symbol" | "placeholder" | "unknown";

/** Can a client pay with an asset that is named in this way? */
export const isPayableIn = (form: AssetForm | "missing"): boolean =>
  form === "contract" || form === "code" || form === "symbol";

/** Matches a coin's symbol, or a short name of a contract (`usdc.near`), as the networks write them that we do not know. */
const NAME_ELSEWHERE = /^[a-z][\w.-]{1,18}$/i;

/**
 * May some client be able to pay with this asset? In addition to {@link isPayableIn}: with a short name on a CAIP-2
 * network, or in a method of mpp, whose form of addresses we do not know, since its clients may know the name (STX, XNO, lovelace, RLUSD).
 */
export const mayBePayableIn = (form: AssetForm | "missing", space: string, asset: string | null): boolean =>
  isPayableIn(form) ||
  (form === "unknown" && space.includes(":") && !hasKnownAddresses(space) && NAME_ELSEWHERE.test(asset ?? ""));

/**
 * Determines the way in which terms name an asset.
 * @param hasUsdc true if we know the USDC contract of this network
 */
export function classifyAsset(space: string, asset: string, hasUsdc: boolean): AssetForm {
  if (UNOWNED_ADDRESS.test(asset) || NATIVE_COIN.test(asset)) return "placeholder";
  if (isSolana(space) ? isBase58Key(asset) : normaliseToken(space, asset) !== null) return "contract";
  const word = asset.toLowerCase();
  const namespace = space.split(":", 1)[0]!.toLowerCase();
  if (word === "usdc" && hasUsdc) return "symbol";
  if (Object.hasOwn(COINS, namespace) && COINS[namespace]!.includes(word)) return "symbol";
  if (ISO_4217.has(asset.toUpperCase())) return "code";
  if (PLACEHOLDER.test(asset) || (hasKnownAddresses(space) && word.startsWith("0x"))) return "placeholder";
  return !hasKnownAddresses(space) && CONTRACT_ELSEWHERE.test(asset) ? "contract" : "unknown";
}
