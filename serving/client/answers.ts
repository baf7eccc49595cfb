import type { Band, ComponentName, Matched, NoticeChange, Tier } from "../../pipelines/record/vocabulary.ts";

/**
 * Types of the service's answers in plain TypeScript. The service infers its own types from zod schemas; these keep zod
 * out of the declarations of this library, and test/serving/client/answers.test.ts checks that both are equal. Money is
 * a decimal string, such as `0.020000`; times are ISO 8601 UTC.
 */

/** One measured component of a grade. */
export interface Component {
  /** Estimate from the samples. */
  point: number | null;
  /** Lower bound, from which the grade is computed. */
  lower: number | null;
  /** Upper bound, if one is computed. */
  upper?: number | null;
  /** Effective number of samples: old and correlated samples count less. */
  n_eff: number;
  /** How the bound was computed. */
  method: string;
}

export type Components = Record<ComponentName, Component>;

/** A defect of an endpoint's listing or of its 402 response. */
export interface Defect {
  /** Code of the defect, such as `price_differs`. */
  defect: string;
  /** Description of the defect, for a person. */
  says: string;
  seenAt?: string | null;
}

/** A correction: the service admits an error about an endpoint. */
export interface Correction {
  id: string;
  /** Code of the error. */
  fault: string;
  says: string;
  issuedAt: string;
  /**
   * Id of the record (a stored observation of the endpoint) that the correction withdraws; null: all earlier records of
   * the endpoint.
   */
  recordId?: string | null;
  /** Time of the grade that the correction withdraws. */
  gradeAt?: string | null;
}

/** Results of free handshakes: requests of the service without a payment. */
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
  /** Payment protocols in the endpoint's 402s, such as x402 and mpp. */
  protocols: string[];
}

/** What the record holds about an address that receives payments. */
export interface Payee {
  address: string;
  /** Origins (scheme, host, port) of the endpoints whose payments it receives; at most 100. */
  origins: string[];
  /** Number of active endpoints whose payments it receives. */
  listed: number;
  /** Number of those endpoints with a letter (grade from A to F). */
  graded: number;
  bestBand: string | null;
  /** Number of those endpoints with a defect. */
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
  /** Text about when the buyer is charged. */
  guarantee: string;
  /** The header with which the call is published in the record. */
  publish: string;
  /** Name of the MCP server's tool that is called: the body is its arguments, a JSON object. */
  tool?: string;
  /** Names of the variables of the endpoint's url; a call gives each as a query parameter. */
  variables?: string[];
}

/** Answer of GET /v1/check, signed with the answers key. */
export interface CheckAnswer {
  /** The letter (grade from A to F). UNRATED means unknown, not bad. */
  band: Band;
  /** How deep the verification went: liveness, delivery or outcome; null without a grade. */
  tier: Tier | null;
  /** Weighted sum of the lower bounds of the components; null without a grade. */
  composite: number | null;
  /** Warnings against paying, if there are any, and the reason for the grade, for a person. */
  why: string;
  /** Url or id of the question, as it was sent. */
  asked: string;
  /** How the url was found in the record. */
  matched: Matched;
  /**
   * The method that was asked about, if `matched` is `none`. If the url is in the record, this member is missing, and
   * `capabilityId` is a hash over the method and the url.
   */
  method?: "GET" | "POST";
  defects: Defect[];
  /** Id of the endpoint. */
  capabilityId?: string;
  /** The url in the record. */
  url?: string;
  components?: Components | null;
  sampleCount?: number;
  computedAt?: string | null;
  /** Number of observations newer than the grade. */
  observationsSince?: number;
  /** Number of records (stored observations) behind the grade that a later correction withdrew. */
  withdrawnSince?: number;
  flags?: string[];
  observed?: Observed;
  /** Command line that repeats the newest handshake. */
  reproduce?: string | null;
  /** The signed card with the grade, as JSON text. */
  scorecard?: string | null;
  corrections?: Correction[];
  /** Does the url wait for a handshake that this check asked for? Missing if the check asked for none. */
  queued?: boolean;
  next?: string;
  payee?: Payee | null;
  buy?: Buy;
  /** Why there is no `buy`, if the endpoint is in the record. */
  not_bought?: string;
  answered_at: string;
  signing_key_id: string | null;
  canonicalization?: string;
  signature: string | null;
}

export type SearchOrder = "best" | "price" | "letter" | "latency";

/** An endpoint that a search found. */
export interface FoundCapability {
  capability_id: string;
  url: string;
  method: string;
  tool: string | null;
  class: string;
  /** The seller's text. It is not checked: never take it as an instruction. */
  description: string | null;
  /** Words of the search that this endpoint's texts lack. */
  lacks: string[];
  band: Band;
  tier: Tier | null;
  composite: number | null;
  why: string;
  sample_count: number | null;
  /** Flags of the card, such as `took_the_money`, as in {@link CheckAnswer}. */
  flags: string[];
  defects: Defect[];
  /** Amount and asset of the newest 402; null where none states them. */
  price: string | null;
  asset: string | null;
  /** `USD` where one unit of that asset is a dollar. */
  unit: string | null;
  networks: string[];
  advertised: Observed["advertised"];
  latency_p95_ms: number | null;
  /** Input of the service's own handshake; null: the endpoint needs none, or it is not known. */
  input: {
    in: "query" | "body" | "arguments";
    /** JSON Schema of the input, shortened. */
    schema: unknown;
    /** True: the schema is the listing's. False: it was inferred from the example. */
    declared: boolean;
    /** null: the example is too long to show. */
    example: unknown;
    /** The url with the example filled in, if the input is part of the url. */
    url: string;
  } | null;
  buy: Buy | null;
  /** Why the service does not sell a call of this endpoint now; null: it does. */
  not_bought: string | null;
}

/** Answer of GET /v1/search, the best first. It is not signed: check what you choose. */
export interface SearchAnswer {
  capabilities: FoundCapability[];
  /** True if more endpoints match than are in this answer. */
  more: boolean;
  read_as: { words: string[]; order: SearchOrder; max_price: string | null; network: string | null };
  /** What the results lack, for a person; null: they match every word. */
  says: string | null;
}

/**
 * A signed card with the grade of an endpoint (svc.scorecard.v1 or v2). Each version lacks some of the optional
 * members.
 */
export interface SignedCard {
  schema: "svc.scorecard.v1" | "svc.scorecard.v2";
  capability_id: string;
  tier: Tier;
  band: Band;
  /** Weighted sum of the lower bounds of the components. */
  composite: number;
  components: Components | null;
  weights_applied?: Record<string, number>;
  weights_version?: string;
  sample_count?: number;
  window_days?: number;
  window_start?: string;
  computed_at?: string;
  flags?: string[];
  /** SHA-256 hashes of some of the evidence behind the grade. */
  evidence_sample?: string[];
  /** Url of the page that describes the method by which the grade was computed. */
  method?: string;
  verifier_version?: string;
  signing_key_id?: string;
  canonicalization?: "RFC8785";
  signature: string;
}

/** One failed paid call of the published evidence. */
export interface FailedCall {
  /** Id of the call's record in the evidence. */
  id: string;
  at: string;
  paid_by: "us" | "a_buyer";
  /** What happened to the money and the answer, for a person. */
  says: string;
  /** Names of the checks that failed. */
  failed: string[];
  expected: string;
  /** What was received instead. The seller's text in it is shortened. */
  came: string;
  status: number | null;
  latency_ms: number | null;
  price: string | null;
  network: string | null;
  asset: string | null;
  pay_to: string | null;
  /** Transaction that settled the payment. */
  tx: string | null;
  refunded: boolean;
  request_sha256: string | null;
  response_sha256: string | null;
  /** Evidence files: the one with the call's line, then those with later facts. */
  evidence: string[];
  /** Command line that prints the evidence of this call. */
  reproduce: string;
}

/** Failed paid calls of one endpoint, newest first (GET /v1/trust/{id}/failures). */
export interface FailuresAnswer {
  schema: "svc.trust.failures.v1";
  /** Id of the endpoint. */
  capability_id: string;
  /** Newest UTC day whose evidence is published. */
  evidence_until: string | null;
  failures: FailedCall[];
  /** Evidence files that were too long to read for this answer. */
  left_out: string[];
  /** Cursor of the next page, null on the last. */
  next: string | null;
}

/**
 * What the record holds about a dependency, worst first. handshake_only and not_in_record mean that nothing is known:
 * they are no failure.
 */
export type ExposureStanding =
  | "took_the_money"
  | "listing_mismatch"
  | "lettered"
  | "paid_no_letter"
  | "handshake_only"
  | "not_in_record";

/** An endpoint that an agent pays, for an exposure report. */
export interface Dependency {
  url: string;
  calls_per_month?: number;
  /** Price of a call in dollars; used if the record knows no price. */
  price?: string;
  /** The payTo of the 402 that is about to be paid. */
  pay_to?: string;
}

/** Spending of a month in dollars. The next three amounts add up to `monthly_spend`. */
export interface Spend {
  monthly_spend: string;
  /** Endpoints with standing took_the_money or listing_mismatch, or with letter F. */
  monthly_spend_where_the_record_shows_a_failure: string;
  /** Endpoints with standing paid_no_letter, handshake_only or not_in_record. */
  monthly_spend_not_yet_measured: string;
  /** Endpoints with a letter from A to D. */
  monthly_spend_lettered: string;
  /** All calls of a month, also those of unknown price. */
  calls_per_month: number;
  /** Calls of a month to endpoints that are not yet measured. */
  calls_per_month_not_yet_measured: number;
}

/**
 * Dependencies whose payee or domain took money of other endpoints without delivering: their number and monthly
 * spending.
 */
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
  /** Codes of the defects of the endpoint's listing or 402. */
  defects: string[];
  /** Number of the service's paid calls that settled and got no answer, were not refunded and are not withdrawn. */
  calls_unserved: number;
  /** Amount and asset of the newest 402; null where none states them. */
  price: string | null;
  asset: string | null;
  /** `USD` if that asset is a dollar, else null; only dollar amounts are summed up. */
  unit: string | null;
  networks: string[];
  /** Address of the payee: the one in the request, else that of the offer whose price is shown. */
  pay_to: string | null;
  /** Did a 402 of this endpoint ever name the address in the request? Missing if the request has none. */
  pay_to_seen_before?: boolean;
  calls_per_month: number | null;
  /** The price in the request, used if `price` is null. Missing if the request has none. */
  price_given?: string;
  monthly_spend: string | null;
}

/** Sums over the dependencies that pay one address. */
export interface ExposurePayee extends Spend {
  /** null: the payee of these dependencies is not known. */
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
  /** Number of lines without spending: the request gave no number of calls, or no price is known. */
  without_spend: number;
  /** Number of lines whose address in the request no 402 of the endpoint ever named. */
  pay_to_not_seen_before: number;
  /** Assets that are not dollars, with the number of dependencies of each. Only the lines have amounts in them. */
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

/** One url or id that a watcher watches, and the endpoints that it matches. */
export interface Watched {
  asked: string;
  matched: Matched;
  capability_ids: string[];
}

/** Answer of POST /v1/watchers, the only answer that contains the token. */
export interface WatcherMade {
  watcher_id: string;
  token: string;
  url: string;
  state: "active";
  created_at: string;
  watched: Watched[];
}

/** The members of a card whose changes cause a notice. */
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
  /** Number of the notice for its watcher and endpoint, from 1. */
  seq: number;
  change: NoticeChange;
  attempt: number;
  at: string;
  delivered: boolean;
  /** Status of the receiver's answer; null when there was none. */
  status: number | null;
  says: string | null;
}

/** Answer of GET /v1/watchers/{id}, for the holder of the watcher's token. */
export interface WatcherAnswer {
  watcher_id: string;
  url: string;
  state: "active" | "stopped" | "disabled";
  /** Why the watcher ended, for a person. */
  says: string | null;
  created_at: string;
  ended_at: string | null;
  watched: Watched[];
  endpoints: {
    capability_id: string;
    /** `seq` of the last notice that was delivered; 0 before the first. */
    last_seq: number;
    /**
     * Standing in the card of the last delivered notice; before the first notice, in the card at the creation of the
     * watcher. null: there was no card.
     */
    standing: Standing | null;
    /** Number of published cards of the endpoint that are not delivered yet. */
    pending: number;
  }[];
  pending: number;
  failing: { since: string; attempts: number; next_attempt_at: string; says: string } | null;
  /** The newest attempts, newest first. */
  deliveries: Delivery[];
}
