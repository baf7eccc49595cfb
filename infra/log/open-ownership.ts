import type { Config } from "../config.ts";
import type { Logger } from "../telemetry.ts";
import type { Log } from "./log.ts";
import { kafkaPlaceOf } from "./open.ts";
import { allPartitions, type Ownership, type OwnershipGroup } from "./ownership.ts";

/**
 * This process' share of the log's partitions: all of them with the embedded log, what the consumer group hands out with
 * the cluster's. @throws LogRefused, LogDown
 */
export async function openOwnership(
  config: Pick<Config, "log" | "kafka">,
  log: Pick<Log, "partitions">,
  group: OwnershipGroup,
  logger: Logger,
): Promise<Ownership> {
  if (config.log === null) return allPartitions(log.partitions);
  const { joinGroup } = await import("./kafka/members.ts");
  return joinGroup(await kafkaPlaceOf(config.log, config.kafka), group, { logger, partitions: log.partitions });
}
