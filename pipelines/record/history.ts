/**
 * One day of the charts on an endpoint's page: there is a row for each capability and each of the last 90 UTC days.
 * Every hour the lake's owner writes the rows of each bucket of capabilities as one Arrow IPC file
 * (`live/history/<bucket>.<n>.arrow`). Like all files of `live/` they are neither proven nor mirrored. The proven rows
 * are in the evidence files.
 */
export interface HistoryDay {
  capability_id: string;
  /** Days since 1970-01-01, UTC. */
  day: number;
  /** Lowest, highest and newest price that 402s asked on the day, in micro-units; null when no 402 named a price. */
  price_low: bigint | null;
  price_high: bigint | null;
  price_last: bigint | null;
  /** Time until the 402 in answered free handshakes, ms. */
  terms_ms_median: number | null;
  terms_ms_p95: number | null;
  /** Time until the last byte in paid calls that delivered, ms. */
  paid_ms_median: number | null;
  paid_ms_p95: number | null;
  /** Number of free handshakes, and of those that got any answer. */
  probes: number;
  answered: number;
  /** Number of our paid calls, and of those that delivered. */
  paid: number;
  delivered: number;
}

/** Member `history` of `live/view.json`: the current files, and the log positions up to which their rows were read. */
export interface HistoryNames {
  /** Key of each bucket's file, by bucket. */
  files: Record<string, string>;
  /** {topic: {partition: next offset}}. */
  positions: Record<string, Record<string, number>>;
}

/** Number of days in a history, including today. */
export const HISTORY_DAYS = 90;
