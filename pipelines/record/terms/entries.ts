import { get, isObject, parseBase64Json, parseJson, parseLooseJson, text } from "../json.ts";
import { parseAtomic } from "../money.ts";
import { type AssetForm, classifyAsset, type Network, readNetwork, usdcOf } from "./networks.ts";

/**
 * Finds the x402 payment terms in a 402, their version, and the members of their entries. Each entry of the list
 * `accepts` is one way to pay.
 */

/** Largest number of offers of one 402 that are read, since the record of a 402 holds no more. The rest is dropped. */
export const MAX_OFFERS = 64;
/** Longest body that is read, bytes. */
export const MAX_BODY = 1024 * 1024;

/** An answer with status 402: headers with lower-case names, and the body's bytes. */
export interface Answer402 {
  headers: Record<string, string>;
  body: Uint8Array;
}

/** x402 terms that were found in a 402: the parsed value, the text or bytes as received, and their place. */
export interface FoundTerms {
  value: unknown;
  raw: string | Uint8Array;
  from: "header" | "body";
}

export const looksLikeEntry = (value: unknown): boolean =>
  isObject(value) && typeof value.scheme === "string" && value.network !== undefined;

const looksLikeTerms = (value: unknown): boolean =>
  isObject(value) && (value.accepts !== undefined || value.x402Version !== undefined || looksLikeEntry(value));

const beginningOf = (body: Uint8Array): string => new TextDecoder("latin1").decode(body.subarray(0, 4096));

/**
 * Finds the x402 terms in a 402, both in the header and in the body: version 2 puts them in the header, version 1 in
 * the body, and some sellers swap the two.
 * @returns `malformed`: true if the header, or a body that names terms, cannot be read as terms, and also if the body is
 * longer than {@link MAX_BODY}
 */
export function findTerms(answer: Answer402): { found: FoundTerms[]; malformed: boolean } {
  const found: FoundTerms[] = [];
  const header = answer.headers["payment-required"];
  let malformed = answer.body.length > MAX_BODY;
  if (header !== undefined) {
    const value = parseBase64Json(header) ?? parseJson(header);
    if (looksLikeTerms(value)) found.push({ value, raw: header, from: "header" });
    else malformed = true;
  }
  const body = answer.body.length <= MAX_BODY ? parseLooseJson(answer.body) : undefined;
  const wrappedBody = Array.isArray(body) && looksLikeEntry(body[0]) ? { accepts: body } : body;
  if (looksLikeTerms(wrappedBody)) found.push({ value: wrappedBody, raw: answer.body, from: "body" });
  // A body that names terms and is no JSON, for example because it was cut off, is malformed. That is a different
  // defect from a body without terms.
  else if (body === undefined && /"(?:accepts|x402Version)"/.test(beginningOf(answer.body))) malformed = true;
  return { found, malformed };
}

/**
 * Returns the entries of terms: the list `accepts`; a single object in `accepts`; or the terms themselves, if they look
 * like an entry.
 */
export function entriesOf(terms: unknown): unknown[] {
  const accepts = get(terms, "accepts");
  if (Array.isArray(accepts)) return accepts;
  if (isObject(accepts)) return [accepts];
  return accepts === undefined && looksLikeEntry(terms) ? [terms] : [];
}

/** The version in which terms are written. */
export interface Version {
  /**
   * The version that the terms state, else the inferred one; null if the stated one is a number that the record
   * cannot hold, such as 1.5.
   */
  number: number | null;
  /** The version by whose member names the entries are read. */
  form: 1 | 2;
  /** Is the version stated as the JSON number 1 or 2? */
  isStated: boolean;
  /** Is it version 1 or 2? The members of any other version have no known meaning. */
  isKnown: boolean;
}

/** Infers the version from the members of the first entry, for terms that state no version. */
function inferForm(entry: unknown, from: FoundTerms["from"]): 1 | 2 {
  if (get(entry, "maxAmountRequired") !== undefined) return 1;
  const isCaip2 = /^[a-z0-9-]{3,8}:/.test(String(get(entry, "network") ?? ""));
  return from === "header" || get(entry, "amount") !== undefined || isCaip2 ? 2 : 1;
}

/** Determines the version of terms. @param value the terms @param entry the first of them */
export function determineVersion(value: unknown, entry: unknown, from: FoundTerms["from"]): Version {
  const statedVersion = get(value, "x402Version");
  const number =
    typeof statedVersion === "string" && /^\d{1,6}$/.test(statedVersion) ? Number(statedVersion) : statedVersion;
  if (number === 1 || number === 2) return { number, form: number, isStated: statedVersion === number, isKnown: true };
  const form = inferForm(entry, from);
  if (typeof number !== "number") return { number: form, form, isStated: false, isKnown: true };
  return { number: Number.isSafeInteger(number) ? number : null, form, isStated: false, isKnown: false };
}

const AMOUNT_MEMBERS = { 1: ["maxAmountRequired", "amount"], 2: ["amount", "maxAmountRequired"] } as const;

interface Amount {
  atomic: bigint | null;
  isMissing: boolean;
  /** Are both member names present, with different values? */
  isTwofold: boolean;
}

/** Reads an amount without converting it: "0.001", "$1" and the JSON number 40000 are defects, not prices. */
function readAmount(entry: unknown, form: 1 | 2): Amount {
  const presentValues = AMOUNT_MEMBERS[form]
    .map((name) => get(entry, name))
    .filter((value) => value != null && value !== "");
  const isTwofold = presentValues.length > 1 && String(presentValues[0]) !== String(presentValues[1]);
  return { atomic: parseAtomic(presentValues[0]), isMissing: presentValues.length === 0, isTwofold };
}

interface Asset {
  asset: string | null;
  form: AssetForm | "missing";
  /** Was the asset written in CAIP-19 form, that is, the chain's id, a slash, a namespace, a colon and the contract? */
  isCaip19: boolean;
}

/**
 * Reads a contract or mint and removes a CAIP-19 prefix. A symbol ("USDC") stays a symbol: its contract is never
 * guessed, even if a payment needs the contract.
 */
function readAsset(entry: unknown, network: string): Asset {
  const assetText = text(get(entry, "asset"), 200);
  if (!assetText) return { asset: null, form: "missing", isCaip19: false };
  const caip19 = /^[^/\s]+\/[a-z0-9]+:(.+)$/.exec(assetText);
  const asset = caip19 ? caip19[1]! : assetText;
  return { asset, form: classifyAsset(network, asset, usdcOf(network) !== undefined), isCaip19: caip19 !== null };
}

/** The members of one entry of `accepts`. Each is read independently of the others. */
export interface Members {
  scheme: string | null;
  network: Network | null;
  amount: Amount;
  asset: Asset;
  payTo: string | null;
  /** `maxTimeoutSeconds`, which bounds the validity of the payment; null if it is no whole number. */
  timeout_s: number | null;
}

/** Reads the members of an entry, version 1 or 2. Never throws. */
export function readMembers(entry: unknown, form: 1 | 2): Members {
  const network = readNetwork(get(entry, "network"));
  const timeout = get(entry, "maxTimeoutSeconds");
  return {
    scheme: text(get(entry, "scheme"), 60) ?? null,
    network,
    amount: readAmount(entry, form),
    asset: readAsset(entry, network?.id ?? ""),
    payTo: text(get(entry, "payTo"), 200) ?? null,
    timeout_s: Number.isSafeInteger(timeout) ? (timeout as number) : null,
  };
}
