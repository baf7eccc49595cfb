import { get, isBounded, isObject, isPlainBase64, type JsonObject, parseBase64Json, parseJson } from "../json.ts";
import { type Challenge, readChallenges } from "./challenges.ts";
import { determineVersion, entriesOf, looksLikeEntry, MAX_BODY, MAX_OFFERS, readMembers } from "./entries.ts";
import { readMppRequest } from "./mpp.ts";
import { hasKnownAddresses, isPayableIn, looksLikeAddress } from "./networks.ts";

/**
 * Reads the offers (ways to pay) of a demand for payment as a wallet would sign them. This reader is stricter than
 * the observer, which probes sellers and records everything that can be read: an offer's members that two wallets may
 * read differently are listed in `unread`.
 */

/** Members of an offer that determine what a wallet signs. `entry`: the offer as a whole. */
export type OfferMember = "entry" | "scheme" | "network" | "asset" | "amount" | "payTo" | "validity";

/** One way to pay that a demand offers. */
export interface Offer {
  /** CAIP-2 id if we know the network, else the text that the seller wrote. */
  network: string | null;
  asset: string | null;
  /** Atomic units of the asset. */
  amount: bigint | null;
  payTo: string | null;
  /** The x402 scheme; for an mpp challenge `mpp:<method>`, or `mpp:<method>/<intent>` if the intent is not `charge`. */
  scheme: string | null;
  /** Seconds for which a signature made now would be valid; null if the chain itself limits the validity (Solana). */
  validFor_s?: number | null | undefined;
  /** Unix seconds until which a signature would be valid, if the demand names a time; NaN if that cannot be read. */
  validUntil_s?: number | null | undefined;
  /** Members that wallets may read differently. */
  unread?: readonly OfferMember[] | undefined;
}

/** What a 402, or the answer of an MCP tool, demands before it is served: every way to pay. */
export interface PaymentDemand {
  offers: Offer[];
  /** Why there may be further offers that were not read; null if everything was read. */
  unread: string | null;
}

/** x402 schemes whose signature covers only network, asset, amount, payee and time. */
const SIMPLE_SCHEMES = new Set(["exact", "upto"]);

/**
 * Does {@link Offer} hold everything that a wallet signs for this scheme? Other schemes have further parts: a channel's
 * deposit, an escrow's deadlines, an invoice, a card.
 */
export const isFullyRead = ({ scheme, network }: Pick<Offer, "scheme" | "network">): boolean =>
  scheme !== null &&
  (SIMPLE_SCHEMES.has(scheme) || (/^mpp:[a-z0-9:_-]+$/.test(scheme) && hasKnownAddresses(network ?? "")));

/**
 * Is a network id written so that every wallet reads it alike? A chain number must have no leading zeros and must be
 * exact as a JavaScript number.
 */
const isUnambiguousNetwork = (id: string): boolean =>
  /^eip155:/i.test(id) ? /^eip155:[1-9]\d{0,14}$/.test(id) : !/[\s\p{Cc}]/u.test(id);

/**
 * Is the amount a text of digits, under one of its two names or both? An empty text, a JSON number or another notation
 * is not.
 */
function isAmountDigits(entry: JsonObject): boolean {
  const amounts = ["amount", "maxAmountRequired"].map((name) => get(entry, name)).filter((value) => value != null);
  return amounts.length > 0 && amounts.every((value) => typeof value === "string" && /^\d{1,78}$/.test(value));
}

const doAmountsAgree = (entry: JsonObject): boolean => {
  const [one, other] = [get(entry, "amount"), get(entry, "maxAmountRequired")];
  return one == null || other == null || BigInt(one as string) === BigInt(other as string);
};

const UNREAD_OFFER: Offer = {
  ...{ network: null, asset: null, amount: null, payTo: null, scheme: null, validFor_s: null },
  unread: ["entry"],
};

/**
 * Reads an entry of the list `accepts` in x402 terms.
 * @param form the x402 version whose member names the wallet reads
 */
export function readOffer(entry: unknown, form: 1 | 2): Offer {
  if (!isObject(entry) || Object.hasOwn(entry, "__proto__")) return UNREAD_OFFER;
  const { scheme, network, amount, asset, payTo, timeout_s } = readMembers(entry, form);
  const id = network?.id ?? "";
  const isKnownChain = hasKnownAddresses(id);
  const isAsWritten = (name: string, value: string | null): boolean => value !== null && get(entry, name) === value;
  const unread: OfferMember[] = [];
  const check = (member: OfferMember, isRead: boolean) => void (isRead || unread.push(member));
  check("scheme", isAsWritten("scheme", scheme));
  check("network", network?.isText === true && get(entry, "network") === network.raw && isUnambiguousNetwork(id));
  check("amount", amount.atomic !== null && isAmountDigits(entry) && doAmountsAgree(entry));
  check("payTo", isAsWritten("payTo", payTo) && looksLikeAddress(id, payTo!));
  const isAssetNamed = isKnownChain ? asset.form === "contract" : isPayableIn(asset.form);
  check("asset", isAsWritten("asset", asset.asset) && isAssetNamed);
  const isLimitedByChain = !id.startsWith("eip155:") && get(entry, "maxTimeoutSeconds") == null;
  check("validity", isLimitedByChain || (timeout_s !== null && timeout_s >= 1));
  return {
    ...{ network: network === null ? null : id, asset: asset.asset, amount: amount.atomic },
    ...{ payTo, scheme, validFor_s: timeout_s, unread },
  };
}

/** Reads the offers of x402 terms, from a decoded header, a body or a tool's answer; [] for any other value. */
export function offersOf(terms: unknown, from: "header" | "body" = "body"): Offer[] {
  const entries = entriesOf(terms);
  const { form } = determineVersion(terms, entries[0], from);
  return entries.slice(0, MAX_OFFERS + 1).map((entry) => readOffer(entry, form));
}

/** Seconds for which a signature of the official mpp client is valid if the challenge has no `expires`. */
const STOCK_VALIDITY_S = 300;
const EXPIRES = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})$/;

/** The members of an mpp challenge, with its request decoded. */
export interface MppChallenge {
  method: string | null;
  intent?: string | null | undefined;
  expires?: string | null | undefined;
  request: unknown;
}

/** Is the chain number written so that every client reads it alike? The official mpp client does not normalise it. */
function isUnambiguousChain(request: unknown): boolean {
  const chainId = get(request, "methodDetails", "chainId");
  return typeof chainId === "number" || (typeof chainId === "string" && /^[1-9]\d{0,14}$/.test(chainId));
}

/**
 * Reads the offers of an mpp challenge: one for its recipient, and one for each address in `splits`, since a client
 * pays all of them.
 */
export function readMppOffers({ method, intent, expires, request }: MppChallenge): Offer[] {
  const mppRequest = readMppRequest(method ?? "", request);
  if (mppRequest === null || method === null || !/^[a-z][a-z0-9:_-]*$/.test(method)) return [UNREAD_OFFER];
  const { network, place, asset, form } = mppRequest;
  const validUntil = expires == null ? null : EXPIRES.test(expires) ? Date.parse(expires) / 1000 : Number.NaN;
  const common = {
    ...{ network: network.id === "unknown" ? null : network.id, asset },
    scheme: `mpp:${method}${intent == null || intent === "charge" ? "" : `/${intent}`}`,
    ...{ validFor_s: validUntil === null ? STOCK_VALIDITY_S : null, validUntil_s: validUntil },
  };
  const isKnownChain = hasKnownAddresses(place);
  const unread: OfferMember[] = [];
  const isEvm = place.startsWith("eip155:");
  if (isKnownChain && (network.id === "unknown" || (isEvm && !isUnambiguousChain(request)))) unread.push("network");
  const isAssetNamed = isKnownChain ? form === "contract" : isPayableIn(form);
  if (get(request, "currency") !== asset || !isAssetNamed) unread.push("asset");
  if (validUntil !== null && !Number.isFinite(validUntil)) unread.push("validity");
  const payees = payeesOf(request);
  if (payees === null) return [UNREAD_OFFER];
  return payees.map((payee) => {
    const payTo = get(payee, "recipient");
    const amount = get(payee, "amount");
    const isAddress = typeof payTo === "string" && looksLikeAddress(place, payTo);
    const isAmount = typeof amount === "string" && /^\d{1,78}$/.test(amount);
    const payeeUnread: OfferMember[] = [
      // On other networks, such as card networks, there may be no payee to name.
      ...(isAddress || (!isKnownChain && payTo === undefined) ? [] : (["payTo"] as const)),
      ...(isAmount ? [] : (["amount"] as const)),
    ];
    return {
      ...common,
      ...{ amount: isAmount ? BigInt(amount) : null, payTo: typeof payTo === "string" ? payTo : null },
      unread: [...unread, ...payeeUnread],
    };
  });
}

/** Returns the request and the entries of its `splits`; null if `splits` is no list of objects, or too long. */
function payeesOf(request: unknown): unknown[] | null {
  const splits = get(request, "methodDetails", "splits") ?? [];
  if (!Array.isArray(splits) || splits.length >= MAX_OFFERS || !splits.every(isObject)) return null;
  return [request, ...splits];
}

const offersOfChallenge = ({ params }: Challenge): Offer[] =>
  readMppOffers({
    method: params.get("method") ?? null,
    intent: params.get("intent"),
    expires: params.get("expires"),
    request: isPlainBase64(params.get("request") ?? "") ? parseBase64Json(params.get("request")!) : undefined,
  });

/**
 * Joins several demands. If together they have more than {@link MAX_OFFERS} offers, the rest is dropped and `unread`
 * tells so.
 */
export function joinDemands(demands: readonly PaymentDemand[]): PaymentDemand {
  const offers = demands.flatMap((one) => one.offers);
  const unread = demands.find((one) => one.unread !== null)?.unread ?? null;
  if (offers.length <= MAX_OFFERS) return { offers, unread };
  return { offers: offers.slice(0, MAX_OFFERS), unread: unread ?? `it makes more than ${MAX_OFFERS} offers` };
}

const NO_DEMAND: PaymentDemand = { offers: [], unread: null };
const createUnreadDemand = (unread: string): PaymentDemand => ({ offers: [], unread });

/**
 * Reads the demand in header `PAYMENT-REQUIRED` (x402 version 2).
 * @param header its value; null or "" if there is none
 */
function readTermsHeader(header: string | null): PaymentDemand {
  if (!header) return NO_DEMAND;
  const terms = isPlainBase64(header) ? parseBase64Json(header) : undefined;
  if (terms === undefined) return createUnreadDemand("header PAYMENT-REQUIRED is no base64 of JSON");
  return joinDemands([{ offers: offersOf(terms, "header"), unread: null }]);
}

/** Reads the demand in header `WWW-Authenticate` (mpp). */
function readChallengeHeader(header: string | null): PaymentDemand {
  if (!header) return NO_DEMAND;
  const { challenges, isExact } = readChallenges(header);
  // Without the word `payment` the header is harmless: wallets ignore challenges of other schemes.
  if (!isExact && /payment/i.test(header))
    return createUnreadDemand("WWW-Authenticate has a challenge that reads in several ways");
  return joinDemands(challenges.map((challenge) => ({ offers: offersOfChallenge(challenge), unread: null })));
}

/**
 * Parses a text as JSON. Returns null if the text is nested too deep or has too many values, so that it is not known
 * what it demands; `value` is undefined if the text is no JSON.
 */
export function parseBoundedJson(text: string): { value: unknown } | null {
  // A text that is neither an object nor a list, such as an HTML page, holds no terms.
  if (!/^\s*[{[]/.test(text)) return { value: undefined };
  return isBounded(text) ? { value: parseJson(text) } : null;
}

/** Reads the demand in a 402's body, where x402 version 1 and some sellers of version 2 put it. */
function readBody(text: string): PaymentDemand {
  const parsed = parseBoundedJson(text);
  if (parsed === null) return createUnreadDemand("its body is nested too deep, or has too many values");
  const terms =
    Array.isArray(parsed.value) && looksLikeEntry(parsed.value[0]) ? { accepts: parsed.value } : parsed.value;
  return joinDemands([{ offers: offersOf(terms), unread: null }]);
}

/**
 * Reads all offers of a 402 from every place where a client looks: header `PAYMENT-REQUIRED`, body, mpp challenges.
 * @param header returns the value of a header by its name in lower case, or null
 * @param body null if the body was not received completely
 */
export function readDemand(header: (name: string) => string | null, body: Uint8Array | null): PaymentDemand {
  const isComplete = body !== null && body.length <= MAX_BODY;
  return joinDemands([
    readTermsHeader(header("payment-required")),
    isComplete ? readBody(new TextDecoder().decode(body)) : createUnreadDemand("its body did not come whole"),
    readChallengeHeader(header("www-authenticate")),
  ]);
}
