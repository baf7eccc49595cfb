/**
 * One day of the charts on an endpoint's page: there is a row for each capability (one priced endpoint) and each of
 * the last 90 UTC days. Every hour the process that owns a partition writes the rows of each changed bucket (1/64 of
 * the capabilities, by a hash of their ids) as one Arrow IPC file (`live/history/<bucket>.<n>.arrow`). Like all files
 * of `live/` these files are neither proven nor mirrored. The proven records of the calls are in the evidence files.
 */
export interface HistoryDay {
  capability_id: string;
  /** Days since 1970-01-01, UTC. */
  day: number;
  /**
   * Lowest, highest and newest price that 402s asked on the day, in millionths of a dollar; null when no 402 named a
   * price.
   */
  price_low: bigint | null;
  price_high: bigint | null;
  price_last: bigint | null;
  /** Time until the 402 of a free handshake (a request without payment), ms. */
  terms_ms_median: number | null;
  terms_ms_p95: number | null;
  /** Time until the last byte of the answer, in paid calls that delivered (got an answer that is no refusal), ms. */
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
  /** Key of the newest file of each bucket, by the bucket's number. */
  files: Record<string, string>;
  /** {topic: {partition: next offset}}. */
  positions: Record<string, Record<string, number>>;
}

/** Number of days in a history, including today. */
export const HISTORY_DAYS = 90;
