import type { Config } from "../config.ts";
import type { Logger } from "../telemetry.ts";
import { openEmbeddedLog } from "./embedded.ts";
import type { KafkaAddress } from "./kafka/address.ts";
import { type KnownLog, type Log, LogNotBegun, LogRefused, NONE_KNOWN, refuseNewLog } from "./log.ts";
import { allPartitions, type Ownership, type OwnershipGroup } from "./ownership.ts";

/**
 * Opens the log that the settings name, with these topics: the embedded log in `dir`, or the cluster's. The Kafka
 * client is loaded only for a cluster. Records of the topics `kept` must never expire: the embedded log drops only
 * what `truncate` is called for, and a cluster whose settings would let them expire is refused.
 * @param known facts about the log from other files (default: none; then this process may not begin a cluster's log,
 * which means to write the record with the log's id)
 * @throws LogRefused, also when the known log is missing or another log is found; LogBusy, LogDown, LogNotBegun
 */
export async function openLog(
  config: Pick<Config, "log" | "kafka" | "log_partitions">,
  { topics, kept }: { topics: readonly string[]; kept: readonly string[] },
  dir: string,
  logger: Logger,
  known: KnownLog = NONE_KNOWN,
): Promise<Log> {
  if (config.log === null) return openEmbeddedLog(dir, { topics, partitions: config.log_partitions, known });
  const { openKafkaLog } = await import("./kafka/kafka.ts");
  const { create, replicas, min_in_sync: minInSync } = config.kafka;
  return openKafkaLog(await readKafkaAddress(config.log, config.kafka), {
    ...{ topics, kept, known, logger },
    mayBegin: () => mayBegin(config.log!, known),
    // Missing topics are not created when data exists that was made from earlier ones.
    ...(create && known.mayMake ? { create: { partitions: config.log_partitions, replicas, minInSync } } : {}),
  });
}

/** Checks that this process may create the log. @throws LogRefused; LogNotBegun when the process has no private store */
async function mayBegin(address: string, known: KnownLog): Promise<void> {
  refuseNewLog(address, known);
  if (known.mayBegin) return;
  const why = "its topics are there, and nobody has begun it: the first of observe, own, publish and start does";
  throw new LogNotBegun("opening the log", new Error(why));
}

/** Returns the cluster's address and credentials from the settings. @throws LogRefused */
async function readKafkaAddress(address: string, settings: Config["kafka"]): Promise<KafkaAddress> {
  const { parseKafkaAddress } = await import("./kafka/address.ts");
  const { tls, mechanism, username, password } = settings;
  if ((username === null) !== (password === null))
    throw new LogRefused("kafka: a username needs a password, and the other way round");
  return {
    ...parseKafkaAddress(address),
    ssl: tls,
    ...(username !== null && password !== null ? { sasl: { mechanism, username, password } } : {}),
  };
}

/**
 * Opens this process's share of the log's partitions: all of them for the embedded log, those that the consumer group
 * assigns for a cluster. @throws LogRefused, LogDown
 */
export async function openOwnership(
  config: Pick<Config, "log" | "kafka">,
  log: Pick<Log, "partitions">,
  group: OwnershipGroup,
  logger: Logger,
): Promise<Ownership> {
  if (config.log === null) return allPartitions(log.partitions);
  const { joinGroup } = await import("./kafka/members.ts");
  return joinGroup(await readKafkaAddress(config.log, config.kafka), group, { logger, partitions: log.partitions });
}
