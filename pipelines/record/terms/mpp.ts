import { clean, get, isObject, text } from "../json.ts";
import { parseAtomic } from "../money.ts";
import { type AssetForm, classifyAsset, readNetwork, usdcOf } from "./networks.ts";

/**
 * Reads the request in an mpp challenge, which states what is to be paid. Used for records of 402s and for clients
 * that are about to pay.
 */

/** Our network names by the cluster names that mpp's Solana method uses. */
const CLUSTERS: Readonly<Record<string, string>> = { "mainnet-beta": "solana", devnet: "solana-devnet" };

/**
 * Reads the chain that a request names, as a number or a text. If the request names none, the result is `unknown`,
 * since the protocol's drafts disagree on a default.
 */
function readNetworkOfRequest(method: string, request: unknown): { id: string; raw: string } {
  const details = get(request, "methodDetails");
  const statedChain = get(details, "chainId") ?? get(details, "evm", "chainId");
  const raw =
    typeof statedChain === "string"
      ? clean(statedChain.trim(), 120)
      : Number.isSafeInteger(statedChain)
        ? String(statedChain)
        : "";
  const chainId = /^(?:eip155:)?([1-9]\d{0,15})$/.exec(raw)?.[1];
  if (chainId !== undefined) return { id: `eip155:${chainId}`, raw };
  const cluster = method === "solana" ? text(get(details, "network"), 60) : undefined;
  if (cluster === undefined) return { id: "unknown", raw };
  const network = readNetwork(Object.hasOwn(CLUSTERS, cluster) ? CLUSTERS[cluster] : undefined);
  return { id: network?.id ?? "unknown", raw: cluster };
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
