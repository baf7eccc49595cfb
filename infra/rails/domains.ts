import { assets, type Types } from "mppx/evm";

/**
 * EIP-712 name and version of the tokens that mpp's own package knows. An mpp challenge does not carry them as x402
 * terms do, and a signature under a guessed name would be worth nothing.
 */
const KNOWN = [assets.base.USDC, assets.baseSepolia.USDC, assets.celo.USDC, assets.celoSepolia.USDC];

/** Signing domain of a token on a chain (CAIP-2), or null when it is not known. */
export function signingDomain(network: string, asset: string): Types.AuthorizationConfig | null {
  const known = KNOWN.find((one) => one.network === network && one.address.toLowerCase() === asset.toLowerCase());
  if (known?.transfer?.type !== "eip3009") return null;
  return { name: known.transfer.name, version: known.transfer.version };
}
