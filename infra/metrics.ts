/**
 * The table of every metric that a process of ours counts or sets: a name that is not in it does not compile, nor a label
 * value that its row does not list. What is counted from a closed set of values stands at 0 from the start in the processes
 * of its area, so that the first burst is an increase (Prometheus, increase()).
 */

/** What a process does: its counters stand at 0 from its start. `role` is every process. */
export type Area = "role" | "observe" | "ingest" | "grade" | "publish" | "serve" | "sell" | "replica";

interface Metric {
  /** One sentence on what it counts, with its unit. */
  help: string;
  of: Area;
  /** Values of each label; null where they are not known beforehand (a network, a job, a partition). */
  labels?: Readonly<Record<string, readonly string[] | null>>;
}

const BOOLEAN = ["true", "false"] as const;
const STATES = ["asked", "free", "malformed", "wall", "status", "silent", "unfetchable"] as const;
/** Topics that become segments. */
const TOPICS = [
  ...["listings", "observations.free", "observations.paid", "observations.mcp", "asks", "corrections"],
] as const;
const OBJECTS = ["request", "answer"] as const;
const OUTCOMES = ["sent", "refused", "unknown"] as const;

export const COUNTERS = {
  touchstone_jobs_total: {
    help: "Runs of each job of the schedule that ended, by how they ended.",
    of: "role",
    labels: { job_name: null, result: ["done", "failed"] },
  },
  touchstone_observe_asks_total: {
    help: "Looks at addresses that somebody asked for, by the state that was seen; broken is a fault of ours.",
    of: "observe",
    labels: { result: [...STATES, "not_probed", "broken"] },
  },
  touchstone_observe_calls_total: {
    help: "Calls of the plans of days, by kind: made, missed because their block was over, or broken by a fault of ours.",
    of: "observe",
    labels: { kind: ["probe", "paid"], result: ["made", "missed", "broken"] },
  },
  touchstone_observe_handshakes_total: {
    help: "Free probes that were recorded, by what the endpoint answered without a payment.",
    of: "observe",
    labels: { state: STATES },
  },
  touchstone_observe_append_failures_total: {
    help: "Appends of observations that the log did not take, each try counted.",
    of: "observe",
  },
  touchstone_observe_class_controls_total: {
    help: "Paid calls that asked a question of a class by a mapping, by whether the answer passed.",
    of: "observe",
    labels: { class: null, passed: BOOLEAN },
  },
  touchstone_observe_class_mappings_dropped_total: {
    help: "Mappings that were given up because no control input passed, by class.",
    of: "observe",
    labels: { class: null },
  },
  touchstone_observe_class_sources_down_total: {
    help: "Questions that could not be made because the source of their truth did not answer, by class.",
    of: "observe",
    labels: { class: null },
  },
  touchstone_observe_class_excused_total: {
    help: "Paid calls that were withdrawn because nobody passed their class on that day, by class.",
    of: "observe",
    labels: { class: null },
  },
  touchstone_observe_listings_total: {
    help: "Listings of catalogues and sellers: appended, delisted, refused, over a domain's share, or broken by a fault.",
    of: "observe",
    labels: { result: ["appended", "delisted", "refused", "domain_full", "broken"] },
  },
  touchstone_observe_retries_total: {
    help: "Payment proofs shown once more after an answer that passed, by whether the settlement was watched meanwhile.",
    of: "observe",
    labels: { watched: BOOLEAN },
  },
  touchstone_observe_shown_again_total: {
    help: "Payment proofs shown again because the money went and nothing came, by whether something was delivered then.",
    of: "observe",
    labels: { delivered: BOOLEAN },
  },
  touchstone_observe_paid_total: {
    help: "Paid calls that were recorded, by why they count against nobody; none: they count.",
    of: "observe",
    labels: { fault: ["none", "ours", "blocked", "bad_input", "unconfirmed", "not_reproduced"] },
  },
  touchstone_observe_paid_micro_total: {
    help: "Money that was seen to reach sellers of observed calls, in millionths of the token.",
    of: "observe",
  },
  touchstone_observe_slots_lost_total: {
    help: "Paid calls that were signed and never sent because another observer had taken their slot.",
    of: "observe",
  },
  touchstone_blind_wallets_missing_total: {
    help: "Blind calls that were not made because no fresh blind wallet had the money, by network.",
    of: "observe",
    labels: { network: null },
  },
  touchstone_blind_wallets_shared_total: {
    help: "Blind calls whose wallet another endpoint was called from on the same day, by network.",
    of: "observe",
    labels: { network: null },
  },
  touchstone_known_wallet_short_total: {
    help: "Calls that were not made because the known wallet did not hold their price, by network.",
    of: "observe",
    labels: { network: null },
  },
  touchstone_ingest_rows_total: {
    help: "Records that were committed from the log into segments, by topic.",
    of: "ingest",
    labels: { topic: TOPICS },
  },
  touchstone_ingest_rejected_total: {
    help: "Records of the log that could not be read and were set aside, by topic.",
    of: "ingest",
    labels: { topic: TOPICS },
  },
  touchstone_ingest_races_lost_total: {
    help: "Segments that another process had committed first, by topic.",
    of: "ingest",
    labels: { topic: TOPICS },
  },
  touchstone_grade_endpoints_read_total: { help: "Endpoints that were graded because they were due.", of: "grade" },
  touchstone_grade_rows_read_total: { help: "Samples that grading read.", of: "grade" },
  touchstone_grade_lines_left_out_total: {
    help: "Graded endpoints whose line says nothing new and stays out of the run.",
    of: "grade",
  },
  touchstone_owner_runs_refused_total: {
    help: "Runs of this owner that the publisher did not take: all of its endpoints are graded anew.",
    of: "grade",
  },
  touchstone_runs_refused_total: { help: "Runs, or lines of runs, that this publisher did not take.", of: "publish" },
  touchstone_runs_unreadable_total: { help: "Runs that could not be read and were left out.", of: "publish" },
  touchstone_cards_signed_total: { help: "Cards that were signed.", of: "publish" },
  touchstone_generations_lost_total: { help: "Generations of the tree that another publisher won.", of: "publish" },
  touchstone_leaves_refused_total: { help: "Leaves that were not published because they are no leaf.", of: "publish" },
  touchstone_leaves_published_total: {
    help: "Leaves that were added to the tree, by kind.",
    of: "publish",
    labels: {
      kind: [
        ...["grade", "listing", "delisting", "correction", "dispute", "reinstated"],
        ...["schedule", "commitment", "keys", "index", "evidence", "archive", "kin"],
      ] as const,
    },
  },
  touchstone_notices_total: {
    help: "Notices to the receivers of watchers, by how an attempt ended.",
    of: "publish",
    labels: { result: ["delivered", "failed"] },
  },
  touchstone_http_requests_total: {
    help: "Answers of the public listener, by operation and HTTP status.",
    of: "serve",
    labels: { operation: null, status: null },
  },
  touchstone_http_shed_total: {
    help: "Free requests that were refused because this process was behind, by operation.",
    of: "serve",
    labels: { operation: null },
  },
  touchstone_http_streams_refused_total: {
    help: "Long answers that were refused, by the bound that was met.",
    of: "serve",
    labels: { bound: ["bytes", "client", "total"] },
  },
  touchstone_http_sockets_refused_total: {
    help: "Connections that were closed as they came, by the bound that was met.",
    of: "serve",
    labels: { bound: ["client", "total"] },
  },
  touchstone_http_sockets_cut_total: {
    help: "Connections that were cut, by what was wrong with them.",
    of: "serve",
    labels: { reason: ["slow_reader", "slow_writer", "pipelined"] },
  },
  touchstone_listing_looks_total: {
    help: "Looks at a seller's listing for somebody who waited, by the state that was seen.",
    of: "serve",
    labels: { state: STATES },
  },
  touchstone_serving_refresh_failures_total: {
    help: "Looks at the public record that failed: answers are made from the view before.",
    of: "serve",
  },
  touchstone_serving_volatile_failures_total: {
    help: "Reads of the live tables that failed: the rows before stay.",
    of: "serve",
  },
  touchstone_replica_runs_total: {
    help: "Looks of this replica at its source, by what they came to.",
    of: "replica",
    labels: { result: ["idle", "refreshed", "synced", "verified"] },
  },
  touchstone_orders_recorded_total: {
    help: "Bought calls that entered the record, by whether their bodies are public and whether the answer passed.",
    of: "sell",
    labels: { published: BOOLEAN, pass: BOOLEAN },
  },
  touchstone_orders_calls_lost_total: {
    help: "Bought calls that never enter the record because their bytes are gone.",
    of: "sell",
  },
  touchstone_orders_gas_wei_total: {
    help: "Gas that our transactions for orders cost, in wei, by what they were for.",
    of: "sell",
    labels: { kind: ["charge", "hold", "capture", "void", "refund", "cancel"] },
  },
  touchstone_orders_legs_total: {
    help: "Answers of sellers to bought calls, by whether they passed.",
    of: "sell",
    labels: { pass: BOOLEAN },
  },
  touchstone_orders_settlements_total: {
    help: "Attempts to charge a buyer, by what the facilitator said and whether the chain showed it.",
    of: "sell",
    labels: { outcome: OUTCOMES, seen: BOOLEAN },
  },
  touchstone_orders_recovery_failures_total: {
    help: "Looks at an open order that failed; each is made again.",
    of: "sell",
  },
  touchstone_orders_adopted_total: { help: "Open orders of other processes that this one went on with.", of: "sell" },
  touchstone_orders_settlements_vanished_total: {
    help: "Charges that the chain had shown and shows no more.",
    of: "sell",
  },
  touchstone_orders_holds_total: {
    help: "Buyers' payments into escrow, by what became of them.",
    of: "sell",
    labels: { state: ["held", "hold_failed", "hold_unknown"] },
  },
  touchstone_orders_voids_total: {
    help: "Attempts to give a buyer's escrow back, by what was said and whether the chain showed it.",
    of: "sell",
    labels: { outcome: OUTCOMES, seen: BOOLEAN },
  },
  touchstone_orders_objects_written_bytes_total: {
    help: "Bytes of bodies and answers of bought calls that were written, by kind.",
    of: "sell",
    labels: { kind: OBJECTS },
  },
  touchstone_orders_objects_failed_total: {
    help: "Bodies and answers of bought calls that could not be written, each try counted, by kind.",
    of: "sell",
    labels: { kind: OBJECTS },
  },
  touchstone_orders_objects_damaged_total: {
    help: "Bodies and answers that are not what their order says, by kind.",
    of: "sell",
    labels: { kind: OBJECTS },
  },
  touchstone_orders_objects_removed_total: {
    help: "Bodies and answers of bought calls that were removed, by why.",
    of: "sell",
    labels: { why: ["uncharged", "recorded", "expired", "unknown"] },
  },
} as const satisfies Record<string, Metric>;

export const GAUGES = {
  touchstone_build_info: {
    help: "1, with the version, the source revision and the release of Node that this process runs.",
    of: "role",
    labels: { version: null, revision: null, node: null },
  },
  touchstone_role_ok: {
    help: "1 while the role does its work (/health is 200), else 0; with the label work, the same of one of its works.",
    of: "role",
    labels: { role: null, work: null },
  },
  touchstone_work_last_done_seconds: {
    help: "When each work that the role goes by ended well last, or was first asked for, in unix seconds.",
    of: "role",
    labels: { work: null },
  },
  touchstone_job_last_done_seconds: {
    help: "When each job of the schedule ended well last, or before that when the schedule began, in unix seconds.",
    of: "role",
    labels: { job_name: null },
  },
  touchstone_job_period_seconds: {
    help: "Longest pause between two runs of each job by its schedule, in seconds.",
    of: "role",
    labels: { job_name: null },
  },
  touchstone_data_free_bytes: {
    help: "Bytes that this process may still write on the disk of its data folder.",
    of: "role",
  },
  touchstone_data_size_bytes: { help: "Bytes of the disk that the data folder lies on.", of: "role" },
  touchstone_ingest_lag_records: {
    help: "Records of the log that this process has not ingested, by topic and partition.",
    of: "ingest",
    labels: { topic: null, partition: null },
  },
  touchstone_tree_size: { help: "Leaves of the tree, as this publisher knows it.", of: "publish" },
  touchstone_publisher_active: { help: "1 while this process publishes, 0 while another one does.", of: "publish" },
  touchstone_publisher_last_publication_seconds: {
    help: "When the tree grew last, as this publisher knows it, in unix seconds.",
    of: "publish",
  },
  touchstone_watchers: { help: "Active watchers.", of: "publish" },
  touchstone_notices_waiting: { help: "Notices that wait to be delivered.", of: "publish" },
  touchstone_observe_blind_missed_seconds: {
    help: "When a blind call was last made as a known one for want of a wallet, in unix seconds; 0: never.",
    of: "observe",
  },
  touchstone_observe_class_failing: {
    help: "Payees that were asked questions of a class today when none of them passed; else 0.",
    of: "observe",
    labels: { class: null },
  },
  touchstone_wallet_known_units: {
    help: "What the known wallet holds, in units of the token.",
    of: "observe",
    labels: { network: null, asset: null },
  },
  touchstone_wallets_blind_fresh: {
    help: "Blind wallets with money that no call was paid from yet.",
    of: "observe",
    labels: { network: null, asset: null },
  },
  touchstone_wallets_blind_units: {
    help: "What the fresh blind wallets hold together, in units of the token.",
    of: "observe",
    labels: { network: null, asset: null },
  },
  touchstone_wallets_low: { help: "How many of the low-water marks of the wallets are passed.", of: "observe" },
  touchstone_serving_tree_size: { help: "Leaves of the tree that answers are made from.", of: "serve" },
  touchstone_serving_endpoints: { help: "Endpoints that answers are made from.", of: "serve" },
  touchstone_http_streams: { help: "Long answers that are under way.", of: "serve" },
  touchstone_http_overloaded: {
    help: "1 while free requests are refused because this process is behind.",
    of: "serve",
  },
  touchstone_orders_objects_bytes: {
    help: "Bytes of all bodies and answers that are kept for bought calls.",
    of: "sell",
  },
  touchstone_sales_till_units: {
    help: "What buyers have paid into the till and nobody has swept, in units of the token.",
    of: "sell",
    labels: { network: null, asset: null },
  },
  touchstone_sales_float_units: {
    help: "What the float holds that sellers are paid from, in units of the token.",
    of: "sell",
    labels: { network: null, asset: null },
  },
  touchstone_sales_gas_coin: {
    help: "What the gas wallet holds, in the chain's own coin.",
    of: "sell",
    labels: { network: null },
  },
  touchstone_sales_closed: {
    help: "1 while nothing is sold for this reason, although the settings sell.",
    of: "sell",
    labels: { why: ["wallets", "chain", "gas", "gas_price", "objects"] },
  },
} as const satisfies Record<string, Metric>;

/** Upper bounds of buckets, seconds: an answer from memory; a call of a stranger's endpoint; a job. */
const ANSWER_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
const CALL_S = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120];
const JOB_S = [0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800];

export const HISTOGRAMS = {
  touchstone_check_answer_seconds: {
    help: "Time from a check's request to its signed answer, in seconds.",
    of: "serve",
    buckets: ANSWER_S,
  },
  touchstone_observe_paid_call_seconds: {
    help: "Time from sending the payment of an observed call to the end of its answer, in seconds.",
    of: "observe",
    buckets: CALL_S,
  },
  touchstone_orders_paid_call_seconds: {
    help: "Time from sending the payment of a bought call to its seller to the end of the answer, in seconds.",
    of: "sell",
    buckets: CALL_S,
  },
  touchstone_job_seconds: {
    help: "Time that each run of a job took, well or not, in seconds.",
    of: "role",
    labels: { job_name: null },
    buckets: JOB_S,
  },
} as const satisfies Record<string, Metric & { buckets: readonly number[] }>;

export const METRICS: Readonly<Record<string, Metric>> = { ...COUNTERS, ...GAUGES, ...HISTOGRAMS };

export type CounterName = keyof typeof COUNTERS;
export type GaugeName = keyof typeof GAUGES;
export type HistogramName = keyof typeof HISTOGRAMS;

type Values<V> = V extends readonly (infer One extends string)[] ? One : string;
/** Labels of a metric of one of the tables, with the values that its row lists. */
export type LabelsOf<Row> = Row extends { labels: infer L } ? { [K in keyof L]?: Values<L[K]> } : Record<string, never>;
