import type { PayableEntry } from "../../../infra/rails/rails.ts";
import type { Offer } from "../../record/bodies.ts";
import { atomicToMicro, formatMoney, parseAtomic } from "../../record/money.ts";
import type { DefectCode } from "../../record/vocabulary.ts";
import { get, isObject, parseBase64Json, parseJson, text } from "../json.ts";
import {
  type AssetForm,
  assetForm,
  decimalsOf,
  hasKnownAddresses,
  isOtherNetworksUsdc,
  looksLikeAddress,
  type Network,
  readNetwork,
  usdcOf,
} from "./networks.ts";

/** One entry of `accepts`, read by itself: a bad one beside good ones costs nobody but itself. */
export interface ReadEntry {
  offer: Offer;
  /** Complete enough to be paid by somebody: scheme, network, whole amount, payout address. */
  valid: boolean;
  /** What a rail may be asked to sign; null when the entry is not valid. */
  payable: PayableEntry | null;
  defects: DefectCode[];
  /**
   * Those of them that only terms are held to: what an entry leaves out, and another way to write what it means. A row of
   * a catalogue may have no room for it, and its words are the catalogue's.
   */
  ofTermsOnly: DefectCode[];
}

/** Is this member of an entry left out? Catalogues and hand-written documents write nothing in several ways. */
const isLeftOut = (entry: unknown, name: string): boolean => {
  const value = get(entry, name);
  return value === undefined || value === null || value === "";
};

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
  if (network.form === "unknown") return version === 2 || !network.isText ? ["bad_network"] : [];
  const fits = version === 1 ? network.form === "name" : network.form === "caip2";
  return fits ? [] : ["network_form"];
}

interface Asset {
  asset: string | null;
  form: AssetForm | "missing";
  defects: DefectCode[];
}

/**
 * A contract or mint, without a CAIP-19 prefix. A symbol ("USDC") stays a symbol: the contract is never guessed, and where
 * assets have contracts a payment needs it.
 */
function readAsset(entry: unknown, network: string): Asset {
  const named = text(get(entry, "asset"), 200);
  if (!named) return { asset: null, form: "missing", defects: ["bad_asset"] };
  const caip19 = /^[^/\s]+\/[a-z0-9]+:(.+)$/.exec(named);
  const asset = caip19 ? caip19[1]! : named;
  const form = assetForm(network, asset, usdcOf(network) !== undefined);
  const known = form === "contract" || (!hasKnownAddresses(network) && isPayableIn(form));
  const wrong = caip19 || !known || isOtherNetworksUsdc(network, asset);
  return { asset, form, defects: wrong ? ["bad_asset"] : [] };
}

/** Can somebody pay in an asset that is named like this, who knows what is meant? */
export const isPayableIn = (form: AssetForm | "missing"): boolean =>
  form === "contract" || form === "code" || form === "symbol";

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
function readEntry(entry: unknown, { form: version, isKnown }: Version): ReadEntry {
  if (!isObject(entry)) return { offer: BROKEN, valid: false, payable: null, defects: ["bad_entry"], ofTermsOnly: [] };
  const scheme = text(get(entry, "scheme"), 60);
  const network = readNetwork(get(entry, "network"));
  const amount = readAmount(entry, version);
  const id = network?.id ?? "";
  const { asset, form, defects: assetDefects } = readAsset(entry, id);
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
  const valid = Boolean(isKnown && scheme && network && payToOk && amount.atomic !== null && isPayableIn(form));
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
  const meant: DefectCode[] = isPayableIn(form) && form !== "contract" ? ["bad_asset"] : [];
  const named: DefectCode[] = network?.isText ? ["bad_network", "network_form"] : [];
  const ofTermsOnly = new Set([...leftOut(entry), ...meant, ...named]);
  return { offer, valid, payable, defects, ofTermsOnly: defects.filter((code) => ofTermsOnly.has(code)) };
}

/** Defects and the members whose absence alone makes them. */
const MADE_BY_ABSENCE: readonly (readonly [DefectCode, readonly string[]])[] = [
  ["missing_amount", ["amount", "maxAmountRequired"]],
  ["bad_asset", ["asset"]],
  ["bad_pay_to", ["payTo"]],
  ["bad_timeout", ["maxTimeoutSeconds"]],
];

/** A domain of which one half is written is as little there as none; an entry is bad when it leaves out what names it. */
function leftOut(entry: unknown): DefectCode[] {
  const absent = MADE_BY_ABSENCE.filter(([, names]) => names.every((name) => isLeftOut(entry, name)));
  const nameless: DefectCode[] = isLeftOut(entry, "scheme") || isLeftOut(entry, "network") ? ["bad_entry"] : [];
  return [...absent.map(([code]) => code), ...nameless, "missing_domain"];
}

/** Offers that are read of one 402; the rest are dropped (the record takes no more). */
export const MAX_OFFERS = 64;
/** Longest body that is read. */
export const MAX_BODY = 1024 * 1024;

/** Headers with lower-case names, and the body's bytes, of any answer with status 402. */
export interface Answer402 {
  headers: Record<string, string>;
  body: Uint8Array;
}

export interface Envelope {
  value: unknown;
  raw: string | Uint8Array;
  from: "header" | "body";
}

export const looksLikeEntry = (value: unknown): boolean =>
  isObject(value) && typeof value.scheme === "string" && value.network !== undefined;

const looksLikeTerms = (value: unknown): boolean =>
  isObject(value) && (value.accepts !== undefined || value.x402Version !== undefined || looksLikeEntry(value));

const headOf = (body: Uint8Array): string => Buffer.from(body.subarray(0, 4096)).toString("latin1");

/** Version 2 speaks in the header, version 1 in the body; some sellers put either in the other's place. */
function envelopes(answer: Answer402): { found: Envelope[]; malformed: boolean } {
  const found: Envelope[] = [];
  const header = answer.headers["payment-required"];
  let malformed = answer.body.length > MAX_BODY;
  if (header !== undefined) {
    const value = parseBase64Json(header) ?? parseJson(header);
    if (looksLikeTerms(value)) found.push({ value, raw: header, from: "header" });
    else malformed = true;
  }
  const body = answer.body.length <= MAX_BODY ? parseJson(answer.body) : undefined;
  const bare = Array.isArray(body) && looksLikeEntry(body[0]) ? { accepts: body } : body;
  if (looksLikeTerms(bare)) found.push({ value: bare, raw: answer.body, from: "body" });
  // JSON that broke off in the middle of its terms is not the same as having none.
  else if (body === undefined && /"(?:accepts|x402Version)"/.test(headOf(answer.body))) malformed = true;
  return { found, malformed };
}

/** The version terms are written in. */
interface Version {
  /** As stated or inferred; null where what is stated is no number that can be written down. */
  said: number | null;
  /** Whose names of members are read. */
  form: 1 | 2;
  /** Does it stand there as it should? */
  isStated: boolean;
  /** Is it one of the two that are specified? Of another one nobody knows what its members mean. */
  isKnown: boolean;
}

export interface X402 {
  version: number | null;
  entries: ReadEntry[];
  raw: Envelope | null;
  /** Does it say itself which version it is written in? */
  isVersionStated: boolean;
  defects: DefectCode[];
}

/** By its members, where no version is stated. */
function inferredForm(first: unknown, from: "header" | "body"): 1 | 2 {
  if (get(first, "maxAmountRequired") !== undefined) return 1;
  const caip2 = /^[a-z0-9-]{3,8}:/.test(String(get(first, "network") ?? ""));
  return from === "header" || get(first, "amount") !== undefined || caip2 ? 2 : 1;
}

function versionOf(value: unknown, first: unknown, from: "header" | "body"): Version {
  const stated = get(value, "x402Version");
  const number = typeof stated === "string" && /^\d{1,6}$/.test(stated) ? Number(stated) : stated;
  if (number === 1 || number === 2) return { said: number, form: number, isStated: stated === number, isKnown: true };
  const form = inferredForm(first, from);
  if (typeof number !== "number") return { said: form, form, isStated: false, isKnown: true };
  return { said: Number.isSafeInteger(number) ? number : null, form, isStated: false, isKnown: false };
}

export function readEnvelope(envelope: Envelope): X402 {
  const accepts = get(envelope.value, "accepts");
  const bare = accepts === undefined && looksLikeEntry(envelope.value);
  const list = Array.isArray(accepts) ? accepts : isObject(accepts) ? [accepts] : bare ? [envelope.value] : [];
  const version = versionOf(envelope.value, list[0], envelope.from);
  const defects: DefectCode[] = version.isStated ? [] : ["bad_version"];
  if (accepts !== undefined && !Array.isArray(accepts)) defects.push("malformed_terms");
  if (list.length === 0) defects.push("no_terms");
  if (version.said === 2 && envelope.from === "body" && list.length > 0) defects.push("terms_in_body");
  const entries = list.slice(0, MAX_OFFERS).map((entry) => readEntry(entry, version));
  return { version: version.said, entries, raw: envelope, isVersionStated: version.isStated, defects };
}

/** Header before body; the other one only when the first holds nothing that anybody could pay. */
export function readX402(answer: Answer402): X402 {
  const { found, malformed } = envelopes(answer);
  const read = found.map(readEnvelope);
  const best = read.find((one) => one.entries.some((entry) => entry.valid)) ?? read[0];
  const defects: DefectCode[] = malformed ? ["malformed_terms"] : [];
  if (!best) return { version: 1, entries: [], raw: null, isVersionStated: false, defects };
  return { ...best, defects: [...defects, ...best.defects] };
}
