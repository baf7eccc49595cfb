import { encodePaymentSignatureHeader } from "@x402/core/http";
import type { Network, PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/client";
import { EVM_NETWORK_CHAIN_ID_MAP } from "@x402/evm/v1";
import { isAddress, isHex, zeroAddress } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import type { PayableEntry, SignContext, SignedPayment, Wallet } from "./rails.ts";

const UINT256_END = 1n << 256n;
/** A validity we would sign for: a seller that wants ours to be open for longer than a day is not paid. */
const MAX_VALIDITY_SECONDS = 86_400;

/** Why this entry cannot be signed as `exact` with EIP-3009, or null when it can. Pure; never throws on odd input. */
export function whyNotPayable(entry: PayableEntry, network: string, asset: string): string | null {
  const { extra } = entry;
  const transfer = extra?.assetTransferMethod ?? "eip3009";
  const filled = (value: unknown) => typeof value === "string" && value.length > 0;
  const seconds = entry.maxTimeoutSeconds;
  if (entry.x402Version === null) return "it is no x402 entry";
  if (entry.scheme !== "exact") return `scheme ${entry.scheme}`;
  if (entry.network !== network) return `network ${entry.network}`;
  if (entry.asset?.toLowerCase() !== asset) return `asset ${entry.asset}`;
  if (transfer !== "eip3009") return `asset transfer method ${String(transfer)}`;
  if (!isAddress(entry.payTo ?? "", { strict: false })) return "payTo is not an address";
  if (entry.payTo.toLowerCase() === zeroAddress) return "payTo is the zero address";
  if (entry.amountAtomic <= 0n || entry.amountAtomic >= UINT256_END) return "amount is not a positive uint256";
  if (!Number.isSafeInteger(seconds) || seconds <= 0 || seconds > MAX_VALIDITY_SECONDS) return "maxTimeoutSeconds";
  // The signature covers the token's EIP-712 domain, and no stock client signs without the seller naming it.
  if (!filled(extra?.name) || !filled(extra?.version)) return "extra.name and extra.version are missing";
  return null;
}

/**
 * Sign one entry with the protocol's own client and encode the header (x402 v1: X-PAYMENT; v2: PAYMENT-SIGNATURE).
 * What is signed are the entry's parsed fields; `raw` is only echoed, so it cannot change the payment.
 */
export async function signExact(entry: PayableEntry, wallet: Wallet, context: SignContext): Promise<SignedPayment> {
  if (!isHex(wallet.privateKey)) throw new TypeError("a wallet's private key is 0x and 64 hex digits");
  const signer = privateKeyToAccount(wallet.privateKey);
  const { payload, header } = entry.x402Version === 1 ? await version1(entry, signer) : await version2(entry, signer);
  const { authorization } = payload.payload as unknown as { authorization: Record<string, string> };
  // Members in the order of the protocol's own client.
  const complete = entry.x402Version === 1 ? payload : { ...payload, ...echoed(context), accepted: entry.raw };
  return {
    headerName: header,
    headerValue: encodePaymentSignatureHeader(complete as PaymentPayload),
    from: signer.address.toLowerCase(),
    nonce: authorization.nonce!,
    validAfter: Number(authorization.validAfter),
    validBefore: Number(authorization.validBefore),
    amountAtomic: entry.amountAtomic,
  };
}

type Signer = ReturnType<typeof privateKeyToAccount>;

async function version2(entry: PayableEntry, signer: Signer) {
  const payload = await new ExactEvmScheme(signer).createPaymentPayload(2, {
    scheme: "exact",
    network: entry.network as Network,
    asset: entry.asset,
    amount: entry.amountAtomic.toString(),
    payTo: entry.payTo,
    maxTimeoutSeconds: entry.maxTimeoutSeconds,
    extra: entry.extra,
  });
  return { payload, header: "PAYMENT-SIGNATURE" as const };
}

/** v1 calls the chain by a name. The seller's own spelling goes back to it; the signature is over the chain's id. */
async function version1(entry: PayableEntry, signer: Signer) {
  const chainId = Number(entry.network.slice("eip155:".length));
  const name = Object.entries(EVM_NETWORK_CHAIN_ID_MAP).find(([, id]) => id === chainId)?.[0];
  if (!name) throw new Error(`x402 v1 has no name for ${entry.network}`);
  const requirements = {
    scheme: "exact",
    network: name,
    maxAmountRequired: entry.amountAtomic.toString(),
    asset: entry.asset,
    payTo: entry.payTo,
    maxTimeoutSeconds: entry.maxTimeoutSeconds,
    extra: entry.extra,
  };
  // The package types v1 requirements by their v2 shape, and reads the v1 fields.
  const signed = await new ExactEvmSchemeV1(signer).createPaymentPayload(
    1,
    requirements as unknown as PaymentRequirements,
  );
  const theirs = (entry.raw as { network?: unknown } | null)?.network;
  const payload = { ...signed, network: typeof theirs === "string" ? theirs : name };
  return { payload, header: "X-PAYMENT" as const };
}

/** v2: a client gives back `resource` and `extensions` as it got them. */
function echoed(context: SignContext): { resource?: unknown; extensions?: unknown } {
  const { resource, extensions } = context;
  return { ...(extensions ? { extensions } : {}), ...(resource ? { resource } : {}) };
}
