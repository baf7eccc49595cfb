import type { Band, ComponentName, Matched, NoticeChange, Tier } from "../../pipelines/record/vocabulary.ts";

/**
 * Shapes of the service's answers as its interface has them, in plain TypeScript: the declarations of this library must not
 * ask for the validator that the service makes its own of. test/serving/client/answers.test.ts holds the two equal.
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

/** What a listing or its 402 gets wrong. */
export interface Defect {
  defect: string;
  /** The same in words. */
  says: string;
  seenAt?: string | null;
}

/** What the service itself got wrong about an endpoint. */
export interface Correction {
  id: string;
  fault: string;
  says: string;
  issuedAt: string;
  /** The one record that it names; null for all. */
  recordId?: string | null;
  /** The one grade that it names. */
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
  /** What the newest 402 asked; networks are CAIP-2 ids. */
  advertised: { amount: string; asset: string; networks: string[] } | null;
  distinctPrices: number;
  /** Such as x402 and mpp. */
  protocols: string[];
}

/** What the record knows about an address that is paid. */
export interface Payee {
  address: string;
  /** Origins that pay it. */
  origins: string[];
  /** Active endpoints behind it. */
  listed: number;
  /** Of those, holding a letter. */
  graded: number;
  bestBand: string | null;
  /** Of those, with a defect of their listing. */
  withDefects: number;
}

/** How to buy it through the service. */
export interface Buy {
  /** Where to send the call. */
  url: string;
  method: string;
  seller_price: string;
  fee: string;
  /** An estimate: it is quoted again at call time. */
  total: string;
  asset: "USDC";
  /** When the buyer is charged. */
  guarantee: string;
  /** The header that puts the call in the public record. */
  publish: string;
}

/** Answer of GET /v1/check, signed by the key for answers. */
export interface CheckAnswer {
  /** UNRATED means unknown, not bad. */
  band: Band;
  /** What measured it. */
  tier: Tier | null;
  composite: number | null;
  /** The grade's reason in words. */
  why: string;
  /** Url or id as it was asked. */
  asked: string;
  /** How the url met the record. */
  matched: Matched;
  defects: Defect[];
  capabilityId?: string;
  /** The url that the record holds. */
  url?: string;
  components?: Components | null;
  sampleCount?: number;
  computedAt?: string | null;
  /** Observations newer than the grade. */
  observationsSince?: number;
  /** Records under the grade that a correction withdrew. */
  withdrawnSince?: number;
  flags?: string[];
  observed?: Observed;
  /** Command that runs the same handshake. */
  reproduce?: string | null;
  /** The signed card behind the grade, as text. */
  scorecard?: string | null;
  corrections?: Correction[];
  /** True for a url never seen, which now waits for a handshake. */
  queued?: boolean;
  next?: string;
  payee?: Payee | null;
  buy?: Buy;
  answered_at: string;
  signing_key_id: string | null;
  canonicalization?: string;
  signature: string | null;
}

/** A signed card (svc.scorecard.v1 or v2): what a version leaves out is not filled in. */
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
  /** Hashes of evidence that it stood on. */
  evidence_sample?: string[];
  /** Method page that it was computed under. */
  method?: string;
  verifier_version?: string;
  signing_key_id?: string;
  canonicalization?: "RFC8785";
  signature: string;
}

/** What the record says of a dependency. The last two mean unknown and are no failure. */
export type ExposureStanding =
  | "took_the_money"
  | "listing_mismatch"
  | "lettered"
  | "paid_no_letter"
  | "handshake_only"
  | "not_in_record";

/** A url, or one with what the report needs beside it. */
export interface Dependency {
  url: string;
  calls_per_month?: number;
  /** The payTo of the 402 in hand. */
  pay_to?: string;
}

/** Spend of a month in dollars, in parts that add up to `monthly_spend`. */
export interface Spend {
  monthly_spend: string;
  /** took_the_money, listing_mismatch, and a letter F. */
  monthly_spend_where_the_record_shows_a_failure: string;
  /** paid_no_letter, handshake_only, not_in_record. */
  monthly_spend_not_yet_measured: string;
  /** Letters from A to D. */
  monthly_spend_lettered: string;
}

/** Lines whose payee or domain took money. */
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
  /** Codes of what its listing or 402 gets wrong. */
  defects: string[];
  /** Paid calls that settled and brought nothing, not paid back and not withdrawn. */
  calls_unserved: number;
  /** Amount and asset of the newest 402; null where none states them. */
  price: string | null;
  asset: string | null;
  /** `USD` where that asset is a dollar; only such amounts are added up. */
  unit: string | null;
  networks: string[];
  /** The address that it pays: the one that was passed, else that of the offer whose price is shown. */
  pay_to: string | null;
  /** Did a 402 of this endpoint ever name the address that was passed? Only where one was. */
  pay_to_seen_before?: boolean;
  calls_per_month: number | null;
  monthly_spend: string | null;
}

/** Dependencies that pay one address. */
export interface ExposurePayee extends Spend {
  /** null: of these no address is known. */
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
  /** No spend could be said of these: no calls were given, or no price is known. */
  without_spend: number;
  /** Of those with an address that was passed: how many never were seen to name it. */
  pay_to_not_seen_before: number;
  /** Assets that are no dollar: their amounts stand on the lines alone. */
  other_assets: { asset: string; dependencies: number }[];
}

/** Answer of POST /v1/exposure, signed by the key for answers. */
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

/** A url of a watcher, and the endpoints that it met. */
export interface Watched {
  asked: string;
  matched: Matched;
  capability_ids: string[];
}

/** Answer of POST /v1/watchers: the only one that carries the token. */
export interface WatcherMade {
  watcher_id: string;
  token: string;
  url: string;
  state: "active";
  created_at: string;
  watched: Watched[];
}

/** What a card says in short. */
export interface Standing {
  band: Band;
  tier: Tier;
  composite: number;
  /** null: not said by the card. */
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
  /** Of the receiver's answer; null when there was none. */
  status: number | null;
  says: string | null;
}

/** A watcher as its token reads it. */
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
    /** The card of that notice; before the first one the card at the beginning; null when there was none. */
    standing: Standing | null;
    /** Published cards that were not delivered yet. */
    pending: number;
  }[];
  pending: number;
  failing: { since: string; attempts: number; next_attempt_at: string; says: string } | null;
  /** The newest attempts, newest first. */
  deliveries: Delivery[];
}
