import { sha256hex } from "../../../infra/canonical.ts";
import { decimalsOf, type PayableEntry, type RailCapabilities, type SignContext } from "../../../infra/rails/rails.ts";
import { type Offer, Terms } from "../../record/bodies.ts";
import { parseAtomic, parseMoney } from "../../record/money.ts";
import { readChallenges } from "../../record/terms/challenges.ts";
import { type Answer402, looksLikeEntry, MAX_BODY, MAX_OFFERS } from "../../record/terms/entries.ts";
import { sameAsset, sameNetwork } from "../../record/terms/networks.ts";
import { DEFECTS, type DefectCode, type Protocol } from "../../record/vocabulary.ts";
import { clean, get, hashOf, text } from "../json.ts";
import { isSameResource } from "../urls.ts";
import {
  type Declared,
  mergeDeclared,
  NOTHING_DECLARED,
  readBazaar,
  readEntryDeclaration,
  readItemDeclaration,
} from "./declared.ts";
import { readChallenge } from "./mpp.ts";
import { isTestnet } from "./testnets.ts";
import { type ParsedEntry, priceOf, readTerms, readX402, type X402Terms } from "./x402.ts";

/** Describes defects, each once, in the order in which they were found, with the texts of the record. */
export const describeDefects = (codes: readonly DefectCode[]): { defect: string; says: string }[] =>
  [...new Set(codes)].map((code) => ({ defect: code, says: DEFECTS[code] }));

type DefectList = Terms["defects"];
type CodesOf = (entry: ParsedEntry) => readonly DefectCode[];

const allCodes: CodesOf = ({ defects }) => defects;

/**
 * Splits the defects of the entries (the offers of a 402). `ofTerms`: defects of entries on the network of the first
 * payable entry, or without a network; they count as defects of the 402. `ofOtherOffers`: defects of offers on other
 * networks, which concern only those offers.
 */
function splitDefectsByNetwork(
  entries: readonly ParsedEntry[],
  codesOf: CodesOf = allCodes,
): { ofTerms: DefectCode[]; ofOtherOffers: DefectList } {
  const mainNetwork = entries.find((entry) => entry.isValid)?.offer.network;
  const isOnOtherNetwork = ({ offer }: ParsedEntry): boolean =>
    mainNetwork !== undefined && offer.network !== "" && offer.network !== mainNetwork;
  const termsDefects = entries.flatMap((entry) => (isOnOtherNetwork(entry) ? [] : codesOf(entry)));
  const offerNumbersByCode = new Map<DefectCode, number[]>();
  for (const [i, entry] of entries.entries()) {
    for (const code of isOnOtherNetwork(entry) ? codesOf(entry) : [])
      offerNumbersByCode.set(code, [...(offerNumbersByCode.get(code) ?? []), i + 1]);
  }
  for (const code of termsDefects) offerNumbersByCode.delete(code);
  const otherOfferDefects = [...offerNumbersByCode].map(([defect, offerNumbers]) => ({
    defect,
    says: `${DEFECTS[defect]} (said of offer ${offerNumbers.join(", ")} of ${entries.length} alone)`,
  }));
  return { ofTerms: termsDefects, ofOtherOffers: otherOfferDefects };
}

const findUnpayableDefect = (entries: readonly ParsedEntry[]): DefectCode[] =>
  entries.length > 0 && !entries.some((entry) => entry.isValid) ? ["no_payable_entry"] : [];

/**
 * Offers in their order, and for each the form that a rail (our side of a payment network) may sign; null if the offer
 * is incomplete.
 */
export interface OfferList {
  offers: Offer[];
  payables: (PayableEntry | null)[];
}

/**
 * The terms of a 402. They are plain data, so that they can be read in a thread without a rail; {@link addPayable} then
 * finds the offer that our rail would pay.
 */
export interface AskedTerms extends Pick<OfferList, "payables"> {
  terms: Terms;
  /** Is there an offer that any client could pay? */
  readable: boolean;
  /** Members of the terms that a payment has to repeat. */
  context: SignContext;
  /** What the seller declares about the input and output of a call (declared.ts). */
  declared: Declared;
}

/**
 * The terms of a 402, with the offer that our rail would pay. `terms` is recorded; the other members are needed for a
 * payment.
 */
export interface ReadTerms {
  terms: Terms;
  /** Is there an offer that any client could pay? */
  readable: boolean;
  /** The entry that our rail would sign (see {@link chooseOffer}); null when there is none. */
  payable: PayableEntry | null;
  /** Price of `payable`, in dollars; null when there is no such entry. */
  price: string | null;
  /** Payout address of `payable`; null when there is no such entry. */
  payTo: string | null;
  context: SignContext;
  /** What the seller declares about the input and output of a call (declared.ts). */
  declared: Declared;
}

/**
 * Finds defects in the resource that the terms name. A server behind a TLS proxy may name itself with `http` while host
 * and path are right, which is a separate defect.
 */
function findResourceDefects(x402: X402Terms, url: string | undefined): DefectCode[] {
  if (!url) return [];
  const resource = get(x402.raw?.value, "resource");
  const accepts = get(x402.raw?.value, "accepts");
  const firstEntryResource = get(Array.isArray(accepts) ? accepts[0] : accepts, "resource");
  const namedUrls = [text(resource, 4096) ?? text(get(resource, "url"), 4096), text(firstEntryResource, 4096)];
  const wrongUrls = namedUrls.filter((claim) => claim !== undefined && !isSameResource(claim, url)) as string[];
  if (wrongUrls.length === 0) return [];
  const isProxied = (claim: string): boolean =>
    url.startsWith("https:") && /^http:/i.test(claim) && isSameResource(claim.replace(/^http:/i, "https:"), url);
  return [wrongUrls.every(isProxied) ? "resource_scheme_differs" : "resource_differs"];
}

/** CAIP-2 ids of the chains that our rail pays on, or the id of the only chain. */
export type Networks = string | readonly string[];

/** Are all offers on test networks? A network that our own rail pays on does not count as a test network. */
function hasOnlyTestnets(entries: ParsedEntry[], ownNetworks: Networks): boolean {
  const networks = entries.flatMap((entry) => (entry.offer.network ? [entry.offer.network] : []));
  return (
    networks.length > 0 && networks.every(isTestnet) && !networks.some((one) => [ownNetworks].flat().includes(one))
  );
}

const toOfferList = (entries: ParsedEntry[]): OfferList => ({
  offers: entries.map(({ offer }) => offer),
  payables: entries.map(({ payable }) => payable),
});

interface PayableOffer {
  offer: Offer;
  payable: PayableEntry;
}

/** Is the first offer chosen before the second? x402 is chosen before mpp, then the one with the lower price. */
function isPreferred(first: PayableOffer, second: PayableOffer): boolean {
  const rank = ({ payable }: PayableOffer): number => (payable.challenge ? 1 : 0);
  if (rank(first) !== rank(second)) return rank(first) < rank(second);
  return isCheaper(first.offer, second.offer);
}

/**
 * Is the price of the first offer lower? Prices are compared in dollars, since tokens differ in decimals. An offer
 * whose price is unknown is never cheaper than one with a price. Two offers with unknown prices are compared by their
 * amounts if they are in one asset.
 */
export function isCheaper(first: Offer, second: Offer): boolean {
  if (first.price !== null && second.price !== null) return parseMoney(first.price) < parseMoney(second.price);
  if (first.price !== null || second.price !== null) return first.price !== null;
  const [one, other] = [parseAtomic(first.amount_atomic), parseAtomic(second.amount_atomic)];
  return one !== null && other !== null && isOfOneAsset(first, second) && one < other;
}

const isOfOneAsset = (first: Offer, second: Offer): boolean =>
  sameNetwork(first.network, second.network) === true &&
  (first.asset === second.asset ||
    (first.asset !== null && second.asset !== null && sameAsset(first.network, first.asset, second.asset) === true));

/**
 * Marks the offers that our rail can sign and chooses the one to pay: x402 before mpp, since x402 terms also declare
 * the endpoint's input and answer; then the cheapest; then the first.
 */
export function chooseOffer(
  { offers, payables }: OfferList,
  rail: Pick<RailCapabilities, "canPay" | "decimalsOf">,
): { offers: Offer[]; chosen: PayableOffer | null } {
  let chosen: PayableOffer | null = null;
  const markedOffers = [...offers];
  for (const [i, payable] of payables.entries()) {
    if (!payable || !rail.canPay(payable)) continue;
    // One unit of the rail's asset is a dollar (rails.ts), even if our table of assets does not have the contract.
    const decimals = decimalsOf(rail, payable);
    const offer = { ...offers[i]!, payable: true, decimals, price: priceOf(payable.amountAtomic, decimals) };
    markedOffers[i] = offer;
    if (!chosen || isPreferred({ offer, payable }, chosen)) chosen = { offer, payable };
  }
  return { offers: markedOffers, chosen };
}

/**
 * Reads the payment terms of a 402: x402 version 1 and 2 in header or body, bare entries, mpp challenges. It never
 * converts amounts; faults are returned as defects.
 * @param ownNetworks the chains that our rail pays on
 * @param url the requested url, which is compared with the `resource` of the terms; left out for listings
 * @throws ZodError when the result does not fit the record: our own mistake
 */
export function readAskedTerms(answer: Answer402, ownNetworks: Networks, url?: string): AskedTerms {
  const x402 = readX402(answer);
  const challengeHeader = answer.headers["www-authenticate"] ?? "";
  const mppEntries = readChallenges(challengeHeader).challenges.map(readChallenge);
  const entries = [...x402.entries, ...mppEntries].slice(0, MAX_OFFERS);
  const { ofTerms: termsDefects, ofOtherOffers: otherOfferDefects } = splitDefectsByNetwork(entries);
  const codes: DefectCode[] = [...x402.defects, ...findUnpayableDefect(entries), ...termsDefects];
  if (x402.raw === null && mppEntries.length === 0 && !codes.includes("malformed_terms")) codes.push("no_terms");
  if (hasOnlyTestnets(entries, ownNetworks)) codes.push("testnet_only");
  codes.push(...findResourceDefects(x402, url));
  const value = x402.raw?.value;
  const firstEntry = get(value, "accepts", "0") ?? (looksLikeEntry(value) ? value : undefined);
  const declared = mergeDeclared(
    readBazaar(get(value, "extensions", "bazaar")),
    readEntryDeclaration(firstEntry),
    readItemDeclaration({ resource: get(value, "resource") }),
  );
  const protocols: Protocol[] = [];
  if (x402.raw) protocols.push("x402");
  if (mppEntries.length) protocols.push("mpp");
  const raw = x402.raw ? Buffer.from(x402.raw.raw) : Buffer.alloc(0);
  const { offers, payables } = toOfferList(entries);
  return {
    terms: Terms.parse({
      sha256: sha256hex(
        mppEntries.length ? Buffer.concat([raw, Buffer.from(`\n${clean(challengeHeader, MAX_BODY)}`)]) : raw,
      ),
      protocols,
      x402_version: x402.raw ? x402.version : null,
      offers,
      defects: [...describeDefects(codes), ...otherOfferDefects],
      schema_sha256: declared.outputSchema === undefined ? null : hashOf(declared.outputSchema),
    }),
    payables,
    readable: entries.some((entry) => entry.isValid),
    context: { resource: get(value, "resource"), extensions: get(value, "extensions") },
    declared,
  };
}

/** Makes the result for a 402 whose terms could not be read: no offer, and one defect. */
export const createUnreadable = ({ headers, body }: Answer402): AskedTerms => ({
  terms: {
    sha256: sha256hex(headers["payment-required"] ?? (body.length > 0 ? body : (headers["www-authenticate"] ?? ""))),
    protocols: [],
    x402_version: null,
    offers: [],
    defects: describeDefects(["malformed_terms"]),
    schema_sha256: null,
  },
  payables: [],
  readable: false,
  context: {},
  declared: NOTHING_DECLARED,
});

/** Adds the offer that our rail would pay. */
export function addPayable(
  { terms, payables, ...read }: AskedTerms,
  rail: Pick<RailCapabilities, "canPay" | "decimalsOf">,
): ReadTerms {
  const { offers, chosen } = chooseOffer({ offers: terms.offers, payables }, rail);
  return {
    ...read,
    terms: { ...terms, offers },
    payable: chosen?.payable ?? null,
    price: chosen?.offer.price ?? null,
    payTo: chosen?.offer.pay_to ?? null,
  };
}

/** An offer with one of these defects cannot be paid by any client. */
const UNPAYABLE_DEFECTS: readonly DefectCode[] = ["bad_amount", "bad_pay_to", "bad_entry", "bad_asset"];

/** The offers of a listing and their defects. */
export interface ListedOffers extends OfferList {
  /** All defects as in a 402, including those for members that an entry leaves out. */
  defects: DefectList;
  /**
   * Only the defects in members that the listing has. They apply to a catalogue's row, since a catalogue may have no
   * place for the other members.
   */
  ownDefects: DefectList;
  /** Does the listing have the form of a 402's terms, with a version? Only then are missing members defects. */
  isTerms: boolean;
}

/** Reads the offers of a listing, entry by entry. Defects that only a live 402 can have are left out. */
export function readListedOffers(item: unknown, ownNetworks: Networks): ListedOffers {
  const { entries, isVersionStated } = readTerms({ value: item, raw: "", from: "body" });
  const codesOfListing: CodesOf = ({ defects, defectsOfTermsOnly: ofTermsOnly }) =>
    defects.filter((code) => !ofTermsOnly.includes(code));
  const isUnpayable = (entry: ParsedEntry): boolean =>
    codesOfListing(entry).some((code) => UNPAYABLE_DEFECTS.includes(code));
  const describeDefectsBy = (codesOf: CodesOf, unpayableDefects: DefectCode[]): DefectList => {
    const { ofTerms: termsDefects, ofOtherOffers: otherOfferDefects } = splitDefectsByNetwork(entries, codesOf);
    termsDefects.push(...unpayableDefects);
    if (hasOnlyTestnets(entries, ownNetworks)) termsDefects.push("testnet_only");
    return [...describeDefects(termsDefects), ...otherOfferDefects];
  };
  return {
    ...toOfferList(entries),
    defects: describeDefectsBy(allCodes, findUnpayableDefect(entries)),
    ownDefects: describeDefectsBy(codesOfListing, entries.every(isUnpayable) ? findUnpayableDefect(entries) : []),
    isTerms: isVersionStated,
  };
}
