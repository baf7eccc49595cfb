import type { Log } from "../../infra/log/log.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { INGESTED } from "../2-ingest/load.ts";
import type { Positions } from "../record/volatile.ts";

const GAUGE = "touchstone_ingest_lag_records";

/** Partitions that are another's now: their lag is not ours to tell. */
export function forgetLag(lost: readonly number[], metrics: Metrics): void {
  for (const partition of lost) {
    for (const topic of INGESTED) metrics.forget(GAUGE, { topic, partition: String(partition) });
  }
}

/**
 * Records that the log holds and the lake does not, by partition over all topics that are ingested; each (topic,
 * partition) is a gauge. Log and lake are not of one moment, so a figure may be off by what came in between.
 */
export async function lagOf(
  log: Pick<Log, "bounds">,
  positions: Positions,
  held: readonly number[],
  metrics: Metrics,
): Promise<Record<string, number>> {
  const lag: Record<string, number> = {};
  for (const partition of held) {
    let sum = 0;
    for (const topic of INGESTED) {
      const { end } = await log.bounds(topic, partition);
      const behind = Math.max(0, end - (positions[topic]?.[String(partition)] ?? 0));
      metrics.gauge(GAUGE, behind, { topic, partition: String(partition) });
      sum += behind;
    }
    lag[String(partition)] = sum;
  }
  return lag;
}
