import { LogRefused } from "../log.ts";

/** Where a log lies in a cluster. */
export interface KafkaAddress {
  /** `host:port` of some brokers; the others are learned from them. */
  brokers: readonly string[];
  /** What the names of the topics begin with, so that several logs share a cluster. */
  prefix: string;
  /** TLS, and SASL PLAIN or SCRAM where the cluster asks for it. */
  ssl?: boolean;
  sasl?: { mechanism: "plain" | "scram-sha-256" | "scram-sha-512"; username: string; password: string };
}

const PREFIX = /^[a-zA-Z0-9._-]{1,80}$/;
const BROKER = /^(?:[a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\]):\d{1,5}$/;

/** `kafka://host:port[,host:port]/prefix`. @throws LogRefused for anything else */
export function parseKafkaAddress(address: string): KafkaAddress {
  const [, hosts = "", prefix = ""] = /^kafka:\/\/([^/]+)\/([^/?#]+)$/.exec(address) ?? [];
  const brokers = hosts.split(",");
  if (!brokers.every((broker) => BROKER.test(broker)) || !PREFIX.test(prefix)) {
    throw new LogRefused(`${JSON.stringify(address.slice(0, 200))} is not kafka://host:port[,host:port]/prefix`);
  }
  return { brokers, prefix };
}
