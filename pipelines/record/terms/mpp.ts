import { clean, get, isObject, text } from "../json.ts";
import { parseAtomic } from "../money.ts";
import { NETWORK_NAMES } from "../networks.ts";
import { type AssetForm, classifyAsset, usdcOf } from "./networks.ts";

/**
 * Reads the request in an mpp challenge, which states what is to be paid. Used for records of 402s and for clients
 * that are about to pay.
 */

/**
 * CAIP-2 ids by the names (or numbers) that a method has for its networks, of the methods whose networks are no EVM
 * chains. On Solana a request that names no network is for `mainnet`, which an older draft called `mainnet-beta`.
 */
const NETWORKS = {
  solana: {
    mainnet: NETWORK_NAMES.solana,
    "mainnet-beta": NETWORK_NAMES.solana,
    devnet: NETWORK_NAMES["solana-devnet"],
  },
  hedera: { 295: "hedera:mainnet", 296: "hedera:testnet" },
};

/**
 * Reads the network that a request names, as a number or a text. If the request names none, the result is `unknown`
 * except on Solana, since the drafts of the other methods disagree on a default.
 */
function readNetworkOfRequest(method: string, request: unknown): { id: string; raw: string } {
  const details = get(request, "methodDetails");
  const stated =
    method === "solana" ? get(details, "network") : (get(details, "chainId") ?? get(details, "evm", "chainId"));
  const raw =
    typeof stated === "string" ? clean(stated.trim(), 120) : Number.isSafeInteger(stated) ? String(stated) : "";
  const own = get(NETWORKS, method);
  const chainId = /^(?:eip155:)?([1-9]\d{0,15})$/.exec(raw)?.[1];
  const id = own ? get(own, stated == null ? "mainnet" : raw) : chainId && `eip155:${chainId}`;
  return { id: (id as string | undefined) ?? "unknown", raw };
}

export interface MppRequest {
  network: { id: string; raw: string };
  /**
   * The chain's id or, if the request names no chain that we know, the challenge's method with a colon (`tempo:`). It
   * determines the form of payees and assets.
   */
  place: string;
  asset: string | null;
  form: AssetForm | "missing";
  payTo: string | null;
  /** The amount in atomic units; null if it is missing or no whole number. */
  atomic: bigint | null;
  isAmountMissing: boolean;
}

/**
 * Reads a decoded request; null if the request is no object.
 * @param method the challenge's method, such as `tempo`
 */
export function readMppRequest(method: string, request: unknown): MppRequest | null {
  if (!isObject(request)) return null;
  const network = readNetworkOfRequest(method, request);
  const place = network.id === "unknown" ? `${method}:` : network.id;
  const amount = get(request, "amount");
  const asset = text(get(request, "currency"), 200) ?? null;
  return {
    ...{ network, place, asset },
    form: asset === null ? "missing" : classifyAsset(place, asset, usdcOf(place) !== undefined),
    payTo: text(get(request, "recipient"), 200) ?? null,
    atomic: parseAtomic(amount),
    isAmountMissing: amount == null || amount === "",
  };
}
