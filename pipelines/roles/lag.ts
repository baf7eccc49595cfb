import type { Log } from "../../infra/log/log.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { INGESTED } from "../2-ingest/load.ts";
import type { Positions } from "../record/volatile.ts";

const LAG_GAUGE = "touchstone_ingest_lag_records";

/** Removes the gauges (metrics) of partitions that this process no longer holds. */
export function forgetLag(lostPartitions: readonly number[], metrics: Metrics): void {
  for (const partition of lostPartitions) {
    for (const topic of INGESTED) metrics.forget(LAG_GAUGE, { topic, partition: String(partition) });
  }
}

/**
 * Counts, by partition, the records of all ingested topics that are in the log and not yet in the lake (the database
 * of the log's rows), and sets the gauge of each topic and partition. The lake's positions were read before, so
 * records that were appended since then are counted too.
 */
export async function measureLag(
  log: Pick<Log, "bounds">,
  positions: Positions,
  heldPartitions: readonly number[],
  metrics: Metrics,
): Promise<Record<string, number>> {
  const lagByPartition: Record<string, number> = {};
  for (const partition of heldPartitions) {
    let partitionLag = 0;
    for (const topic of INGESTED) {
      const { end } = await log.bounds(topic, partition);
      const lagRecords = Math.max(0, end - (positions[topic]?.[String(partition)] ?? 0));
      metrics.gauge(LAG_GAUGE, lagRecords, { topic, partition: String(partition) });
      partitionLag += lagRecords;
    }
    lagByPartition[String(partition)] = partitionLag;
  }
  return lagByPartition;
}
