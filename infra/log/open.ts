import type { Config } from "../config.ts";
import type { Logger } from "../telemetry.ts";
import { openEmbeddedLog } from "./embedded.ts";
import { LogRefused } from "./errors.ts";
import type { KafkaPlace } from "./kafka/address.ts";
import type { Log } from "./log.ts";

/**
 * The log of the settings: the embedded one in `dir`, or the cluster's. The cluster's client is only loaded when asked
 * for. @throws LogRefused, LogBusy, LogDown
 */
export async function openLog(
  config: Pick<Config, "log" | "kafka" | "log_partitions">,
  dir: string,
  logger: Logger,
): Promise<Log> {
  if (config.log === null) return openEmbeddedLog(dir, { partitions: config.log_partitions });
  const { openKafkaLog } = await import("./kafka/kafka.ts");
  const { create, replicas, min_in_sync: minInSync } = config.kafka;
  return openKafkaLog(await kafkaPlaceOf(config.log, config.kafka), {
    logger,
    ...(create ? { create: { partitions: config.log_partitions, replicas, minInSync } } : {}),
  });
}

/** Where the settings say that the cluster is, and how to get in. @throws LogRefused */
export async function kafkaPlaceOf(address: string, settings: Config["kafka"]): Promise<KafkaPlace> {
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
