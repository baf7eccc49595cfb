import kafkajs from "kafkajs";
import { NO_EXPIRY_CONFIG, TOPIC_CONFIG } from "../../infra/log/kafka/topics.ts";

/**
 * Tells the brokers to compress with gzip what is appended to the topics of a log from now on: a codec that we leave to
 * kafkajs to decode. It holds a moment later.
 */
export async function compressByGzip(brokers: readonly string[], prefix: string): Promise<void> {
  const admin = new kafkajs.Kafka({ brokers: [...brokers], logLevel: kafkajs.logLevel.NOTHING }).admin();
  await admin.connect();
  try {
    const names = (await admin.listTopics()).filter((name) => name.startsWith(`${prefix}.`));
    const inSync = { "min.insync.replicas": String(Math.min(2, brokers.length)) };
    const config = { ...TOPIC_CONFIG, ...NO_EXPIRY_CONFIG, ...inSync, "compression.type": "gzip" };
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    const resources = names.map((name) => ({ type: kafkajs.ConfigResourceTypes.TOPIC, name, configEntries }));
    await admin.alterConfigs({ validateOnly: false, resources });
  } finally {
    await admin.disconnect();
  }
}
