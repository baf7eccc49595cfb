import kafkajs, { type Assigner, type Cluster } from "kafkajs";
import { compress, decompress } from "zstd-napi";
import type { Logger } from "../../telemetry.ts";
import type { KafkaAddress } from "./address.ts";
import { createSockets } from "./sockets.ts";

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;

/** zstd is what the topics are declared with; kafkajs ships without it. */
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder: { buffer: Buffer }) => compress(encoder.buffer, { compressionLevel: 3 }),
  decompress: async (buffer: Buffer) => decompress(buffer),
});

/** Header that carries the event id. */
export const EVENT_ID = "event_id";

/** Waits and tries of one request, ms. What fails for longer is told to the caller, who tries by its own rule. */
const CONNECT_MS = 3_000;
const REQUEST_MS = 10_000;
const RETRY = { initialRetryTime: 100, maxRetryTime: 2_000, retries: 6 };
/** How old what we know of leaders may get. */
const METADATA_MS = 60_000;

interface Entry {
  namespace: string;
  level: number;
  log: { message: string; [more: string]: unknown };
}

/** kafkajs' own words, as debug lines: what matters of them reaches the caller as an error. */
const creator = (logger: Logger) => () => (entry: unknown) => {
  const { namespace, log } = entry as Entry;
  logger.debug({ kafka: namespace, ...log }, log.message);
};

/**
 * In an order of its own: through all its tries a client stays with the first broker that takes its connection, and what
 * stands in front of a dead one may take it and close it again. Whoever opens once more begins with another.
 */
const anyOrder = (brokers: readonly string[]): string[] =>
  brokers
    .map((broker) => ({ broker, lot: Math.random() }))
    .sort((a, b) => a.lot - b.lot)
    .map(({ broker }) => broker);

/** The client: producer, admin and consumer groups. */
export const createKafka = (address: KafkaAddress, logger: Logger) =>
  new Kafka({
    clientId: "touchstone",
    brokers: anyOrder(address.brokers),
    connectionTimeout: CONNECT_MS,
    requestTimeout: REQUEST_MS,
    ...(address.ssl ? { ssl: true } : {}),
    ...(address.sasl ? { sasl: address.sasl as never } : {}),
    socketFactory: createSockets({ answerMs: REQUEST_MS }),
    retry: RETRY,
    logLevel: logLevel.WARN,
    logCreator: creator(logger),
  });

/**
 * Connections to the brokers, for requests that name a partition and an offset: what kafkajs hands to whoever assigns the
 * partitions of a consumer (its type PartitionAssigner). The consumer is never run: positions come from the commit chain.
 */
export function createCluster(address: KafkaAddress, logger: Logger): Cluster {
  let cluster: Cluster | undefined;
  const none: Assigner = {
    name: "none",
    version: 0,
    assign: async () => [],
    protocol: () => ({ name: "none", metadata: Buffer.alloc(0) }),
  };
  createKafka(address, logger).consumer({
    groupId: `${address.prefix}.none`,
    metadataMaxAge: METADATA_MS,
    allowAutoTopicCreation: false,
    maxInFlightRequests: 8,
    retry: RETRY,
    partitionAssigners: [
      (given) => {
        cluster = given.cluster;
        return none;
      },
    ],
  });
  if (!cluster) throw new Error("kafkajs made no connections for its assigner of partitions");
  return cluster;
}
