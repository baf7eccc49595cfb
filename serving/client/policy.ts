import type { Letter } from "../../pipelines/record/vocabulary.ts";

/** What a buyer refuses to pay. All that is left out is as in {@link DEFAULT_POLICY}. */
export interface Policy {
  /** The lowest letter that is paid. */
  atLeast: Exclude<Letter, "F">;
  /** UNRATED means unknown, not bad. */
  unrated: "pay" | "refuse";
  /**
   * What to do where the service could not be asked, or its answer not be believed. `refuse`: whoever can keep the answer
   * away, or spoil it, must not thereby have the guard open; it costs the payments of the time in which the service is down,
   * and the caller is told apart, so that it can try again. `pay`: where a missed payment costs more than a bad one.
   */
  notAsked: "pay" | "refuse";
  /** Flags of the answer that are refused. */
  flags: readonly string[];
  /** Defects of the listing that are refused: those with which money goes astray, or buys something else. */
  defects: readonly string[];
  /** How many times what its newest 402 asked a payment may be; not held against prices that are known to be dynamic. */
  priceRise: number;
  /** An offer on a network that its newest 402 does not name. */
  otherNetwork: "pay" | "refuse";
  /** An offer in another asset than its newest 402 names; where none is known, in one that is no well-known dollar. */
  otherAsset: "pay" | "refuse";
  /** A scheme, or a method of mpp, of which more is signed than network, asset, amount, payee and time. */
  otherScheme: "pay" | "refuse";
  /** Seconds that a signature may be good for: as long as it is, the seller may take the money. */
  maxValidity_s: number;
}

/** Refuses what is shown failing, and what another than the seller that is known would be paid; pays what is unknown. */
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
  // Of 1,524 entries of real catalogues 1,506 ask for no more; 300 is usual.
  maxValidity_s: 600,
};

/** @throws TypeError for a policy that says nothing, or the opposite of what is meant */
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
