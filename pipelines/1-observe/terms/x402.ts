import type { PayableEntry } from "../../../infra/rails/rails.ts";
import type { Offer } from "../../record/bodies.ts";
import { get, isObject, text } from "../../record/json.ts";
import { atomicToMicro, formatMoney } from "../../record/money.ts";
import {
  type Answer402,
  entriesOf,
  type FoundTerms,
  findTerms,
  MAX_OFFERS,
  type Members,
  readMembers,
  type Version,
  versionOf,
} from "../../record/terms/entries.ts";
import {
  decimalsOf,
  hasKnownAddresses,
  isOtherNetworksUsdc,
  isPayableIn,
  looksLikeAddress,
  type Network,
} from "../../record/terms/networks.ts";
import type { DefectCode } from "../../record/vocabulary.ts";

/** One entry of `accepts`. Each is read alone, so that a bad one does not spoil the others. */
export interface ParsedEntry {
  offer: Offer;
  /** Is it complete enough to be paid by somebody: scheme, network, whole amount, payout address? */
  valid: boolean;
  /** The form that a rail signs; null when the entry is not valid. */
  payable: PayableEntry | null;
  defects: DefectCode[];
  /**
   * Those of the defects that only count in terms: members that are left out, and other ways to write what is meant. A
   * catalogue's row may have no room for those members, and its wording is the catalogue's.
   */
  ofTermsOnly: DefectCode[];
}

/** Is this member left out? Catalogues and hand-written documents also write null or an empty text for that. */
const isLeftOut = (entry: unknown, name: string): boolean => {
  const value = get(entry, name);
  return value === undefined || value === null || value === "";
};

/** Longest time that a seller may give a payment, seconds; a longer one is a defect (1781582577 and 345600 exist). */
const MAX_TIMEOUT_S = 86_400;
/** The time for an entry without a usable one, seconds: the usual short one. */
const DEFAULT_TIMEOUT_S = 60;

function networkDefect(network: Network, version: 1 | 2): DefectCode[] {
  if (network.form === "unknown") return version === 2 || !network.isText ? ["bad_network"] : [];
  const fits = version === 1 ? network.form === "name" : network.form === "caip2";
  return fits ? [] : ["network_form"];
}

function amountDefects({ atomic, isMissing, isTwofold }: Members["amount"]): DefectCode[] {
  if (isMissing) return ["missing_amount"];
  return [...(atomic === null ? (["bad_amount"] as const) : []), ...(isTwofold ? (["both_amounts"] as const) : [])];
}

function assetDefects({ asset, form, isCaip19 }: Members["asset"], network: string): DefectCode[] {
  if (asset === null) return ["bad_asset"];
  const known = form === "contract" || (!hasKnownAddresses(network) && isPayableIn(form));
  return isCaip19 || !known || isOtherNetworksUsdc(network, asset) ? ["bad_asset"] : [];
}

/** Transfer methods of `exact` on EVM chains whose payer signs a domain other than the token's. */
const OWN_DOMAIN: readonly unknown[] = ["permit2", "erc7710"];

/** What a client needs of `extra` to build a payment by the scheme `exact`, and does not find there. */
function extraDefects(network: string, extra: unknown): DefectCode[] {
  if (network.startsWith("solana:")) {
    const feePayer = text(get(extra, "feePayer"), 99);
    return feePayer !== undefined && looksLikeAddress(network, feePayer) ? [] : ["missing_fee_payer"];
  }
  if (!network.startsWith("eip155:") || OWN_DOMAIN.includes(get(extra, "assetTransferMethod"))) return [];
  return text(get(extra, "name"), 99) && text(get(extra, "version"), 99) ? [] : ["missing_domain"];
}

/** May a payment be given this many seconds? */
const isUsable = (seconds: number | null): seconds is number =>
  seconds !== null && seconds >= 1 && seconds <= MAX_TIMEOUT_S;

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

/** An amount as money, where the decimals of its asset are known. */
export function priceOf(atomic: bigint | null, decimals: number | null): string | null {
  if (atomic === null || decimals === null) return null;
  const micro = atomicToMicro(atomic, decimals);
  return micro === null ? null : formatMoney(micro);
}

/**
 * Reads one x402 entry, version 1 or 2. Never throws. `payable` is the form that a rail signs; the rail decides whether
 * it would.
 */
function readEntry(entry: unknown, { form: version, isKnown }: Version): ParsedEntry {
  if (!isObject(entry)) return { offer: BROKEN, valid: false, payable: null, defects: ["bad_entry"], ofTermsOnly: [] };
  const { scheme, network, amount, asset: written, payTo, timeout_s } = readMembers(entry, version);
  const { asset, form } = written;
  const id = network?.id ?? "";
  const payToOk = payTo !== null && looksLikeAddress(id, payTo);
  const extra = get(entry, "extra");
  const defects: DefectCode[] = [...amountDefects(amount), ...assetDefects(written, id)];
  if (!isUsable(timeout_s)) defects.push("bad_timeout");
  if (!scheme || !network) defects.push("bad_entry");
  if (network) defects.push(...networkDefect(network, version));
  if (!payToOk) defects.push("bad_pay_to");
  const lacking = scheme === "exact" ? extraDefects(id, extra) : [];
  defects.push(...lacking);
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
  const isBuildable = !lacking.includes("missing_fee_payer");
  const valid = Boolean(
    isKnown && scheme && network && payToOk && amount.atomic !== null && isPayableIn(form) && isBuildable,
  );
  const payable: PayableEntry | null =
    valid && asset !== null
      ? {
          x402Version: version,
          scheme: scheme!,
          network: id,
          asset,
          payTo: payTo!,
          amountAtomic: amount.atomic!,
          maxTimeoutSeconds: isUsable(timeout_s) ? timeout_s : DEFAULT_TIMEOUT_S,
          extra: isObject(extra) ? extra : {},
          raw: entry,
        }
      : null;
  const meant: DefectCode[] = isPayableIn(form) && form !== "contract" ? ["bad_asset"] : [];
  const named: DefectCode[] = network?.isText ? ["bad_network", "network_form"] : [];
  const ofTermsOnly = new Set([...leftOut(entry), ...meant, ...named]);
  return { offer, valid, payable, defects, ofTermsOnly: defects.filter((code) => ofTermsOnly.has(code)) };
}

/** Defects, each with the members whose absence alone causes it. */
const MADE_BY_ABSENCE: readonly (readonly [DefectCode, readonly string[]])[] = [
  ["missing_amount", ["amount", "maxAmountRequired"]],
  ["bad_asset", ["asset"]],
  ["bad_pay_to", ["payTo"]],
  ["bad_timeout", ["maxTimeoutSeconds"]],
];

/**
 * The defects of an entry that come from members it leaves out. Half of an EIP-712 domain counts as none; an entry without
 * scheme or network is a bad entry.
 */
function leftOut(entry: unknown): DefectCode[] {
  const absent = MADE_BY_ABSENCE.filter(([, names]) => names.every((name) => isLeftOut(entry, name)));
  const nameless: DefectCode[] = isLeftOut(entry, "scheme") || isLeftOut(entry, "network") ? ["bad_entry"] : [];
  return [...absent.map(([code]) => code), ...nameless, "missing_domain", "missing_fee_payer"];
}

export interface X402 {
  version: number | null;
  entries: ParsedEntry[];
  raw: FoundTerms | null;
  /** Does it name the version in which it is written? */
  isVersionStated: boolean;
  defects: DefectCode[];
}

export function readTerms(envelope: FoundTerms): X402 {
  const accepts = get(envelope.value, "accepts");
  const list = entriesOf(envelope.value);
  const version = versionOf(envelope.value, list[0], envelope.from);
  const defects: DefectCode[] = version.isStated ? [] : ["bad_version"];
  if (accepts !== undefined && !Array.isArray(accepts)) defects.push("malformed_terms");
  if (list.length === 0) defects.push("no_terms");
  if (version.number === 2 && envelope.from === "body" && list.length > 0) defects.push("terms_in_body");
  const entries = list.slice(0, MAX_OFFERS).map((entry) => readEntry(entry, version));
  return { version: version.number, entries, raw: envelope, isVersionStated: version.isStated, defects };
}

/** Reads the terms of an answer: the header's, or the body's when the header holds nothing that anybody could pay. */
export function readX402(answer: Answer402): X402 {
  const { found, malformed } = findTerms(answer);
  const read = found.map(readTerms);
  const best = read.find((one) => one.entries.some((entry) => entry.valid)) ?? read[0];
  const defects: DefectCode[] = malformed ? ["malformed_terms"] : [];
  if (!best) return { version: 1, entries: [], raw: null, isVersionStated: false, defects };
  return { ...best, defects: [...defects, ...best.defects] };
}
