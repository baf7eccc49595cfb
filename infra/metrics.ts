/**
 * The table of all metrics. A metric name or a label value that is not in the table does not compile. Where all label
 * values of a counter are listed, its series start at 0 in each process of its area, so that Prometheus' increase()
 * counts the first increment.
 */

/**
 * The part of a process's work that a metric belongs to. A process starts the counters of the areas in which it works
 * at 0. `role` applies to every process.
 */
export type Area =
  | "role"
  | "observe"
  | "ingest"
  | "grade"
  | "publish"
  | "serve"
  | "sell"
  | "replica"
  | "witness"
  | "monitor"
  | "mirror";

interface Metric {
  /** What the metric counts or measures, with its unit. */
  help: string;
  /** The part of a process's work that the metric belongs to. */
  of: Area;
  /** Values of each label; null when they are not known beforehand (a blockchain, a job, a partition). */
  labels?: Readonly<Record<string, readonly string[] | null>>;
}

const BOOLEAN_VALUES = ["true", "false"] as const;
/** States of an endpoint after a free probe, as `pipelines/record/bodies.ts` describes them. */
const HANDSHAKE_STATES = ["asked", "free", "malformed", "wall", "status", "silent", "unfetchable"] as const;
/** Topics of the log whose records are written to segments (Parquet files). */
const INGESTED_TOPICS = [
  ...["listings", "observations.free", "observations.paid", "observations.mcp", "asks", "corrections"],
] as const;
const ORDER_OBJECT_KINDS = ["request", "answer"] as const;
/** Statuses of answers to a submitted checkpoint (c2sp.org/tlog-witness); 413: too long, 503: it cannot be stored. */
const ADD_CHECKPOINT_STATUSES = ["200", "400", "403", "404", "409", "413", "422", "503"] as const;
const TRANSACTION_OUTCOMES = ["sent", "refused", "unknown"] as const;

export const COUNTERS = {
  touchstone_jobs_total: {
    help: "Completed runs of each scheduled job, by result.",
    of: "role",
    labels: { job_name: null, result: ["done", "failed"] },
  },
  touchstone_observe_asks_total: {
    help: "Probes of addresses that clients asked for, by the state of the endpoint; broken is a fault of ours.",
    of: "observe",
    labels: { result: [...HANDSHAKE_STATES, "not_probed", "broken"] },
  },
  touchstone_observe_calls_total: {
    help: "Planned calls by kind: made, missed because their time was over, or broken by a fault of ours.",
    of: "observe",
    labels: { kind: ["probe", "paid"], result: ["made", "missed", "broken"] },
  },
  touchstone_observe_handshakes_total: {
    help: "Recorded free probes, by the state of the endpoint.",
    of: "observe",
    labels: { state: HANDSHAKE_STATES },
  },
  touchstone_observe_append_failures_total: {
    help: "Failed attempts to append observations to the log.",
    of: "observe",
  },
  touchstone_observe_class_controls_total: {
    help: "Paid calls with a class question from a mapping, by whether the answer passed.",
    of: "observe",
    labels: { class: null, passed: BOOLEAN_VALUES },
  },
  touchstone_observe_class_mappings_dropped_total: {
    help: "Mappings that were dropped because no control input passed, by class.",
    of: "observe",
    labels: { class: null },
  },
  touchstone_observe_class_sources_down_total: {
    help: "Class questions that could not be made because the source of the correct answer did not respond, by class.",
    of: "observe",
    labels: { class: null },
  },
  touchstone_observe_class_excused_total: {
    help: "Paid calls that were withdrawn because no endpoint passed their class on that day, by class.",
    of: "observe",
    labels: { class: null },
  },
  touchstone_observe_listings_total: {
    help: "Listings from catalogues and sellers: appended, delisted, refused, over a domain's limit, or broken by a fault of ours.",
    of: "observe",
    labels: { result: ["appended", "delisted", "refused", "domain_full", "broken"] },
  },
  touchstone_observe_retries_total: {
    help: "Payments sent again after an answer that passed, by whether the settlement was watched meanwhile.",
    of: "observe",
    labels: { watched: BOOLEAN_VALUES },
  },
  touchstone_observe_shown_again_total: {
    help: "Payments sent again because the money moved without a delivery, by whether something was delivered then.",
    of: "observe",
    labels: { delivered: BOOLEAN_VALUES },
  },
  touchstone_observe_paid_total: {
    help: "Recorded paid calls, by the reason why they are not counted for or against the seller; none: they are counted.",
    of: "observe",
    labels: { fault: ["none", "ours", "blocked", "bad_input", "unconfirmed", "not_reproduced"] },
  },
  touchstone_observe_paid_micro_total: {
    help: "Money that settled to sellers of observed calls, in millionths of the token.",
    of: "observe",
  },
  touchstone_observe_slots_lost_total: {
    help: "Paid calls that were signed but not sent because another observer had taken their slot.",
    of: "observe",
  },
  touchstone_blind_wallets_missing_total: {
    help: "Blind calls that were not made because no blind wallet had the money, by network.",
    of: "observe",
    labels: { network: null },
  },
  touchstone_blind_wallets_shared_total: {
    help: "Blind calls whose wallet also paid another endpoint on the same day, by network.",
    of: "observe",
    labels: { network: null },
  },
  touchstone_known_wallet_short_total: {
    help: "Calls that were not made because the known wallet held less than their price, by network.",
    of: "observe",
    labels: { network: null },
  },
  touchstone_ingest_rows_total: {
    help: "Records of the log that were committed to segments, by topic.",
    of: "ingest",
    labels: { topic: INGESTED_TOPICS },
  },
  touchstone_ingest_rejected_total: {
    help: "Invalid records of the log that were set aside, by topic.",
    of: "ingest",
    labels: { topic: INGESTED_TOPICS },
  },
  touchstone_ingest_races_lost_total: {
    help: "Segments that another process committed first, by topic.",
    of: "ingest",
    labels: { topic: INGESTED_TOPICS },
  },
  touchstone_grade_endpoints_read_total: { help: "Endpoints that were due and were graded.", of: "grade" },
  touchstone_grade_rows_read_total: { help: "Samples that grading read.", of: "grade" },
  touchstone_grade_lines_left_out_total: {
    help: "Graded endpoints that were left out of the run because nothing changed.",
    of: "grade",
  },
  touchstone_owner_runs_refused_total: {
    help: "Runs of this owner that the publisher refused; all endpoints of the owner are graded again.",
    of: "grade",
  },
  touchstone_runs_refused_total: { help: "Runs, or lines of runs, that this publisher refused.", of: "publish" },
  touchstone_runs_unreadable_total: { help: "Runs that could not be read and were skipped.", of: "publish" },
  touchstone_cards_signed_total: { help: "Signed cards.", of: "publish" },
  touchstone_generations_lost_total: {
    help: "Generations of the tree that another publisher committed first.",
    of: "publish",
  },
  touchstone_leaves_refused_total: { help: "Leaves that were not published because they are invalid.", of: "publish" },
  touchstone_leaves_published_total: {
    help: "Leaves that were added to the tree, by kind.",
    of: "publish",
    labels: {
      kind: [
        ...["grade", "listing", "delisting", "correction", "dispute", "reinstated"],
        ...["schedule", "commitment", "receipt", "keys", "index", "evidence", "archive", "kin"],
      ] as const,
    },
  },
  touchstone_witness_submissions_total: {
    help: "Checkpoints that were submitted to witnesses that are not ours, by witness and how it ended.",
    of: "publish",
    labels: { witness: null, result: ["cosigned", "late", "down", "refused", "ahead", "garbage", "failed"] },
  },
  touchstone_add_checkpoint_requests_total: {
    help: "Checkpoints of other logs that were submitted to this witness, by the status of its answer.",
    of: "witness",
    labels: { status: ADD_CHECKPOINT_STATUSES },
  },
  touchstone_monitor_faults_total: {
    help: "Faults that a monitor's rounds found, by the name of the exit code.",
    of: "monitor",
    labels: { code: null },
  },
  touchstone_mirror_faults_total: {
    help: "Runs of a mirror that failed, by the name of the exit code.",
    of: "mirror",
    labels: { code: null },
  },
  touchstone_notices_total: {
    help: "Attempts to deliver notices to the receivers of watchers, by result.",
    of: "publish",
    labels: { result: ["delivered", "failed"] },
  },
  touchstone_http_requests_total: {
    help: "Responses of the public listener, by operation and HTTP status.",
    of: "serve",
    labels: { operation: null, status: null },
  },
  touchstone_http_shed_total: {
    help: "Free requests that were refused because this process was overloaded, by operation.",
    of: "serve",
    labels: { operation: null },
  },
  touchstone_http_streams_refused_total: {
    help: "Long answers that were refused, by the limit that was reached.",
    of: "serve",
    labels: { bound: ["bytes", "client", "total"] },
  },
  touchstone_http_sockets_refused_total: {
    help: "Connections that were refused, by the limit that was reached.",
    of: "serve",
    labels: { bound: ["client", "total"] },
  },
  touchstone_http_sockets_cut_total: {
    help: "Connections that were closed by force, by reason.",
    of: "serve",
    labels: { reason: ["slow_reader", "slow_writer", "pipelined"] },
  },
  touchstone_listing_looks_total: {
    help: "Probes of a seller's listing for a client that waited, by the state of the endpoint.",
    of: "serve",
    labels: { state: HANDSHAKE_STATES },
  },
  touchstone_serving_refresh_failures_total: {
    help: "Failed refreshes from the public record; answers keep coming from the previous view.",
    of: "serve",
  },
  touchstone_serving_volatile_failures_total: {
    help: "Failed reads of the live tables; the previous rows stay.",
    of: "serve",
  },
  touchstone_replica_runs_total: {
    help: "Runs of this replica's mirror, by result.",
    of: "replica",
    labels: { result: ["idle", "refreshed", "synced", "verified"] },
  },
  touchstone_orders_recorded_total: {
    help: "Bought calls that were recorded, by whether their bodies are public and whether the answer passed.",
    of: "sell",
    labels: { published: BOOLEAN_VALUES, pass: BOOLEAN_VALUES },
  },
  touchstone_orders_calls_lost_total: {
    help: "Bought calls that cannot be recorded because their bytes are lost.",
    of: "sell",
  },
  touchstone_orders_gas_wei_total: {
    help: "Gas cost of our transactions for orders, in wei, by kind.",
    of: "sell",
    labels: { kind: ["charge", "hold", "capture", "void", "refund", "cancel"] },
  },
  touchstone_orders_legs_total: {
    help: "Sellers' answers to bought calls, by whether they passed.",
    of: "sell",
    labels: { pass: BOOLEAN_VALUES },
  },
  touchstone_orders_settlements_total: {
    help: "Attempts to charge a buyer, by the facilitator's answer and whether the chain showed the charge.",
    of: "sell",
    labels: { outcome: TRANSACTION_OUTCOMES, seen: BOOLEAN_VALUES },
  },
  touchstone_orders_recovery_failures_total: {
    help: "Failed attempts to recover an open order; each is repeated.",
    of: "sell",
  },
  touchstone_orders_adopted_total: {
    help: "Open orders that this process took over from other processes.",
    of: "sell",
  },
  touchstone_orders_settlements_vanished_total: {
    help: "Charges that the chain showed once and no longer shows.",
    of: "sell",
  },
  touchstone_orders_holds_total: {
    help: "Buyers' payments into escrow, by resulting state.",
    of: "sell",
    labels: { state: ["held", "hold_failed", "hold_unknown"] },
  },
  touchstone_orders_voids_total: {
    help: "Attempts to return a buyer's escrow, by outcome and whether the chain showed the return.",
    of: "sell",
    labels: { outcome: TRANSACTION_OUTCOMES, seen: BOOLEAN_VALUES },
  },
  touchstone_orders_objects_written_bytes_total: {
    help: "Written bytes of bodies and answers of bought calls, by kind.",
    of: "sell",
    labels: { kind: ORDER_OBJECT_KINDS },
  },
  touchstone_orders_objects_failed_total: {
    help: "Failed attempts to write bodies and answers of bought calls, by kind.",
    of: "sell",
    labels: { kind: ORDER_OBJECT_KINDS },
  },
  touchstone_orders_objects_damaged_total: {
    help: "Stored bodies and answers that do not match the hash in their order, by kind.",
    of: "sell",
    labels: { kind: ORDER_OBJECT_KINDS },
  },
  touchstone_orders_objects_removed_total: {
    help: "Removed bodies and answers of bought calls, by reason.",
    of: "sell",
    labels: { why: ["uncharged", "recorded", "expired", "unknown"] },
  },
  touchstone_evidence_bodies_written_bytes_total: {
    help: "Written bytes of bodies that web/evidence fetched.",
    of: "sell",
  },
  touchstone_evidence_bodies_damaged_total: { help: "Kept bodies that do not match their hash.", of: "sell" },
  touchstone_evidence_bodies_removed_total: { help: "Kept bodies that were removed after their days.", of: "sell" },
} as const satisfies Record<string, Metric>;

export const GAUGES = {
  touchstone_build_info: {
    help: "Always 1; the labels hold the version, the source revision and the Node release of this process.",
    of: "role",
    labels: { version: null, revision: null, node: null },
  },
  touchstone_role_ok: {
    help: "1 while the role works (/health is 200), else 0; with the label work, for one part of its work.",
    of: "role",
    labels: { role: null, work: null },
  },
  touchstone_work_last_done_seconds: {
    help: "Time of the last success of each required part of a role's work, or of its first start, in unix seconds.",
    of: "role",
    labels: { work: null },
  },
  touchstone_job_last_done_seconds: {
    help: "Time of the last success of each scheduled job, or of the start of the schedule, in unix seconds.",
    of: "role",
    labels: { job_name: null },
  },
  touchstone_job_period_seconds: {
    help: "Longest scheduled pause between two runs of each job, in seconds.",
    of: "role",
    labels: { job_name: null },
  },
  touchstone_data_free_bytes: {
    help: "Free bytes on the disk of the data folder.",
    of: "role",
  },
  touchstone_data_size_bytes: { help: "Size of the disk of the data folder, in bytes.", of: "role" },
  touchstone_ingest_lag_records: {
    help: "Records of the log that this process has not yet ingested, by topic and partition.",
    of: "ingest",
    labels: { topic: null, partition: null },
  },
  touchstone_tree_size: { help: "Number of leaves of the tree, as known to this publisher.", of: "publish" },
  touchstone_publisher_active: { help: "1 while this process is the active publisher, else 0.", of: "publish" },
  touchstone_publisher_last_publication_seconds: {
    help: "Time when the tree last grew, as known to this publisher, in unix seconds.",
    of: "publish",
  },
  touchstone_witness_cosigned_seconds: {
    help: "Time when each witness that is not ours last cosigned a checkpoint, in unix seconds; 0: not since the start.",
    of: "publish",
    labels: { witness: null },
  },
  touchstone_witnesses_missing: {
    help: "Number of witnesses that the newest checkpoint lacks for its quorum.",
    of: "publish",
  },
  touchstone_log_cosigned_seconds: {
    help: "Time when this witness last cosigned a checkpoint of each log, in unix seconds; 0: never.",
    of: "witness",
    labels: { log: null },
  },
  touchstone_monitor_tree_size: { help: "Number of leaves that this monitor has proven.", of: "monitor" },
  touchstone_monitor_checkpoints: {
    help: "Number of checkpoints that this monitor keeps, by its verdict.",
    of: "monitor",
    labels: { verdict: ["proven", "unproven", "forked"] },
  },
  touchstone_mirror_tree_size: { help: "Number of leaves in this copy of a record.", of: "mirror" },
  touchstone_mirror_missing_objects: {
    help: "Number of objects that this copy of a record lacks although its leaves name them.",
    of: "mirror",
  },
  touchstone_watchers: { help: "Active watchers.", of: "publish" },
  touchstone_notices_waiting: { help: "Notices that wait for delivery.", of: "publish" },
  touchstone_observe_blind_missed_seconds: {
    help: "Time when a known call last replaced a blind one because no blind wallet could pay, in unix seconds; 0: never.",
    of: "observe",
  },
  touchstone_observe_class_failing: {
    help: "Number of payees that were asked questions of a class today, if none of them passed; else 0.",
    of: "observe",
    labels: { class: null },
  },
  touchstone_wallet_known_units: {
    help: "Balance of the known wallet, in units of the token.",
    of: "observe",
    labels: { network: null, asset: null },
  },
  touchstone_wallets_blind_fresh: {
    help: "Number of unused blind wallets with money.",
    of: "observe",
    labels: { network: null, asset: null },
  },
  touchstone_wallets_blind_units: {
    help: "Total balance of the unused blind wallets, in units of the token.",
    of: "observe",
    labels: { network: null, asset: null },
  },
  touchstone_wallets_low: { help: "Number of wallet balances that are below their low-water mark.", of: "observe" },
  touchstone_serving_tree_size: { help: "Number of leaves of the tree that answers are based on.", of: "serve" },
  touchstone_serving_endpoints: { help: "Number of endpoints that answers are based on.", of: "serve" },
  touchstone_http_streams: { help: "Long answers that are being sent.", of: "serve" },
  touchstone_http_overloaded: {
    help: "1 while free requests are refused because this process is overloaded, else 0.",
    of: "serve",
  },
  touchstone_orders_objects_bytes: {
    help: "Bytes of all stored bodies and answers of bought calls.",
    of: "sell",
  },
  touchstone_evidence_bodies_bytes: { help: "Bytes of all bodies that web/evidence fetched.", of: "sell" },
  touchstone_sales_till_units: {
    help: "Balance of the till, which buyers pay, in units of the token.",
    of: "sell",
    labels: { network: null, asset: null },
  },
  touchstone_sales_float_units: {
    help: "Balance of the float, which pays sellers, in units of the token.",
    of: "sell",
    labels: { network: null, asset: null },
  },
  touchstone_sales_gas_coin: {
    help: "Balance of the gas wallet, in the chain's own coin.",
    of: "sell",
    labels: { network: null },
  },
  touchstone_orders_left_out: {
    help: "Orders that this process leaves alone, since they are in other money than sell.network and sell.asset name.",
    of: "sell",
  },
  touchstone_sales_closed: {
    help: "1 while sales are closed for this reason although the settings enable them, else 0.",
    of: "sell",
    labels: { why: ["wallets", "chain", "gas", "gas_price", "objects"] },
  },
} as const satisfies Record<string, Metric>;

/** Upper bounds of histogram buckets, in seconds, for answers from memory. */
const ANSWER_BUCKETS_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
/** Upper bounds of histogram buckets, in seconds, for calls of sellers' endpoints. */
const CALL_BUCKETS_S = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120];
/** Upper bounds of histogram buckets, in seconds, for jobs. */
const JOB_BUCKETS_S = [0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800];

export const HISTOGRAMS = {
  touchstone_check_answer_seconds: {
    help: "Time from a check's request to its signed answer, in seconds.",
    of: "serve",
    buckets: ANSWER_BUCKETS_S,
  },
  touchstone_observe_paid_call_seconds: {
    help: "Time from sending the payment of an observed call to the end of its answer, in seconds.",
    of: "observe",
    buckets: CALL_BUCKETS_S,
  },
  touchstone_orders_paid_call_seconds: {
    help: "Time from sending the payment of a bought call to its seller to the end of the answer, in seconds.",
    of: "sell",
    buckets: CALL_BUCKETS_S,
  },
  touchstone_job_seconds: {
    help: "Duration of each run of a job, successful or not, in seconds.",
    of: "role",
    labels: { job_name: null },
    buckets: JOB_BUCKETS_S,
  },
} as const satisfies Record<string, Metric & { buckets: readonly number[] }>;

export const METRICS: Readonly<Record<string, Metric>> = { ...COUNTERS, ...GAUGES, ...HISTOGRAMS };

export type CounterName = keyof typeof COUNTERS;
export type GaugeName = keyof typeof GAUGES;
export type HistogramName = keyof typeof HISTOGRAMS;

type Values<V> = V extends readonly (infer One extends string)[] ? One : string;
/** Labels of a metric, with the values that its row lists. */
export type LabelsOf<Row> = Row extends { labels: infer L } ? { [K in keyof L]?: Values<L[K]> } : Record<string, never>;
