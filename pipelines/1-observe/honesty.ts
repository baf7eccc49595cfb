import type { Claims, Offer } from "../record/bodies.ts";
import type { DefectCode } from "../record/vocabulary.ts";
import { defectsSeen } from "./defects.ts";
import { hashOf } from "./json.ts";
import type { ReadTerms } from "./terms.ts";

/** Hex addresses are compared without their checksum's case; other chains' addresses are case-sensitive. */
const form = (address: string): string => (address.startsWith("0x") ? address.toLowerCase() : address);
const same = (a: string | null, b: string | null): boolean => a !== null && b !== null && form(a) === form(b);

/**
 * The offer a buyer would take: the one that is paid (x402 before mpp, then the cheapest), else the cheapest complete
 * one on a listed network.
 */
function offerTaken(offers: readonly Offer[], listed: readonly Offer[]): Offer | undefined {
  const networks = new Set(listed.map((offer) => offer.network));
  const usable = offers.filter((offer) => networks.has(offer.network) && offer.amount_atomic !== null);
  const best = (from: readonly Offer[]): Offer | undefined =>
    from.reduce<Offer | undefined>(
      (least, offer) => (!least || BigInt(offer.amount_atomic!) < BigInt(least.amount_atomic!) ? offer : least),
      undefined,
    );
  const payable = usable.filter((offer) => offer.payable);
  return best(payable.filter((offer) => offer.scheme === "exact")) ?? best(payable) ?? best(usable);
}

/**
 * What a 402 asks against what the seller itself listed (grading-method.md section 1, honesty): network, asset, payout
 * address, amount not above the listed one where the price is fixed, schema as listed. A part the listing does not
 * name cannot differ. Third parties' catalogues never come here.
 */
export function differences(listed: Claims | null, read: ReadTerms): { defect: string; says: string }[] {
  if (!listed) return [];
  const codes: DefectCode[] = [];
  const schema = read.terms.schema_sha256;
  if (listed.output_schema !== undefined && schema !== null) {
    const own = hashOf(listed.output_schema);
    if (own !== null && own !== schema) codes.push("schema_differs");
  }
  const named = listed.offers.filter((offer) => offer.network !== "");
  if (named.length === 0) return defectsSeen(codes);
  const offer = offerTaken(read.terms.offers, named);
  if (!offer) return defectsSeen([...codes, "network_differs"]);
  const here = named.filter((one) => one.network === offer.network);
  const assets = here.filter((one) => one.asset !== null);
  if (assets.length > 0 && !assets.some((one) => same(one.asset, offer.asset))) codes.push("asset_differs");
  const payees = here.filter((one) => one.pay_to !== null);
  if (payees.length > 0 && !payees.some((one) => same(one.pay_to, offer.pay_to))) codes.push("pay_to_differs");
  const prices = here.filter(
    (one) => one.amount_atomic !== null && (one.asset === null || same(one.asset, offer.asset)),
  );
  const dearest = prices.reduce(
    (most, one) => (BigInt(one.amount_atomic!) > most ? BigInt(one.amount_atomic!) : most),
    0n,
  );
  if (listed.fixed_price && prices.length > 0 && BigInt(offer.amount_atomic!) > dearest) codes.push("price_differs");
  return defectsSeen(codes);
}
