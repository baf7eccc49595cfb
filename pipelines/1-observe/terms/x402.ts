import type { PayableEntry } from "../../../infra/rails/rails.ts";
import type { Offer } from "../../record/bodies.ts";
import { get, isObject, text } from "../../record/json.ts";
import { atomicToMicro, formatMoney } from "../../record/money.ts";
import {
  type Answer402,
  determineVersion,
  entriesOf,
  type FoundTerms,
  findTerms,
  MAX_OFFERS,
  type Members,
  readMembers,
  type Version,
} from "../../record/terms/entries.ts";
import {
  decimalsOf,
  hasKnownAddresses,
  isOtherNetworksUsdc,
  looksLikeAddress,
  mayBePayableIn,
  type Network,
} from "../../record/terms/networks.ts";
import type { DefectCode } from "../../record/vocabulary.ts";

/**
 * One entry of `accepts` (one way to pay). Each is read independently, so that a bad entry does not affect the others.
 */
export interface ParsedEntry {
  offer: Offer;
  /** Is the entry complete enough that some client could pay it: scheme, network, amount, payout address? */
  isValid: boolean;
  /**
   * The form of the entry that a rail (our side of a payment network) signs; null when the entry is not valid, or its
   * amount is in no atomic units.
   */
  payable: PayableEntry | null;
  defects: DefectCode[];
  /**
   * The defects that count only in the terms of a 402, and not in a listing: members that are left out, and other
   * spellings of a valid value. A catalogue's row may have no place for these members, and the catalogue chooses its
   * spelling.
   */
  defectsOfTermsOnly: DefectCode[];
}

/**
 * Is this member missing? null and an empty text count as missing, since catalogues and hand-written documents use
 * them.
 */
const isMissing = (entry: unknown, name: string): boolean => {
  const value = get(entry, name);
  return value === undefined || value === null || value === "";
};

/**
 * Longest time that a seller may allow for a payment, seconds. A longer time is a defect (sellers write 345600 and
 * 1781582577).
 */
const MAX_TIMEOUT_S = 86_400;
/** Time that is allowed for a payment if an entry has no usable `maxTimeoutSeconds`, seconds. */
const DEFAULT_TIMEOUT_S = 60;

function findNetworkDefects(network: Network, version: 1 | 2): DefectCode[] {
  if (network.form === "unknown") return version === 2 || !network.isText ? ["bad_network"] : [];
  const isRightForm = version === 1 ? network.form === "name" : network.form === "caip2";
  return isRightForm ? [] : ["network_form"];
}

/**
 * Is the amount a decimal number of a currency that was issued on the XRP Ledger (scheme_exact_xrpl.md)? It is valid,
 * but no number of atomic units, so that the offer has no amount and no price in the record, and our rails never pay it.
 */
const isIssuedValue = (entry: unknown, network: string, asset: string | null): boolean =>
  network.startsWith("xrpl:") &&
  asset !== null &&
  !/^xrp$/i.test(asset) &&
  /^(?=.*[1-9])\d{1,40}\.\d{1,40}$/.test(text(get(entry, "amount"), 99) ?? "");

function findAmountDefects({ isMissing, isTwofold }: Members["amount"], isAmountValid: boolean): DefectCode[] {
  if (isMissing) return ["missing_amount"];
  return [...(isAmountValid ? [] : (["bad_amount"] as const)), ...(isTwofold ? (["both_amounts"] as const) : [])];
}

function findAssetDefects({ asset, form, isCaip19 }: Members["asset"], network: string): DefectCode[] {
  if (asset === null) return ["bad_asset"];
  const isKnownForm = form === "contract" || (!hasKnownAddresses(network) && mayBePayableIn(form, network, asset));
  return isCaip19 || !isKnownForm || isOtherNetworksUsdc(network, asset) ? ["bad_asset"] : [];
}

/**
 * Transfer methods of the scheme `exact` on EVM chains in which the payer signs for another EIP-712 domain than the
 * token's.
 */
const METHODS_WITH_OWN_DOMAIN: readonly unknown[] = ["permit2", "erc7710"];

/** Does a payer of this offer of scheme `exact` sign for the token's own EIP-712 domain, as `extra` names it? */
export const isSignedForToken = (network: string, extra: unknown): boolean =>
  network.startsWith("eip155:") && !METHODS_WITH_OWN_DOMAIN.includes(get(extra, "assetTransferMethod"));

/** Finds members that are missing in `extra` and that a client needs to build a payment of scheme `exact`. */
function findExtraDefects(network: string, extra: unknown): DefectCode[] {
  if (network.startsWith("solana:")) {
    const feePayer = text(get(extra, "feePayer"), 99);
    return feePayer !== undefined && looksLikeAddress(network, feePayer) ? [] : ["missing_fee_payer"];
  }
  if (!isSignedForToken(network, extra)) return [];
  return text(get(extra, "name"), 99) && text(get(extra, "version"), 99) ? [] : ["missing_domain"];
}

/** May a payment have this many seconds? */
const isUsableTimeout = (seconds: number | null): seconds is number =>
  seconds !== null && seconds >= 1 && seconds <= MAX_TIMEOUT_S;

const EMPTY_OFFER: Offer = {
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

/** Converts an amount to money; null if the decimals of its asset are not known. */
export function priceOf(atomic: bigint | null, decimals: number | null): string | null {
  if (atomic === null || decimals === null) return null;
  const micro = atomicToMicro(atomic, decimals);
  return micro === null ? null : formatMoney(micro);
}

/**
 * Reads one x402 entry, version 1 or 2. Never throws. `payable` is the form that a rail signs. Whether our rail can
 * sign it is decided later.
 */
function readEntry(entry: unknown, { form: version, isKnown }: Version): ParsedEntry {
  if (!isObject(entry))
    return { offer: EMPTY_OFFER, isValid: false, payable: null, defects: ["bad_entry"], defectsOfTermsOnly: [] };
  const { scheme, network, amount, asset: assetMember, payTo, timeout_s } = readMembers(entry, version);
  const { asset, form } = assetMember;
  const id = network?.id ?? "";
  const isPayToValid = payTo !== null && looksLikeAddress(id, payTo);
  const extra = get(entry, "extra");
  const isAmountValid = amount.atomic !== null || isIssuedValue(entry, id, asset);
  const defects: DefectCode[] = [...findAmountDefects(amount, isAmountValid), ...findAssetDefects(assetMember, id)];
  if (!isUsableTimeout(timeout_s)) defects.push("bad_timeout");
  if (!scheme || !network) defects.push("bad_entry");
  if (network) defects.push(...findNetworkDefects(network, version));
  if (!isPayToValid) defects.push("bad_pay_to");
  const extraDefects = scheme === "exact" ? findExtraDefects(id, extra) : [];
  defects.push(...extraDefects);
  const decimals = decimalsOf(id, asset);
  const offer: Offer = {
    scheme: scheme ?? "",
    network: id,
    network_raw: network?.raw ?? "",
    asset,
    pay_to: payTo,
    amount_atomic: amount.atomic === null ? null : amount.atomic.toString(),
    decimals,
    price: priceOf(amount.atomic, decimals),
    max_timeout_s: timeout_s,
    payable: false,
  };
  const isAssetUsable = mayBePayableIn(form, id, asset);
  const isBuildable = !extraDefects.includes("missing_fee_payer");
  const isValid = Boolean(
    isKnown && scheme && network && isPayToValid && isAmountValid && isAssetUsable && isBuildable,
  );
  const payable: PayableEntry | null =
    isValid && asset !== null && amount.atomic !== null
      ? {
          x402Version: version,
          scheme: scheme!,
          network: id,
          asset,
          payTo: payTo!,
          amountAtomic: amount.atomic,
          maxTimeoutSeconds: isUsableTimeout(timeout_s) ? timeout_s : DEFAULT_TIMEOUT_S,
          extra: isObject(extra) ? extra : {},
          raw: entry,
        }
      : null;
  const assetOnlyOfTerms: DefectCode[] = isAssetUsable && form !== "contract" ? ["bad_asset"] : [];
  const networkOnlyOfTerms: DefectCode[] = network?.isText ? ["bad_network", "network_form"] : [];
  const codesOfTermsOnly = new Set([...absenceDefectsOf(entry), ...assetOnlyOfTerms, ...networkOnlyOfTerms]);
  return {
    offer,
    isValid,
    payable,
    defects,
    defectsOfTermsOnly: defects.filter((code) => codesOfTermsOnly.has(code)),
  };
}

/** Defects that an entry has if all of these members are missing. */
const ABSENCE_DEFECTS: readonly (readonly [DefectCode, readonly string[]])[] = [
  ["missing_amount", ["amount", "maxAmountRequired"]],
  ["bad_asset", ["asset"]],
  ["bad_pay_to", ["payTo"]],
  ["bad_timeout", ["maxTimeoutSeconds"]],
];

/**
 * Returns the codes of the defects that this entry can have only because it leaves out members. These are: each defect
 * of {@link ABSENCE_DEFECTS} whose members are all missing; `bad_entry` if scheme or network is missing; and always
 * `missing_fee_payer` and `missing_domain`. (An EIP-712 domain with only one of its two members counts as left out.)
 */
function absenceDefectsOf(entry: unknown): DefectCode[] {
  const absentMembers = ABSENCE_DEFECTS.filter(([, names]) => names.every((name) => isMissing(entry, name)));
  const entryDefects: DefectCode[] = isMissing(entry, "scheme") || isMissing(entry, "network") ? ["bad_entry"] : [];
  return [...absentMembers.map(([code]) => code), ...entryDefects, "missing_domain", "missing_fee_payer"];
}

/** The x402 terms of a 402 or of a listing. */
export interface X402Terms {
  /** Version that the terms state, or that their members suggest; null if the stated number is not an integer. */
  version: number | null;
  entries: ParsedEntry[];
  /** The terms as they were found in the header or the body; null if there are none. */
  raw: FoundTerms | null;
  /** True if the terms state their version as the JSON number 1 or 2. */
  isVersionStated: boolean;
  defects: DefectCode[];
}

/** Reads all entries of terms that were found in a 402, or in a listing of the same form. */
export function readTerms(foundTerms: FoundTerms): X402Terms {
  const accepts = get(foundTerms.value, "accepts");
  const list = entriesOf(foundTerms.value);
  const version = determineVersion(foundTerms.value, list[0], foundTerms.from);
  const defects: DefectCode[] = version.isStated ? [] : ["bad_version"];
  if (accepts !== undefined && !Array.isArray(accepts)) defects.push("malformed_terms");
  if (list.length === 0) defects.push("no_terms");
  if (version.number === 2 && foundTerms.from === "body" && list.length > 0) defects.push("terms_in_body");
  const entries = list.slice(0, MAX_OFFERS).map((entry) => readEntry(entry, version));
  return { version: version.number, entries, raw: foundTerms, isVersionStated: version.isStated, defects };
}

/**
 * Reads the terms of a 402: those in the header, or those in the body when the header has no offer that a client could
 * pay.
 */
export function readX402(answer: Answer402): X402Terms {
  const { found, malformed } = findTerms(answer);
  const termsList = found.map(readTerms);
  const chosen = termsList.find((one) => one.entries.some((entry) => entry.isValid)) ?? termsList[0];
  const defects: DefectCode[] = malformed ? ["malformed_terms"] : [];
  if (!chosen) return { version: 1, entries: [], raw: null, isVersionStated: false, defects };
  return { ...chosen, defects: [...defects, ...chosen.defects] };
}
