import kafkajs from "kafkajs";
import Cluster from "kafkajs/src/cluster/index.js";
import loggers from "kafkajs/src/loggers/index.js";
import socketFactory from "kafkajs/src/network/socketFactory.js";
import type { Logger } from "../../telemetry.ts";
import type { KafkaPlace } from "./address.ts";
import "./connection.ts";
import "./codecs.ts";

const { Kafka, logLevel } = kafkajs;

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

const common = (place: KafkaPlace) => ({
  clientId: "touchstone",
  brokers: anyOrder(place.brokers),
  connectionTimeout: CONNECT_MS,
  requestTimeout: REQUEST_MS,
  ...(place.ssl ? { ssl: true } : {}),
});

/** The public client: producer, admin and consumer groups. */
export const createKafka = (place: KafkaPlace, logger: Logger) =>
  new Kafka({
    ...common(place),
    ...(place.sasl ? { sasl: place.sasl as never } : {}),
    retry: RETRY,
    logLevel: logLevel.WARN,
    logCreator: creator(logger),
  });

/** Connections to the brokers for reads by offset (kafkajs-cluster.d.ts). */
export const createCluster = (place: KafkaPlace, logger: Logger): Cluster =>
  new Cluster({
    ...common(place),
    sasl: place.sasl,
    logger: loggers.createLogger({ level: logLevel.WARN, logCreator: creator(logger) }),
    socketFactory: socketFactory(),
    enforceRequestTimeout: true,
    metadataMaxAge: METADATA_MS,
    retry: RETRY,
    allowAutoTopicCreation: false,
    maxInFlightRequests: 8,
    isolationLevel: 0,
  });
