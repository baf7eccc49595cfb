import { sha256hex } from "../../../infra/canonical.ts";
import { decimalsOf, type PayableEntry, type Payer, type SignContext } from "../../../infra/rails/rails.ts";
import { type Offer, Terms } from "../../record/bodies.ts";
import { readChallenges } from "../../record/terms/challenges.ts";
import { type Answer402, looksLikeEntry, MAX_BODY, MAX_OFFERS } from "../../record/terms/entries.ts";
import { DEFECTS, type DefectCode, type Protocol } from "../../record/vocabulary.ts";
import { clean, get, hashOf, text } from "../json.ts";
import { sameResource } from "../urls.ts";
import { type Declared, fromBazaar, fromEntry, fromItem, mergeDeclared, NOTHING } from "./declared.ts";
import { goesBefore, readChallenge } from "./mpp.ts";
import { isTestnet } from "./testnets.ts";
import { priceOf, type ReadEntry, readEnvelope, readX402, type X402 } from "./x402.ts";

/** Defects once each, in the order they were met, in the words of the record. */
export const defectsSeen = (codes: readonly DefectCode[]): { defect: string; says: string }[] =>
  [...new Set(codes)].map((code) => ({ defect: code, says: DEFECTS[code] }));

type Seen = Terms["defects"];
type CodesOf = (entry: ReadEntry) => readonly DefectCode[];

const codesOfAll: CodesOf = ({ defects }) => defects;

/**
 * Defects of the entries: those of the first that can be paid, of all on its network and of what names none are defects of
 * the whole; an offer on another network is an aside, whose defects are its own alone.
 */
function offerDefects(
  entries: readonly ReadEntry[],
  codesOf: CodesOf = codesOfAll,
): { whole: DefectCode[]; asides: Seen } {
  const main = entries.find((entry) => entry.valid)?.offer.network;
  const isAside = ({ offer }: ReadEntry): boolean =>
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

const unpayable = (entries: readonly ReadEntry[]): DefectCode[] =>
  entries.length > 0 && !entries.some((entry) => entry.valid) ? ["no_payable_entry"] : [];

/** Offers in the order they were made, and beside each what a rail may be asked to pay; null where it is no whole offer. */
export interface Offered {
  offers: Offer[];
  payables: (PayableEntry | null)[];
}

/**
 * What a 402 asked, whoever could pay it: plain data, so that it may be read where a rail cannot be asked. Which offer
 * ours would pay is said by {@link toPay}.
 */
export interface Asked extends Pick<Offered, "payables"> {
  terms: Terms;
  readable: boolean;
  context: SignContext;
  declared: Declared;
}

/** What a 402 said. `terms` is what the record keeps; the rest is what a payment needs. */
export interface ReadTerms {
  terms: Terms;
  /** At least one offer that somebody could pay: a parseable 402. */
  readable: boolean;
  /** The cheapest entry our rail would sign, first of equals; null when there is none. */
  payable: PayableEntry | null;
  /** Its money and payout address. */
  price: string | null;
  payTo: string | null;
  context: SignContext;
  declared: Declared;
}

/**
 * What is wrong with the resource that the terms name. A server behind a proxy that ends TLS writes `http` of itself: host and
 * path are right, and nobody is sent elsewhere.
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

/** CAIP-2 ids of the chains that our rail pays on, or the only one. */
export type Networks = string | readonly string[];

/** Play money only. Where our own rail pays on a test network, that network is this world's real one. */
function onlyTestnets(entries: ReadEntry[], own: Networks): boolean {
  const networks = entries.flatMap((entry) => (entry.offer.network ? [entry.offer.network] : []));
  return networks.length > 0 && networks.every(isTestnet) && !networks.some((one) => [own].flat().includes(one));
}

const offered = (entries: ReadEntry[]): Offered => ({
  offers: entries.map(({ offer }) => offer),
  payables: entries.map(({ payable }) => payable),
});

/**
 * The offers with those marked that our rail signs, and the one that is paid: x402 before mpp where a URL speaks both (a
 * 402's x402 terms say more: how it is called, what comes back), and of one protocol the cheapest, first of equals.
 */
export function choose(
  { offers, payables }: Offered,
  rail: Pick<Payer, "canPay" | "decimalsOf">,
): { offers: Offer[]; chosen: { offer: Offer; payable: PayableEntry } | null } {
  let chosen: { offer: Offer; payable: PayableEntry } | null = null;
  const marked = [...offers];
  for (const [i, payable] of payables.entries()) {
    if (!payable || !rail.canPay(payable)) continue;
    // A unit of the rail's asset is a dollar (rails.ts), whether or not our own table knows the contract.
    const decimals = decimalsOf(rail, payable);
    const offer = { ...offers[i]!, payable: true, decimals, price: priceOf(payable.amountAtomic, decimals) };
    marked[i] = offer;
    if (!chosen || goesBefore(payable, chosen.payable)) chosen = { offer, payable };
  }
  return { offers: marked, chosen };
}

/**
 * Reads the payment terms of a 402: x402 version 1 and 2 in header or body, bare entries, mpp challenges. Never converts
 * an amount; what is wrong comes back as defects.
 * @param own the chains that our rail pays on
 * @param url the url that was asked, to compare the `resource` the terms name; left out for listings
 * @throws ZodError when what was read is nothing that the record takes: our own mistake
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

/** A 402 that could not be read at all: it carries nothing that anybody could pay. */
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

/** What our rail would pay of what was asked. */
export function toPay({ terms, payables, ...read }: Asked, rail: Pick<Payer, "canPay" | "decimalsOf">): ReadTerms {
  const { offers, chosen } = choose({ offers: terms.offers, payables }, rail);
  return {
    ...read,
    terms: { ...terms, offers },
    payable: chosen?.payable ?? null,
    price: chosen?.offer.price ?? null,
    payTo: chosen?.offer.pay_to ?? null,
  };
}

/** Nobody can pay an offer that states this, whatever else it leaves out. */
const MAKES_UNPAYABLE: readonly DefectCode[] = ["bad_amount", "bad_pay_to", "bad_entry", "bad_asset"];

/** Offers that a listing names, and what is wrong with them, by what may be said of whom. */
export interface ListedOffers extends Offered {
  /** As in a 402, what an entry leaves out among them. */
  defects: Seen;
  /** What the listing states itself; of a row that had no room for more nothing else is said. */
  stated: Seen;
  /** Is it written as a 402's terms are, naming their version? Only then does it leave something out. */
  isTerms: boolean;
}

/** Offers of a listing, entry by entry. What only a live 402 can get wrong is left out of the defects. */
export function readOffered(item: unknown, own: Networks): ListedOffers {
  const { entries, isVersionStated } = readEnvelope({ value: item, raw: "", from: "body" });
  const statedIn: CodesOf = ({ defects, ofTermsOnly }) => defects.filter((code) => !ofTermsOnly.includes(code));
  const isDead = (entry: ReadEntry): boolean => statedIn(entry).some((code) => MAKES_UNPAYABLE.includes(code));
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
