import { sha256hex } from "../../../infra/canonical.ts";
import { decimalsOf, type PayableEntry, type RailCapabilities, type SignContext } from "../../../infra/rails/rails.ts";
import { type Offer, Terms } from "../../record/bodies.ts";
import { readChallenges } from "../../record/terms/challenges.ts";
import { type Answer402, looksLikeEntry, MAX_BODY, MAX_OFFERS } from "../../record/terms/entries.ts";
import { DEFECTS, type DefectCode, type Protocol } from "../../record/vocabulary.ts";
import { clean, get, hashOf, text } from "../json.ts";
import { sameResource } from "../urls.ts";
import { type Declared, fromBazaar, fromEntry, fromItem, mergeDeclared, NOTHING } from "./declared.ts";
import { goesBefore, readChallenge } from "./mpp.ts";
import { isTestnet } from "./testnets.ts";
import { type ParsedEntry, priceOf, readTerms, readX402, type X402 } from "./x402.ts";

/** Each defect once, in the order in which they were found, with the text that the record has for it. */
export const defectsSeen = (codes: readonly DefectCode[]): { defect: string; says: string }[] =>
  [...new Set(codes)].map((code) => ({ defect: code, says: DEFECTS[code] }));

type Seen = Terms["defects"];
type CodesOf = (entry: ParsedEntry) => readonly DefectCode[];

const codesOfAll: CodesOf = ({ defects }) => defects;

/**
 * Splits the defects of the entries. `whole`: those of entries on the network of the first payable entry, or without a
 * network; they are defects of the 402. `asides`: those of offers on other networks, which concern those offers alone.
 */
function offerDefects(
  entries: readonly ParsedEntry[],
  codesOf: CodesOf = codesOfAll,
): { whole: DefectCode[]; asides: Seen } {
  const main = entries.find((entry) => entry.valid)?.offer.network;
  const isAside = ({ offer }: ParsedEntry): boolean =>
    main !== undefined && offer.network !== "" && offer.network !== main;
  const whole = entries.flatMap((entry) => (isAside(entry) ? [] : codesOf(entry)));
  const numbers = new Map<DefectCode, number[]>();
  for (const [i, entry] of entries.entries()) {
    for (const code of isAside(entry) ? codesOf(entry) : []) numbers.set(code, [...(numbers.get(code) ?? []), i + 1]);
  }
  for (const code of whole) numbers.delete(code);
  const asides = [...numbers].map(([defect, of]) => ({
    defect,
    says: `${DEFECTS[defect]} (said of offer ${of.join(", ")} of ${entries.length} alone)`,
  }));
  return { whole, asides };
}

const unpayable = (entries: readonly ParsedEntry[]): DefectCode[] =>
  entries.length > 0 && !entries.some((entry) => entry.valid) ? ["no_payable_entry"] : [];

/** Offers in their order, and for each what a rail may be asked to pay; null where the offer is incomplete. */
export interface Offered {
  offers: Offer[];
  payables: (PayableEntry | null)[];
}

/**
 * What a 402 asks. It is plain data, so that it can be read in a thread without a rail; {@link toPay} then finds the
 * offer that our rail would pay.
 */
export interface Asked extends Pick<Offered, "payables"> {
  terms: Terms;
  readable: boolean;
  context: SignContext;
  declared: Declared;
}

/** What a 402 asks, with the offer that our rail would pay. The record keeps `terms`; a payment needs the rest. */
export interface ReadTerms {
  terms: Terms;
  /** Is there an offer that somebody could pay? */
  readable: boolean;
  /** The entry that our rail would sign (see {@link choose}); null when there is none. */
  payable: PayableEntry | null;
  /** Price and payout address of that entry. */
  price: string | null;
  payTo: string | null;
  context: SignContext;
  declared: Declared;
}

/**
 * Defects of the resource that the terms name. A server behind a proxy that ends TLS names itself with `http`: host and
 * path are right, so this has a defect of its own.
 */
function resourceDefects(x402: X402, url: string | undefined): DefectCode[] {
  if (!url) return [];
  const named = get(x402.raw?.value, "resource");
  const accepts = get(x402.raw?.value, "accepts");
  const first = get(Array.isArray(accepts) ? accepts[0] : accepts, "resource");
  const claims = [text(named, 4096) ?? text(get(named, "url"), 4096), text(first, 4096)];
  const wrong = claims.filter((claim) => claim !== undefined && !sameResource(claim, url)) as string[];
  if (wrong.length === 0) return [];
  const isProxied = (claim: string): boolean =>
    url.startsWith("https:") && /^http:/i.test(claim) && sameResource(claim.replace(/^http:/i, "https:"), url);
  return [wrong.every(isProxied) ? "resource_scheme_differs" : "resource_differs"];
}

/** CAIP-2 ids of the chains that our rail pays on, or the only one of them. */
export type Networks = string | readonly string[];

/** Are all offers on test networks? A test network that our own rail pays on is not counted as one. */
function onlyTestnets(entries: ParsedEntry[], own: Networks): boolean {
  const networks = entries.flatMap((entry) => (entry.offer.network ? [entry.offer.network] : []));
  return networks.length > 0 && networks.every(isTestnet) && !networks.some((one) => [own].flat().includes(one));
}

const offered = (entries: ParsedEntry[]): Offered => ({
  offers: entries.map(({ offer }) => offer),
  payables: entries.map(({ payable }) => payable),
});

/**
 * Marks the offers that our rail signs and chooses the one that is paid: x402 before mpp, since x402 terms also tell
 * how the endpoint is called and what it answers; then the cheapest; then the first.
 */
export function choose(
  { offers, payables }: Offered,
  rail: Pick<RailCapabilities, "canPay" | "decimalsOf">,
): { offers: Offer[]; chosen: { offer: Offer; payable: PayableEntry } | null } {
  let chosen: { offer: Offer; payable: PayableEntry } | null = null;
  const marked = [...offers];
  for (const [i, payable] of payables.entries()) {
    if (!payable || !rail.canPay(payable)) continue;
    // One unit of the rail's asset is a dollar (rails.ts), whether or not our own table has the contract.
    const decimals = decimalsOf(rail, payable);
    const offer = { ...offers[i]!, payable: true, decimals, price: priceOf(payable.amountAtomic, decimals) };
    marked[i] = offer;
    if (!chosen || goesBefore(payable, chosen.payable)) chosen = { offer, payable };
  }
  return { offers: marked, chosen };
}

/**
 * Reads the payment terms of a 402: x402 version 1 and 2 in header or body, bare entries, mpp challenges. Amounts are
 * never converted; what is wrong is returned as defects.
 * @param own the chains that our rail pays on
 * @param url the url that was asked, for comparison with the `resource` of the terms; left out for listings
 * @throws ZodError when the result does not fit the record: our own mistake
 */
export function readAsked(answer: Answer402, own: Networks, url?: string): Asked {
  const x402 = readX402(answer);
  const challenge = answer.headers["www-authenticate"] ?? "";
  const mpp = readChallenges(challenge).challenges.map(readChallenge);
  const entries = [...x402.entries, ...mpp].slice(0, MAX_OFFERS);
  const { whole, asides } = offerDefects(entries);
  const codes: DefectCode[] = [...x402.defects, ...unpayable(entries), ...whole];
  if (x402.raw === null && mpp.length === 0 && !codes.includes("malformed_terms")) codes.push("no_terms");
  if (onlyTestnets(entries, own)) codes.push("testnet_only");
  codes.push(...resourceDefects(x402, url));
  const value = x402.raw?.value;
  const first = get(value, "accepts", "0") ?? (looksLikeEntry(value) ? value : undefined);
  const declared = mergeDeclared(
    fromBazaar(get(value, "extensions", "bazaar")),
    fromEntry(first),
    fromItem({ resource: get(value, "resource") }),
  );
  const protocols: Protocol[] = [];
  if (x402.raw) protocols.push("x402");
  if (mpp.length) protocols.push("mpp");
  const raw = x402.raw ? Buffer.from(x402.raw.raw) : Buffer.alloc(0);
  const { offers, payables } = offered(entries);
  return {
    terms: Terms.parse({
      sha256: sha256hex(mpp.length ? Buffer.concat([raw, Buffer.from(`\n${clean(challenge, MAX_BODY)}`)]) : raw),
      protocols,
      x402_version: x402.raw ? x402.version : null,
      offers,
      defects: [...defectsSeen(codes), ...asides],
      schema_sha256: declared.outputSchema === undefined ? null : hashOf(declared.outputSchema),
    }),
    payables,
    readable: entries.some((entry) => entry.valid),
    context: { resource: get(value, "resource"), extensions: get(value, "extensions") },
    declared,
  };
}

/** The terms of a 402 that could not be read: they hold nothing that anybody could pay. */
export const unreadable = ({ headers, body }: Answer402): Asked => ({
  terms: {
    sha256: sha256hex(headers["payment-required"] ?? (body.length > 0 ? body : (headers["www-authenticate"] ?? ""))),
    protocols: [],
    x402_version: null,
    offers: [],
    defects: defectsSeen(["malformed_terms"]),
    schema_sha256: null,
  },
  payables: [],
  readable: false,
  context: {},
  declared: NOTHING,
});

/** Adds what our rail would pay of what was asked. */
export function toPay(
  { terms, payables, ...read }: Asked,
  rail: Pick<RailCapabilities, "canPay" | "decimalsOf">,
): ReadTerms {
  const { offers, chosen } = choose({ offers: terms.offers, payables }, rail);
  return {
    ...read,
    terms: { ...terms, offers },
    payable: chosen?.payable ?? null,
    price: chosen?.offer.price ?? null,
    payTo: chosen?.offer.pay_to ?? null,
  };
}

/** An offer with one of these defects cannot be paid by anybody, whatever else it leaves out. */
const MAKES_UNPAYABLE: readonly DefectCode[] = ["bad_amount", "bad_pay_to", "bad_entry", "bad_asset"];

/** The offers of a listing and their defects. */
export interface ListedOffers extends Offered {
  /** All defects, as in a 402, including those of members that an entry leaves out. */
  defects: Seen;
  /** Only the defects of what the listing states: a catalogue's row may have no room for more. */
  stated: Seen;
  /** Is it written as the terms of a 402, with their version? Only then are missing members defects. */
  isTerms: boolean;
}

/** Reads the offers of a listing, entry by entry. Defects that only a live 402 can have are left out. */
export function readOffered(item: unknown, own: Networks): ListedOffers {
  const { entries, isVersionStated } = readTerms({ value: item, raw: "", from: "body" });
  const statedIn: CodesOf = ({ defects, ofTermsOnly }) => defects.filter((code) => !ofTermsOnly.includes(code));
  const isDead = (entry: ParsedEntry): boolean => statedIn(entry).some((code) => MAKES_UNPAYABLE.includes(code));
  const defectsBy = (codesOf: CodesOf, unpaid: DefectCode[]): Seen => {
    const { whole, asides } = offerDefects(entries, codesOf);
    whole.push(...unpaid);
    if (onlyTestnets(entries, own)) whole.push("testnet_only");
    return [...defectsSeen(whole), ...asides];
  };
  return {
    ...offered(entries),
    defects: defectsBy(codesOfAll, unpayable(entries)),
    stated: defectsBy(statedIn, entries.every(isDead) ? unpayable(entries) : []),
    isTerms: isVersionStated,
  };
}
