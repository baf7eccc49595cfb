import { LogRefused } from "../log.ts";

/** Address of a log in a cluster. */
export interface KafkaAddress {
  /** `host:port` of some brokers; the others are learned from them. */
  brokers: readonly string[];
  /** Prefix of the topics' names, so that several logs can share a cluster. */
  prefix: string;
  /** true: connections use TLS. */
  ssl?: boolean;
  /** Credentials for SASL PLAIN or SCRAM, if the cluster requires them. */
  sasl?: { mechanism: "plain" | "scram-sha-256" | "scram-sha-512"; username: string; password: string };
}

const PREFIX = /^[a-zA-Z0-9._-]{1,80}$/;
const BROKER = /^(?:[a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\]):\d{1,5}$/;

/** Parses `kafka://host:port[,host:port]/prefix`. @throws LogRefused for any other text */
export function parseKafkaAddress(address: string): KafkaAddress {
  const [, hosts = "", prefix = ""] = /^kafka:\/\/([^/]+)\/([^/?#]+)$/.exec(address) ?? [];
  const brokers = hosts.split(",");
  if (!brokers.every((broker) => BROKER.test(broker)) || !PREFIX.test(prefix)) {
    throw new LogRefused(`${JSON.stringify(address.slice(0, 200))} is not kafka://host:port[,host:port]/prefix`);
  }
  return { brokers, prefix };
}
