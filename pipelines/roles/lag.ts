import type { Log } from "../../infra/log/log.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { INGESTED } from "../2-ingest/load.ts";
import type { Positions } from "../record/volatile.ts";

const LAG_GAUGE = "touchstone_ingest_lag_records";

/** Removes the gauges of partitions that another process holds now. */
export function forgetLag(lostPartitions: readonly number[], metrics: Metrics): void {
  for (const partition of lostPartitions) {
    for (const topic of INGESTED) metrics.forget(LAG_GAUGE, { topic, partition: String(partition) });
  }
}

/**
 * Counts the records of all ingested topics that the log has and the lake lacks, by partition, and sets the gauge of
 * each topic and partition. Log and lake are read one after the other, so a figure may be off by the records in
 * between.
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
