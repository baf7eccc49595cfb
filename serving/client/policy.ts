import type { Letter } from "../../pipelines/record/vocabulary.ts";

/** What a buyer refuses to pay. Members that are left out have the values of {@link DEFAULT_POLICY}. */
export interface Policy {
  /** The lowest letter (grade from A to F) that is paid. */
  atLeast: Exclude<Letter, "F">;
  /** What to do when the endpoint has no letter. UNRATED means unknown, not bad. */
  unrated: "pay" | "refuse";
  /**
   * What to do when the service could not be asked, or its answer is not valid. `refuse`: an attacker who blocks or
   * corrupts the answer cannot cause a payment. While the service is down this prevents payments; the caller can
   * distinguish this case from a refusal, and try again. `pay`: for buyers to whom a missed payment costs more than a
   * bad one.
   */
  notAsked: "pay" | "refuse";
  /** Flags of the check answer that are refused. */
  flags: readonly string[];
  /**
   * Defects of the listing that are refused. With the default ones, money may go to the wrong payee or buy something
   * else.
   */
  defects: readonly string[];
  /**
   * Largest ratio of a payment to the price in the newest 402 that the service received from the endpoint; Infinity: no
   * limit. It is not applied where prices are known to be dynamic.
   */
  priceRise: number;
  /** What to do with an offer on a network that the newest 402 does not name. */
  otherNetwork: "pay" | "refuse";
  /**
   * What to do with an offer in another asset than the newest 402 names. If the service knows no 402 of the endpoint:
   * what to do with an offer in an asset that is no well-known dollar token.
   */
  otherAsset: "pay" | "refuse";
  /**
   * What to do with an offer by a scheme (in mpp: a method) whose signature covers more than network, asset, amount,
   * payee and time.
   */
  otherScheme: "pay" | "refuse";
  /** Longest validity of a payment's signature, seconds. Until it ends, the seller may take the money. */
  maxValidity_s: number;
}

/**
 * Refuses sellers that are known to fail, and payments that may go to another payee than the known one; pays unknown
 * sellers.
 */
export const DEFAULT_POLICY: Readonly<Policy> = {
  atLeast: "D",
  unrated: "pay",
  notAsked: "refuse",
  flags: [
    ...["pay_to_unknown", "pay_to_differs", "listing_mismatch"],
    ...["took_the_money", "payee_took_the_money", "domain_took_the_money"],
  ],
  defects: [
    "malformed_terms",
    "no_terms",
    "no_payable_entry",
    "bad_amount",
    "bad_pay_to",
    "bad_asset",
    "resource_differs",
    "both_amounts",
    "price_differs",
    "pay_to_differs",
    "network_differs",
    "asset_differs",
  ],
  priceRise: 2,
  otherNetwork: "refuse",
  otherAsset: "refuse",
  otherScheme: "refuse",
  // In real catalogues, 1,506 of 1,524 entries ask for a validity of 600 s or less; 300 s is usual.
  maxValidity_s: 600,
};

/** Completes a policy with the defaults and validates it. @throws TypeError for unknown members and values */
export function policyOf(policy: Partial<Policy>): Policy {
  const given = Object.fromEntries(Object.entries(policy).filter(([, value]) => value !== undefined));
  const unknown = Object.keys(given).filter((name) => !Object.hasOwn(DEFAULT_POLICY, name));
  if (unknown.length > 0) throw new TypeError(`no such part of a policy: ${unknown.join(", ")}`);
  const all: Policy = { ...DEFAULT_POLICY, ...given };
  const words = [all.unrated, all.notAsked, all.otherNetwork, all.otherAsset, all.otherScheme];
  if (!words.every((word) => word === "pay" || word === "refuse"))
    throw new TypeError('a policy says "pay" or "refuse"');
  if (!/^[A-D]$/.test(all.atLeast)) throw new TypeError("atLeast is A, B, C or D");
  if (!(all.priceRise >= 1)) throw new TypeError("priceRise is 1 or more");
  if (!(all.maxValidity_s >= 1)) throw new TypeError("maxValidity_s is 1 or more");
  return all;
}
