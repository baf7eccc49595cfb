/**
 * What an endpoint's page draws: one row a capability and UTC day of the last 90, made hourly by the lake's owner as one
 * Arrow IPC file a bucket (`live/history/<bucket>.<n>.arrow`). Unproven and never mirrored, like all of `live/`: the
 * proven rows are the evidence files.
 */
export interface HistoryDay {
  capability_id: string;
  /** Days since 1970-01-01, UTC. */
  day: number;
  /** Quotes of the day in micro-units: lowest, dearest, newest; null when no 402 named a price. */
  price_low: bigint | null;
  price_high: bigint | null;
  price_last: bigint | null;
  /** Time to the 402 of free handshakes that were answered, ms. */
  terms_ms_median: number | null;
  terms_ms_p95: number | null;
  /** Time to the last byte of paid calls that delivered, ms. */
  paid_ms_median: number | null;
  paid_ms_p95: number | null;
  /** Free handshakes, and those that were answered at all. */
  probes: number;
  answered: number;
  /** Paid calls of ours, and those that delivered. */
  paid: number;
  delivered: number;
}

/** Member `history` of `live/view.json`: the files in force, and how far of the log they know. */
export interface HistoryNames {
  /** {bucket: key of its file}. */
  files: Record<string, string>;
  /** {topic: {partition: next offset}}. */
  positions: Record<string, Record<string, number>>;
}

/** Days that a history reaches back, today included. */
export const HISTORY_DAYS = 90;
