/**
 * Sets of values in records and answers. The sets that the public interface defines are closed; those that the design
 * pages define may grow.
 */
export const BANDS = ["A", "B", "C", "D", "F"] as const;
export type Letter = (typeof BANDS)[number];
export type Band = Letter | "UNRATED";

/**
 * How deeply an endpoint was verified, from the shallowest to the deepest: that it answers, that paid calls are
 * answered, and that the answers are right.
 */
export const TIERS = ["LIVENESS_VERIFIED", "DELIVERY_VERIFIED", "OUTCOME_VERIFIED"] as const;
export type Tier = (typeof TIERS)[number];

export const COMPONENTS = [
  "liveness",
  "correctness",
  "honesty",
  "schema_conformance",
  "latency_p95",
  "price_stability",
] as const;
export type ComponentName = (typeof COMPONENTS)[number];

/**
 * How an endpoint that a client asks about was found in the record. exact: by its method and url. path: only by its
 * origin and path, or by a url template that it fits. none: it was not found.
 */
export const MATCHED = ["exact", "path", "none"] as const;
export type Matched = (typeof MATCHED)[number];

export const PROTOCOLS = ["x402", "mpp"] as const;
export type Protocol = (typeof PROTOCOLS)[number];

export const ARCHIVE_SUBJECTS = ["liveness_probes", "mcp_probes", "grades", "mcp_grades"] as const;
export type ArchiveSubject = (typeof ARCHIVE_SUBJECTS)[number];

/**
 * Results of sending the payment proof of a paid and answered call once more: the answer; a 402, as if nothing had been
 * paid; another refusal (4xx); anything else. There is no second charge, since no new payment is signed.
 */
export const RETRY_OUTCOMES = ["answered", "asked_again", "refused", "failed"] as const;
export type RetryOutcome = (typeof RETRY_OUTCOMES)[number];

export const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const;
export type Method = (typeof METHODS)[number];

/** Flags of a grade (verification-method.md section 7), in the order in which they are published. */
export const FLAGS = [
  // These two are never in a card. Answers to clients that name a payTo (address to pay) have them, before all other
  // flags.
  "pay_to_unknown",
  "pay_to_differs",
  "took_the_money",
  "money_pending",
  "refunded",
  "refuses_payment",
  "early_fail",
  "capped_by_tier",
  "deeper_tier_worse",
  "recent_failures",
  "held_14d",
  "stale_paid",
  "stale",
  "dark",
  "listing_mismatch",
  "pay_to_changed",
  "price_untested",
  "dynamic_price",
  "no_schema_advertised",
  "no_example",
  "latency_unbounded",
  "streaky",
  "buyers_report_worse",
  "blocks_prober",
  "disputed",
  "records_withdrawn",
  "stands_on_nothing",
  "payee_took_the_money",
  "domain_took_the_money",
] as const;
export type Flag = (typeof FLAGS)[number];

/** Why a recorded call may not count as a sample (verification-method.md section 1). */
export const FAULTS = ["ours", "blocked", "bad_input", "unconfirmed", "not_reproduced"] as const;
export type Fault = (typeof FAULTS)[number];

/**
 * Our own faults because of which a record was withdrawn; every correction names one. The set may grow: readers
 * accept unknown values.
 */
export const OUR_FAULTS = {
  our_clock: "our clock was wrong: a time, a deadline or a window was misjudged",
  our_network: "our own connection failed, and no control call showed it",
  our_process: "our process died or stalled in the middle of an exchange",
  prober_bug: "our prober asked in a way that the protocol does not allow",
  wrong_input: "we sent an input that the endpoint never promised to take",
  wrong_checker: "our check judged an answer wrongly",
  misread_terms: "we read the payment terms wrongly",
  misread_chain: "we read the settlement on the chain wrongly",
  misread_listing: "we held the endpoint against a listing that does not say what we read",
  misfiled: "a record was filed under the wrong endpoint",
  misgraded: "a grade was computed in another way than the method says",
} as const;

/** Defects of a listing or a 402, with the text of each (`says`). The set may grow: readers accept unknown values. */
export const DEFECTS = {
  malformed_terms: "the 402 carries payment terms that cannot be read",
  no_terms: "the 402 carries no payment terms",
  no_payable_entry: "none of the offered entries can be paid",
  bad_version: "x402Version is missing, or is no version that is specified",
  bad_entry: "an offered entry is not a valid one",
  bad_amount: "an amount is not a whole number of atomic units",
  missing_amount: "an offered entry names no amount",
  bad_pay_to: "an offered entry names no usable payout address",
  bad_asset: "an asset is not named by its contract, or is none that anybody can pay in",
  bad_network: "a network is not written as a CAIP-2 id",
  network_form: "the network is written in the other version's form",
  missing_domain: "an EVM entry lacks the token's EIP-712 name or version",
  missing_fee_payer: "a Solana entry names no extra.feePayer, so no client can build its transaction",
  bad_timeout: "maxTimeoutSeconds is missing or out of range",
  resource_differs: "the terms name another resource than the url that was asked",
  resource_scheme_differs: "the terms name their resource with http; it is the one that was asked over https",
  terms_in_body: "version 2 terms came in the body instead of the header",
  both_amounts: "amount and maxAmountRequired differ",
  testnet_only: "only test networks are offered",
  price_differs: "the 402 asks a price other than the listing's",
  pay_to_differs: "the 402 names a payout address other than the listing's",
  network_differs: "the 402 offers no network that the listing names",
  asset_differs: "the 402 asks for an asset other than the listing's",
  schema_differs: "the schema in the 402 is not the one the listing names",
  paid_calls_refused: "the seller's listing asks for no paid test calls, so none is made",
  no_402: "the url is listed as paid and does not ask for payment",
} as const;
export type DefectCode = keyof typeof DEFECTS;

/**
 * How a published card (an endpoint's signed grade) differs from the endpoint's previous card: the first of these
 * values that applies (docs/watchers.md). first: there was no earlier card. corrected: since the previous card, one
 * of our corrections was published or withdrawn. figures: only numbers changed. The set may grow.
 */
export const NOTICE_CHANGES = ["first", "corrected", "band", "tier", "flags", "figures"] as const;
export type NoticeChange = (typeof NOTICE_CHANGES)[number];

export interface Defect {
  defect: string;
  says: string;
  seenAt?: string | null;
}

/** Makes a defect with its text from {@link DEFECTS}. */
export function defect(code: DefectCode, seenAt?: string): Defect {
  return seenAt === undefined ? { defect: code, says: DEFECTS[code] } : { defect: code, says: DEFECTS[code], seenAt };
}
