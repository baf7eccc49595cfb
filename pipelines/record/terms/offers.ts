import { get, isBounded, isObject, isPlainBase64, type JsonObject, parseBase64Json, parseJson } from "../json.ts";
import { type Challenge, readChallenges } from "./challenges.ts";
import { entriesOf, looksLikeEntry, MAX_BODY, MAX_OFFERS, readMembers, versionOf } from "./entries.ts";
import { readMppRequest } from "./mpp.ts";
import { hasKnownAddresses, isPayableIn, looksLikeAddress } from "./networks.ts";

/**
 * The offers of a demand for payment, in the form in which a wallet that takes one would sign it. The observer records
 * everything that can be read of terms; this is stricter: a member that a wallet may read differently counts as unread.
 */

/** Members of an offer that decide what is signed. `entry`: the offer as a whole. */
export type OfferMember = "entry" | "scheme" | "network" | "asset" | "amount" | "payTo" | "validity";

/** One way to pay that a demand offers. */
export interface Offer {
  /** CAIP-2 where the name is known, else as the seller wrote it. */
  /** CAIP-2 where the name is known, else as the seller wrote it. */
  network: string | null;
  asset: string | null;
  /** Atomic units of the asset. */
  amount: bigint | null;
  payTo: string | null;
  /** Scheme of x402; for mpp it is `mpp:` and the method, and a slash and the intent if that is not `charge`. */
  scheme: string | null;
  /** Seconds for which a signature made now would be valid; null where the chain has a limit of its own (Solana). */
  validFor_s?: number | null | undefined;
  /** Unix seconds until which it would be valid, where the terms name a time. */
  validUntil_s?: number | null | undefined;
  /** Members that not every wallet reads alike. */
  unread?: readonly OfferMember[] | undefined;
}

/** What a 402, or a tool's answer, demands. */
export interface Demanded {
  offers: Offer[];
  /** Why there may be further offers that were not read; null where everything was read. */
  unread: string | null;
}

/** x402 schemes whose signature covers network, asset, amount, payee and time, and nothing else. */
const SIMPLE = new Set(["exact", "upto"]);

/**
 * Does the offer hold everything that a wallet signs for this scheme? Other schemes have further parts: a channel's
 * deposit, an escrow's deadlines, an invoice, a card.
 */
export const isWholeScheme = ({ scheme, network }: Pick<Offer, "scheme" | "network">): boolean =>
  scheme !== null && (SIMPLE.has(scheme) || (/^mpp:[a-z0-9:_-]+$/.test(scheme) && hasKnownAddresses(network ?? "")));

/** Is a chain's number written so that every wallet reads it alike: without leading zeros, and within exact numbers? */
const isCleanNetwork = (id: string): boolean =>
  /^eip155:/i.test(id) ? /^eip155:[1-9]\d{0,14}$/.test(id) : !/[\s\p{Cc}]/u.test(id);

/**
 * Is the amount a text of digits, under one of its names or both? An empty text, a number or another notation is not.
 */
function wholeAmount(entry: JsonObject): boolean {
  const said = ["amount", "maxAmountRequired"].map((name) => get(entry, name)).filter((value) => value != null);
  return said.length > 0 && said.every((value) => typeof value === "string" && /^\d{1,78}$/.test(value));
}

const isOneAmount = (entry: JsonObject): boolean => {
  const [one, other] = [get(entry, "amount"), get(entry, "maxAmountRequired")];
  return one == null || other == null || BigInt(one as string) === BigInt(other as string);
};

const UNREAD: Offer = {
  ...{ network: null, asset: null, amount: null, payTo: null, scheme: null, validFor_s: null },
  unread: ["entry"],
};

/** Reads an entry of `accepts`. @param form the version whose member names the wallet reads */
export function offerOf(entry: unknown, form: 1 | 2): Offer {
  if (!isObject(entry) || Object.hasOwn(entry, "__proto__")) return UNREAD;
  const { scheme, network, amount, asset, payTo, timeout_s } = readMembers(entry, form);
  const id = network?.id ?? "";
  const onKnown = hasKnownAddresses(id);
  const asWritten = (name: string, read: string | null): boolean => read !== null && get(entry, name) === read;
  const unread: OfferMember[] = [];
  const check = (member: OfferMember, isRead: boolean) => void (isRead || unread.push(member));
  check("scheme", asWritten("scheme", scheme));
  check("network", network?.isText === true && get(entry, "network") === network.raw && isCleanNetwork(id));
  check("amount", amount.atomic !== null && wholeAmount(entry) && isOneAmount(entry));
  check("payTo", asWritten("payTo", payTo) && looksLikeAddress(id, payTo!));
  const isNamed = onKnown ? asset.form === "contract" : isPayableIn(asset.form);
  check("asset", asWritten("asset", asset.asset) && isNamed);
  const hasOwnLimit = !id.startsWith("eip155:") && get(entry, "maxTimeoutSeconds") == null;
  check("validity", hasOwnLimit || (timeout_s !== null && timeout_s >= 1));
  return {
    ...{ network: network === null ? null : id, asset: asset.asset, amount: amount.atomic },
    ...{ payTo, scheme, validFor_s: timeout_s, unread },
  };
}

/** The offers of x402 terms: a decoded header, a body, or what a tool's answer holds; [] for anything else. */
export function offersOf(terms: unknown, from: "header" | "body" = "body"): Offer[] {
  const entries = entriesOf(terms);
  const { form } = versionOf(terms, entries[0], from);
  return entries.slice(0, MAX_OFFERS + 1).map((entry) => offerOf(entry, form));
}

/** Seconds for which the stock client signs where a challenge names no end. */
const STOCK_VALIDITY_S = 300;
const EXPIRES = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})$/;

/** An mpp challenge as a client passes it on, with its request decoded. */
export interface MppChallenge {
  method: string | null;
  intent?: string | null | undefined;
  expires?: string | null | undefined;
  request: unknown;
}

/** Is the chain's number one that every client reads alike? The stock client takes it as it is written. */
function isCleanChain(request: unknown): boolean {
  const chainId = get(request, "methodDetails", "chainId");
  return typeof chainId === "number" || (typeof chainId === "string" && /^[1-9]\d{0,14}$/.test(chainId));
}

/**
 * The offers of an mpp challenge: one for its recipient, and one for each address among which it is split, since each
 * of them is paid.
 */
export function mppOffersOf({ method, intent, expires, request }: MppChallenge): Offer[] {
  const read = readMppRequest(method ?? "", request);
  if (read === null || method === null || !/^[a-z][a-z0-9:_-]*$/.test(method)) return [UNREAD];
  const { network, place, asset, form } = read;
  const until = expires == null ? null : EXPIRES.test(expires) ? Date.parse(expires) / 1000 : Number.NaN;
  const common = {
    ...{ network: network.id === "unknown" ? null : network.id, asset },
    scheme: `mpp:${method}${intent == null || intent === "charge" ? "" : `/${intent}`}`,
    ...{ validFor_s: until === null ? STOCK_VALIDITY_S : null, validUntil_s: until },
  };
  const onChain = hasKnownAddresses(place);
  const unread: OfferMember[] = [];
  const isEvm = place.startsWith("eip155:");
  if (onChain && (network.id === "unknown" || (isEvm && !isCleanChain(request)))) unread.push("network");
  const isNamed = onChain ? form === "contract" : isPayableIn(form);
  if (get(request, "currency") !== asset || !isNamed) unread.push("asset");
  if (until !== null && !Number.isFinite(until)) unread.push("validity");
  const payees = payeesOf(request);
  if (payees === null) return [UNREAD];
  return payees.map((payee) => {
    const payTo = get(payee, "recipient");
    const amount = get(payee, "amount");
    const isAddress = typeof payTo === "string" && looksLikeAddress(place, payTo);
    const isAmount = typeof amount === "string" && /^\d{1,78}$/.test(amount);
    const own: OfferMember[] = [
      // On other networks there may be no payee to name: a card's network, an invoice.
      ...(isAddress || (!onChain && payTo === undefined) ? [] : (["payTo"] as const)),
      ...(isAmount ? [] : (["amount"] as const)),
    ];
    return {
      ...common,
      ...{ amount: isAmount ? BigInt(amount) : null, payTo: typeof payTo === "string" ? payTo : null },
      unread: [...unread, ...own],
    };
  });
}

/** The request itself and its splits; null where the splits are no list of objects, or too many. */
function payeesOf(request: unknown): unknown[] | null {
  const splits = get(request, "methodDetails", "splits") ?? [];
  if (!Array.isArray(splits) || splits.length >= MAX_OFFERS || !splits.every(isObject)) return null;
  return [request, ...splits];
}

const ofChallenge = ({ params }: Challenge): Offer[] =>
  mppOffersOf({
    method: params.get("method") ?? null,
    intent: params.get("intent"),
    expires: params.get("expires"),
    request: isPlainBase64(params.get("request") ?? "") ? parseBase64Json(params.get("request")!) : undefined,
  });

/** Joins several demands. If they have too many offers together, `unread` tells it. */
export function joined(demands: readonly Demanded[]): Demanded {
  const offers = demands.flatMap((one) => one.offers);
  const unread = demands.find((one) => one.unread !== null)?.unread ?? null;
  if (offers.length <= MAX_OFFERS) return { offers, unread };
  return { offers: offers.slice(0, MAX_OFFERS), unread: unread ?? `it makes more than ${MAX_OFFERS} offers` };
}

const NOTHING: Demanded = { offers: [], unread: null };
const unreadable = (unread: string): Demanded => ({ offers: [], unread });

/** The demand of header `PAYMENT-REQUIRED` (x402 version 2). @param header null or "" where there is none */
function inTermsHeader(header: string | null): Demanded {
  if (!header) return NOTHING;
  const terms = isPlainBase64(header) ? parseBase64Json(header) : undefined;
  if (terms === undefined) return unreadable("header PAYMENT-REQUIRED is no base64 of JSON");
  return joined([{ offers: offersOf(terms, "header"), unread: null }]);
}

/** The demand of `WWW-Authenticate` (mpp). */
function inChallenges(header: string | null): Demanded {
  if (!header) return NOTHING;
  const { challenges, isExact } = readChallenges(header);
  // A wallet that knows only `Payment` ignores challenges of other schemes, exact or not.
  if (!isExact && /payment/i.test(header))
    return unreadable("WWW-Authenticate has a challenge that reads in several ways");
  return joined(challenges.map((challenge) => ({ offers: ofChallenge(challenge), unread: null })));
}

/** Parses a text as JSON; null where it exceeds what is read, so that its demand is not known. */
export function boundedJson(text: string): { value: unknown } | null {
  // A text that is neither object nor list, such as a page for people, holds no terms.
  if (!/^\s*[{[]/.test(text)) return { value: undefined };
  return isBounded(text) ? { value: parseJson(text) } : null;
}

/** The demand of a body: x402 version 1, and version 2 of some sellers. */
function inBody(text: string): Demanded {
  const read = boundedJson(text);
  if (read === null) return unreadable("its body is nested too deep, or has too many values");
  const terms = Array.isArray(read.value) && looksLikeEntry(read.value[0]) ? { accepts: read.value } : read.value;
  return joined([{ offers: offersOf(terms), unread: null }]);
}

/**
 * All offers of a 402, wherever a client looks for them: header `PAYMENT-REQUIRED`, body, mpp challenges.
 * @param header value of the header of a name in lower case, or null
 * @param body null where it was not received whole
 */
export function demandedBy(header: (name: string) => string | null, body: Uint8Array | null): Demanded {
  const isWhole = body !== null && body.length <= MAX_BODY;
  return joined([
    inTermsHeader(header("payment-required")),
    isWhole ? inBody(new TextDecoder().decode(body)) : unreadable("its body did not come whole"),
    inChallenges(header("www-authenticate")),
  ]);
}
