import type { Band, ComponentName, Matched, NoticeChange, Tier } from "../../pipelines/record/vocabulary.ts";

/**
 * Types of the service's answers, in plain TypeScript, so that the declarations of this library do not need the
 * validator that the service makes its own types with. test/serving/client/answers.test.ts checks that both are equal.
 * Money is a decimal string, such as `0.020000`; times are ISO 8601 UTC.
 */

/** One measured part of a grade. */
export interface Component {
  /** What the samples showed. */
  point: number | null;
  /** Published lower bound. */
  lower: number | null;
  /** Upper bound where one is computed. */
  upper?: number | null;
  /** Effective samples. */
  n_eff: number;
  /** How the bound was computed. */
  method: string;
}

export type Components = Record<ComponentName, Component>;

/** A defect of a listing or its 402. */
export interface Defect {
  defect: string;
  /** The defect in words. */
  says: string;
  seenAt?: string | null;
}

/** An error of the service about an endpoint. */
export interface Correction {
  id: string;
  fault: string;
  says: string;
  issuedAt: string;
  /** The record that it is about; null for all records. */
  recordId?: string | null;
  /** The grade that it is about. */
  gradeAt?: string | null;
}

/** What free handshakes saw. */
export interface Observed {
  probes: number;
  answered: number;
  /** Handshakes answered with a 402. */
  askedForPayment: number;
  firstSeen: string | null;
  lastSeen: string | null;
  spanDays: number;
  /** Offer of the newest 402; networks are CAIP-2 ids. */
  advertised: { amount: string; asset: string; networks: string[] } | null;
  distinctPrices: number;
  /** Such as x402 and mpp. */
  protocols: string[];
}

/** What the record holds about an address that is paid. */
export interface Payee {
  address: string;
  /** Origins that pay it. */
  origins: string[];
  /** Active endpoints behind it. */
  listed: number;
  /** How many of them have a letter. */
  graded: number;
  bestBand: string | null;
  /** How many of them have a defect. */
  withDefects: number;
}

/** How to buy a call through the service. */
export interface Buy {
  /** Address to which the call is sent. */
  url: string;
  method: string;
  seller_price: string;
  fee: string;
  /** An estimate: the price is quoted again for the call. */
  total: string;
  asset: "USDC";
  /** When the buyer is charged. */
  guarantee: string;
  /** The header with which the call is published in the record. */
  publish: string;
  /** The tool of an MCP server that is called: the body is its arguments, a JSON object. */
  tool?: string;
  /** Variables of the endpoint's url, each of which is a parameter of the query of a call. */
  variables?: string[];
}

/** Answer of GET /v1/check, signed with the answers key. */
export interface CheckAnswer {
  /** UNRATED means unknown, not bad. */
  band: Band;
  /** What kind of check measured it. */
  tier: Tier | null;
  composite: number | null;
  /** The reason for the grade, in words. */
  why: string;
  /** Url or id as it was asked. */
  asked: string;
  /** How the url matched the record. */
  matched: Matched;
  defects: Defect[];
  capabilityId?: string;
  /** The url in the record. */
  url?: string;
  components?: Components | null;
  sampleCount?: number;
  computedAt?: string | null;
  /** Observations newer than the grade. */
  observationsSince?: number;
  /** Records behind the grade that a correction withdrew. */
  withdrawnSince?: number;
  flags?: string[];
  observed?: Observed;
  /** Command that runs the same handshake. */
  reproduce?: string | null;
  /** The signed card behind the grade, as text. */
  scorecard?: string | null;
  corrections?: Correction[];
  /** True for a url that was never seen and is now queued for a handshake. */
  queued?: boolean;
  next?: string;
  payee?: Payee | null;
  buy?: Buy;
  /** Why there is no `buy`, of an endpoint that is in the record. */
  not_bought?: string;
  answered_at: string;
  signing_key_id: string | null;
  canonicalization?: string;
  signature: string | null;
}

/** A signed card (svc.scorecard.v1 or v2). Members that a version does not have are missing. */
export interface SignedCard {
  schema: "svc.scorecard.v1" | "svc.scorecard.v2";
  capability_id: string;
  tier: Tier;
  band: Band;
  /** Weighted sum of the lower bounds. */
  composite: number;
  components: Components | null;
  weights_applied?: Record<string, number>;
  weights_version?: string;
  sample_count?: number;
  window_days?: number;
  window_start?: string;
  computed_at?: string;
  flags?: string[];
  /** Hashes of evidence behind it. */
  evidence_sample?: string[];
  /** The method page under which it was computed. */
  method?: string;
  verifier_version?: string;
  signing_key_id?: string;
  canonicalization?: "RFC8785";
  signature: string;
}

/** One paid call that failed, as the published evidence has it. */
export interface FailedCall {
  /** Record id of the call. */
  id: string;
  at: string;
  paid_by: "us" | "a_buyer";
  /** What happened to the money and the answer, in words. */
  says: string;
  /** Names of the checks that failed. */
  failed: string[];
  expected: string;
  /** What came instead. A seller's text in it is shortened. */
  came: string;
  status: number | null;
  latency_ms: number | null;
  price: string | null;
  network: string | null;
  asset: string | null;
  pay_to: string | null;
  /** Transaction that settled it. */
  tx: string | null;
  refunded: boolean;
  request_sha256: string | null;
  response_sha256: string | null;
  /** Evidence files: the one with the call's line, then those with later facts. */
  evidence: string[];
  /** Command that prints these lines. */
  reproduce: string;
}

/** Failed paid calls of one endpoint, newest first (GET /v1/trust/{id}/failures). */
export interface FailuresAnswer {
  schema: "svc.trust.failures.v1";
  capability_id: string;
  /** Newest UTC day whose evidence is published. */
  evidence_until: string | null;
  failures: FailedCall[];
  /** Evidence files that are too long to be read for an answer. */
  left_out: string[];
  /** Cursor of the next page, null on the last. */
  next: string | null;
}

/** What the record holds of a dependency. The last two mean unknown, and are no failure. */
export type ExposureStanding =
  | "took_the_money"
  | "listing_mismatch"
  | "lettered"
  | "paid_no_letter"
  | "handshake_only"
  | "not_in_record";

/** A url with what the report needs beside it. */
export interface Dependency {
  url: string;
  calls_per_month?: number;
  /** What is paid for a call, in dollars; counts where the record knows no price. */
  price?: string;
  /** The payTo of the 402 that is about to be paid. */
  pay_to?: string;
}

/** Spending of a month in dollars, in parts that add up to `monthly_spend`. */
export interface Spend {
  monthly_spend: string;
  /** took_the_money, listing_mismatch, and a letter F. */
  monthly_spend_where_the_record_shows_a_failure: string;
  /** paid_no_letter, handshake_only, not_in_record. */
  monthly_spend_not_yet_measured: string;
  /** Letters from A to D. */
  monthly_spend_lettered: string;
  /** Calls of a month, whatever is known of their price; and those whose spending would be not yet measured. */
  calls_per_month: number;
  calls_per_month_not_yet_measured: number;
}

/** Number and monthly spending of lines whose payee or domain took money. */
export interface Related {
  payee_took_the_money: number;
  domain_took_the_money: number;
  monthly_spend: string;
}

/** One dependency of an exposure report. */
export interface ExposureLine
  extends Pick<
    CheckAnswer,
    "asked" | "matched" | "capabilityId" | "url" | "band" | "tier" | "composite" | "why" | "queued" | "next"
  > {
  standing: ExposureStanding;
  flags: string[];
  /** Codes of the defects of its listing or 402. */
  defects: string[];
  /** The service's paid calls that settled, got no answer, were not paid back and are not withdrawn. */
  calls_unserved: number;
  /** Amount and asset of the newest 402; null where none states them. */
  price: string | null;
  asset: string | null;
  /** `USD` where that asset is a dollar; only such amounts are summed up. */
  unit: string | null;
  networks: string[];
  /** The address that it pays: the one in the request, else that of the offer whose price is shown. */
  pay_to: string | null;
  /** Did a 402 of this endpoint ever name the address in the request? Left out where the request has none. */
  pay_to_seen_before?: boolean;
  calls_per_month: number | null;
  /** The request's own price, which counts where `price` is null. Left out where the request has none. */
  price_given?: string;
  monthly_spend: string | null;
}

/** Dependencies that pay one address. */
export interface ExposurePayee extends Spend {
  /** null: no address is known. */
  address: string | null;
  dependencies: number;
  origins: number;
  standings: Record<ExposureStanding, number>;
  related?: Related;
}

export interface ExposureTotals extends Spend {
  dependencies: number;
  payees: number;
  unit: "USD";
  standings: Record<ExposureStanding, number>;
  related?: Related;
  /** Lines without spending: no calls were given, or no price is known. */
  without_spend: number;
  /** Lines with an address in the request that no 402 of the endpoint ever named. */
  pay_to_not_seen_before: number;
  /** Assets that are no dollar. Their amounts are only on the lines. */
  other_assets: { asset: string; dependencies: number }[];
}

/** Answer of POST /v1/exposure, signed with the answers key. */
export interface ExposureReport {
  schema: "svc.exposure.v1";
  lines: ExposureLine[];
  payees: ExposurePayee[];
  totals: ExposureTotals;
  answered_at: string;
  signing_key_id: string;
  canonicalization: string;
  signature: string;
}

/** An item of a watcher as it was asked for, and the endpoints that it means. */
export interface Watched {
  asked: string;
  matched: Matched;
  capability_ids: string[];
}

/** Answer of POST /v1/watchers: the only answer that has the token. */
export interface WatcherMade {
  watcher_id: string;
  token: string;
  url: string;
  state: "active";
  created_at: string;
  watched: Watched[];
}

/** The members of a card that notices compare. */
export interface Standing {
  band: Band;
  tier: Tier;
  composite: number;
  /** null: the card has no such member. */
  computed_at: string | null;
  flags: string[];
  [more: string]: unknown;
}

/** One attempt to deliver a notice. */
export interface Delivery {
  notice_id: string;
  capability_id: string;
  seq: number;
  change: NoticeChange;
  attempt: number;
  at: string;
  delivered: boolean;
  /** Status of the receiver's answer; null when there was none. */
  status: number | null;
  says: string | null;
}

/** A watcher, as it is shown to the holder of its token. */
export interface WatcherAnswer {
  watcher_id: string;
  url: string;
  state: "active" | "stopped" | "disabled";
  /** Why it ended, in words. */
  says: string | null;
  created_at: string;
  ended_at: string | null;
  watched: Watched[];
  endpoints: {
    capability_id: string;
    /** `seq` of the last notice that was delivered; 0 before the first. */
    last_seq: number;
    /**
     * The card of that notice; before the first notice the card when the watcher was created; null when there was none.
     */
    standing: Standing | null;
    /** Number of published cards that were not delivered yet. */
    pending: number;
  }[];
  pending: number;
  failing: { since: string; attempts: number; next_attempt_at: string; says: string } | null;
  /** The newest attempts, newest first. */
  deliveries: Delivery[];
}
