import { sha256hex } from "../../infra/canonical.ts";
import type { PayableEntry, Rail, SignContext } from "../../infra/rails/rails.ts";
import type { Terms } from "../record/bodies.ts";
import type { DefectCode, Protocol } from "../record/vocabulary.ts";
import { goesBefore } from "./challenge.ts";
import { type Declared, fromBazaar, fromEntry, fromItem, mergeDeclared } from "./declared.ts";
import { defectsSeen } from "./defects.ts";
import { priceOf, type ReadEntry } from "./entries.ts";
import { clean, get, hashOf, text } from "./json.ts";
import { paymentChallenges, readChallenge } from "./mpp.ts";
import { isTestnet } from "./networks.ts";
import { samePlace } from "./places.ts";
import { type Answer402, looksLikeEntry, MAX_BODY, MAX_OFFERS, readEnvelope, readX402, type X402 } from "./x402.ts";

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

function resourceDiffers(x402: X402, url: string | undefined): boolean {
  if (!url) return false;
  const named = get(x402.raw?.value, "resource");
  const claims = [text(named, 4096) ?? text(get(named, "url"), 4096)];
  const accepts = get(x402.raw?.value, "accepts");
  claims.push(text(get(Array.isArray(accepts) ? accepts[0] : accepts, "resource"), 4096));
  return claims.some((claim) => claim !== undefined && !samePlace(claim, url));
}

/** Play money only. Where our own rail pays on a test network, that network is this world's real one. */
function onlyTestnets(entries: ReadEntry[], rail: Pick<Rail, "network">): boolean {
  const networks = entries.flatMap((entry) => (entry.offer.network ? [entry.offer.network] : []));
  return networks.length > 0 && networks.every(isTestnet) && !networks.includes(rail.network);
}

/**
 * The entry that is paid, of all that our rail signs: x402 before mpp where a URL speaks both (a 402's x402 terms say
 * more: how it is called, what comes back), and of one protocol the cheapest, first of equals.
 */
function choose(entries: ReadEntry[], rail: Pick<Rail, "canPay">): ReadEntry | null {
  let best: ReadEntry | null = null;
  for (const entry of entries) {
    if (!entry.payable || !rail.canPay(entry.payable)) continue;
    // The rail's asset is USDC with 6 decimals (rails.ts), whether or not our own table knows the contract.
    const price = priceOf(entry.payable.amountAtomic, 6);
    entry.offer = { ...entry.offer, payable: true, decimals: 6, price };
    if (!best || goesBefore(entry.payable, best.payable!)) best = entry;
  }
  return best;
}

/**
 * Reads the payment terms of a 402: x402 version 1 and 2 in header or body, bare entries, mpp challenges. Never
 * throws, and never converts an amount; what is wrong comes back as defects.
 * @param url the url that was asked, to compare the `resource` the terms name; left out for listings
 */
export function readTerms(answer: Answer402, rail: Pick<Rail, "canPay" | "network">, url?: string): ReadTerms {
  const x402 = readX402(answer);
  const challenge = answer.headers["www-authenticate"] ?? "";
  const mpp = paymentChallenges(challenge).map(readChallenge);
  const entries = [...x402.entries, ...mpp].slice(0, MAX_OFFERS);
  const chosen = choose(entries, rail);
  const codes: DefectCode[] = [...x402.defects, ...entries.flatMap((entry) => entry.defects)];
  if (x402.raw === null && mpp.length === 0 && !codes.includes("malformed_terms")) codes.push("no_terms");
  if (onlyTestnets(entries, rail)) codes.push("testnet_only");
  if (resourceDiffers(x402, url)) codes.push("resource_differs");
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
  return {
    terms: {
      sha256: sha256hex(mpp.length ? Buffer.concat([raw, Buffer.from(`\n${clean(challenge, MAX_BODY)}`)]) : raw),
      protocols,
      x402_version: x402.raw ? x402.version : null,
      offers: entries.map((entry) => entry.offer),
      defects: defectsSeen(codes),
      schema_sha256: declared.outputSchema === undefined ? null : hashOf(declared.outputSchema),
    },
    readable: entries.some((entry) => entry.valid),
    payable: chosen?.payable ?? null,
    price: chosen?.offer.price ?? null,
    payTo: chosen?.offer.pay_to ?? null,
    context: { resource: get(value, "resource"), extensions: get(value, "extensions") },
    declared,
  };
}

/** Offers that a listing names, entry by entry. What only a live 402 can get wrong is left out of the defects. */
export function readListedOffers(
  item: unknown,
  rail: Pick<Rail, "canPay" | "network">,
): Pick<Terms, "offers" | "defects"> & { first: unknown } {
  const x402 = readEnvelope({ value: item, raw: "", from: "body" });
  choose(x402.entries, rail);
  const codes: DefectCode[] = x402.entries.flatMap((entry) => entry.defects);
  if (x402.defects.includes("no_payable_entry")) codes.push("no_payable_entry");
  if (onlyTestnets(x402.entries, rail)) codes.push("testnet_only");
  return {
    offers: x402.entries.map((entry) => entry.offer),
    defects: defectsSeen(codes),
    first: get(item, "accepts", "0"),
  };
}
