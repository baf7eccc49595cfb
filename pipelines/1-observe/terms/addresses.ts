/**
 * How payees and assets are written on the networks that sellers name. `space` is a CAIP-2 id, or the method of an mpp
 * challenge that names no chain, with a colon behind it (`tempo:`).
 */
const isEvm = (space: string): boolean => /^(?:eip155|evm|tempo):/.test(space);
const isSolana = (space: string): boolean => space.startsWith("solana:");

const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/** As long as 32 bytes may be. */
const BASE58_KEY = /^[1-9A-HJ-NP-Za-km-z]{32,44}$/;

/** Is this base58 of exactly 32 bytes, as every account and mint of Solana is? */
export function isBase58Key(text: string): boolean {
  if (!BASE58_KEY.test(text)) return false;
  let value = 0n;
  for (const digit of text) value = value * 58n + BigInt(BASE58.indexOf(digit));
  const zeros = /^1*/.exec(text)![0].length;
  const bytes = value === 0n ? 0 : Math.ceil(value.toString(16).length / 2);
  return zeros + bytes === 32;
}

const HEX_ADDRESS = /^0x[0-9a-fA-F]{40}$/;
/** Nobody's: the zero address, and Solana's system program, 32 zero bytes. */
const NOBODYS = /^(?:0x0+|1{32})$/;
/** What some write for a chain's own coin, which no scheme of a token pays in. */
const OWN_COIN = /^0x(?:ee){20}$/i;
const PLACEHOLDER = /address|placeholder|your|wallet|<|\.\.\.|xxx/i;

/**
 * A payee in the form of its chain: 0x and 40 hex on EVM, base58 of 32 bytes on Solana; elsewhere any plain text that is no
 * placeholder.
 */
export function looksLikeAddress(space: string, text: string): boolean {
  if (NOBODYS.test(text)) return false;
  if (isEvm(space)) return HEX_ADDRESS.test(text);
  if (isSolana(space)) return isBase58Key(text);
  return /^[A-Za-z0-9:._@/-]{8,200}$/.test(text) && !/address|placeholder|your|wallet/i.test(text);
}

/** Do payees of this space have a form that we know? */
export const hasKnownAddresses = (space: string): boolean => isEvm(space) || isSolana(space);

/** A contract or mint, in the form in which two are compared: hex without its checksum's case, base58 with its case. */
export function tokenOf(space: string, asset: string): string | null {
  if (isEvm(space)) return HEX_ADDRESS.test(asset) ? asset.toLowerCase() : null;
  return isSolana(space) && BASE58_KEY.test(asset) ? asset : null;
}

/** Coins that go by their name on their network, by namespace. */
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
/** A contract on a network whose forms we do not know: long enough for one, in parts, or the number of an asset. */
const CONTRACT_ELSEWHERE = /^(?:[!-~]{20,200}|[!-~]*:[!-~]*|\d[\d.]*)$/;

/**
 * What an asset is named by: its contract (or mint), an ISO 4217 code, a symbol that is known on its network; by a
 * placeholder or the zero address, which nobody can pay in, or by something we know nothing of.
 */
export type AssetForm = "contract" | "code" | "symbol" | "placeholder" | "unknown";

/** @param hasUsdc is the contract of `usdc` known on this network? */
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
