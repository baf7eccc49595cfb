/**
 * One day of the charts on an endpoint's page: a row for each capability and UTC day of the last 90. The lake's owner
 * writes them every hour, as one Arrow IPC file a bucket (`live/history/<bucket>.<n>.arrow`). Like all of `live/` they
 * are unproven and never mirrored; the proven rows are in the evidence files.
 */
export interface HistoryDay {
  capability_id: string;
  /** Days since 1970-01-01, UTC. */
  day: number;
  /** Quotes of the day in micro-units: lowest, highest, newest; null when no 402 named a price. */
  price_low: bigint | null;
  price_high: bigint | null;
  price_last: bigint | null;
  /** Time to the 402 of answered free handshakes, ms. */
  terms_ms_median: number | null;
  terms_ms_p95: number | null;
  /** Time to the last byte of paid calls that delivered, ms. */
  paid_ms_median: number | null;
  paid_ms_p95: number | null;
  /** Free handshakes, and those of them that were answered at all. */
  probes: number;
  answered: number;
  /** Our paid calls, and those of them that delivered. */
  paid: number;
  delivered: number;
}

/** Member `history` of `live/view.json`: the current files, and the log positions up to which they were made. */
export interface HistoryNames {
  /** Bucket -> key of its file. */
  files: Record<string, string>;
  /** {topic: {partition: next offset}}. */
  positions: Record<string, Record<string, number>>;
}

/** Days that a history reaches back, today included. */
export const HISTORY_DAYS = 90;
