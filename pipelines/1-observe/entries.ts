import type { PayableEntry } from "../../infra/rails/rails.ts";
import type { Offer } from "../record/bodies.ts";
import { atomicToMicro, formatMoney, parseAtomic } from "../record/money.ts";
import type { DefectCode } from "../record/vocabulary.ts";
import { get, isObject, text } from "./json.ts";
import { decimalsOf, isOtherNetworksUsdc, looksLikeAddress, type Network, readNetwork } from "./networks.ts";

/** One entry of `accepts`, read by itself: a bad one beside good ones costs nobody but itself. */
export interface ReadEntry {
  offer: Offer;
  /** Complete enough to be paid by somebody: scheme, network, whole amount, payout address. */
  valid: boolean;
  /** What a rail may be asked to sign; null when the entry is not valid. */
  payable: PayableEntry | null;
  defects: DefectCode[];
}

/** Longest time a seller may ask us to wait, in seconds; more is a defect (1781582577 and 345600 exist). */
const MAX_TIMEOUT_S = 86_400;
/** What an entry that names none (or nonsense) is given: the usual short one. */
const DEFAULT_TIMEOUT_S = 60;

interface Amount {
  atomic: bigint | null;
  defects: DefectCode[];
}

/** Amounts are never converted: "0.001", "$1" and 40000 as a JSON number are defects, not prices. */
function readAmount(entry: unknown, version: 1 | 2): Amount {
  const names = version === 2 ? ["amount", "maxAmountRequired"] : ["maxAmountRequired", "amount"];
  const present = names.map((name) => get(entry, name)).filter((value) => value != null && value !== "");
  if (present.length === 0) return { atomic: null, defects: ["missing_amount"] };
  const atomic = parseAtomic(present[0]);
  const defects: DefectCode[] = atomic === null ? ["bad_amount"] : [];
  if (present.length > 1 && String(present[0]) !== String(present[1])) defects.push("both_amounts");
  return { atomic, defects };
}

function networkDefect(network: Network, version: 1 | 2): DefectCode[] {
  if (network.form === "unknown") return version === 2 ? ["bad_network"] : [];
  const fits = version === 1 ? network.form === "name" : network.form === "caip2";
  return fits ? [] : ["network_form"];
}

/** A contract or mint, without a CAIP-19 prefix. A symbol ("USDC") stays a symbol: the contract is never guessed. */
function readAsset(entry: unknown, network: string): { asset: string | null; defects: DefectCode[] } {
  const named = text(get(entry, "asset"), 200);
  if (!named) return { asset: null, defects: ["bad_asset"] };
  const caip19 = /^[^/\s]+\/[a-z0-9]+:(.+)$/.exec(named);
  const asset = caip19 ? caip19[1]! : named;
  const contract = network.startsWith("eip155:")
    ? /^0x[0-9a-fA-F]{40}$/.test(asset)
    : asset.length >= 20 || asset.includes(":");
  const wrong = caip19 || !contract || isOtherNetworksUsdc(network, asset);
  return { asset, defects: wrong ? ["bad_asset"] : [] };
}

function readTimeout(entry: unknown): { seconds: number | null; usable: number; defects: DefectCode[] } {
  const value = get(entry, "maxTimeoutSeconds");
  if (!Number.isSafeInteger(value)) return { seconds: null, usable: DEFAULT_TIMEOUT_S, defects: ["bad_timeout"] };
  const seconds = value as number;
  return seconds >= 1 && seconds <= MAX_TIMEOUT_S
    ? { seconds, usable: seconds, defects: [] }
    : { seconds, usable: DEFAULT_TIMEOUT_S, defects: ["bad_timeout"] };
}

const BROKEN: Offer = {
  scheme: "",
  network: "",
  network_raw: "",
  asset: null,
  pay_to: null,
  amount_atomic: null,
  decimals: null,
  price: null,
  max_timeout_s: null,
  payable: false,
};

/** Money of an amount, where we know what the asset is worth. */
export function priceOf(atomic: bigint | null, decimals: number | null): string | null {
  if (atomic === null || decimals === null) return null;
  const micro = atomicToMicro(atomic, decimals);
  return micro === null ? null : formatMoney(micro);
}

/**
 * Reads one x402 entry, version 1 or 2, whatever it is. Never throws. `payable` is what a rail may be offered; whether
 * ours would sign it is the rail's to say.
 */
export function readEntry(entry: unknown, version: 1 | 2): ReadEntry {
  if (!isObject(entry)) return { offer: BROKEN, valid: false, payable: null, defects: ["bad_entry"] };
  const scheme = text(get(entry, "scheme"), 60);
  const network = readNetwork(get(entry, "network"));
  const amount = readAmount(entry, version);
  const id = network?.id ?? "";
  const { asset, defects: assetDefects } = readAsset(entry, id);
  const timeout = readTimeout(entry);
  const payTo = text(get(entry, "payTo"), 200);
  const payToOk = payTo !== undefined && looksLikeAddress(id, payTo);
  const extra = get(entry, "extra");
  const defects: DefectCode[] = [...amount.defects, ...assetDefects, ...timeout.defects];
  if (!scheme || !network) defects.push("bad_entry");
  if (network) defects.push(...networkDefect(network, version));
  if (!payToOk) defects.push("bad_pay_to");
  if (
    scheme === "exact" &&
    id.startsWith("eip155:") &&
    !(text(get(extra, "name"), 99) && text(get(extra, "version"), 99))
  )
    defects.push("missing_domain");
  const decimals = decimalsOf(id, asset);
  const offer: Offer = {
    scheme: scheme ?? "",
    network: id,
    network_raw: network?.raw ?? "",
    asset,
    pay_to: payTo ?? null,
    amount_atomic: amount.atomic === null ? null : amount.atomic.toString(),
    decimals,
    price: priceOf(amount.atomic, decimals),
    max_timeout_s: timeout.seconds,
    payable: false,
  };
  const valid = Boolean(scheme && network && payToOk && amount.atomic !== null);
  const payable: PayableEntry | null =
    valid && asset !== null
      ? {
          x402Version: version,
          scheme: scheme!,
          network: id,
          asset,
          payTo: payTo!,
          amountAtomic: amount.atomic!,
          maxTimeoutSeconds: timeout.usable,
          extra: isObject(extra) ? extra : {},
          raw: entry,
        }
      : null;
  return { offer, valid, payable, defects };
}
