import kafkajs, { type Admin, type ITopicConfig } from "kafkajs";
import { systemClock } from "../../clock.ts";
import { LogDown, LogRefused, MAX_VALUE_BYTES } from "../log.ts";

const { ConfigResourceTypes } = kafkajs;

/** How a log is created where it does not exist yet. An operator may as well declare the topics (infra/deploy/kafka). */
export interface CreateLog {
  /** 1, 2, 4 .. 64; fixed for good. */
  partitions: number;
  /** Copies of each partition, and how many of them must have an append before it is acknowledged. */
  replicas: number;
  minInSync: number;
}

/** One record with its headers, compressed at its worst, has to fit into a batch. */
const MAX_MESSAGE_BYTES = 2 * MAX_VALUE_BYTES;

/** What the topics of a log are declared with: nothing is ever compacted, and no stale copy ever becomes the leader. */
export const TOPIC_CONFIG: Readonly<Record<string, string>> = {
  "cleanup.policy": "delete",
  "unclean.leader.election.enable": "false",
  "message.timestamp.type": "LogAppendTime",
  "max.message.bytes": String(MAX_MESSAGE_BYTES),
  "compression.type": "producer",
};

/** What topics are declared with besides, of which nothing may ever expire: the log is the only copy of what they hold. */
export const KEPT_CONFIG: Readonly<Record<string, string>> = { "retention.ms": "-1", "retention.bytes": "-1" };

/** Settings that every topic must have, also one that an operator declared; without them the log is refused. */
const REQUIRED = ["cleanup.policy", "unclean.leader.election.enable"] as const;

/** What a log consists of. */
export interface LogTopics {
  topics: readonly string[];
  /** Topics that keep every record (default: none). */
  kept?: readonly string[];
}

export const topicOf = (prefix: string, topic: string): string => `${prefix}.${topic}`;

/** Topic of one record: the log's id and shape. It is written once and never expires. */
export const identityTopic = (prefix: string): string => `${prefix}.log`;

const config = (more: Record<string, string>) => Object.entries(more).map(([name, value]) => ({ name, value }));

/**
 * A client that finds none of its brokers at that moment answers nothing instead of trying again (its error is a
 * TypeError).
 */
const LIST_TRIES = 8;
const LIST_PAUSE_MS = 500;

async function listed(admin: Admin): Promise<Set<string>> {
  for (let n = 1; ; n++) {
    try {
      return new Set(await admin.listTopics());
    } catch (error) {
      if (n === LIST_TRIES) throw error;
    }
    await systemClock.sleep(LIST_PAUSE_MS);
  }
}

/** Create what is missing of a log's topics. Two that create at once end with the same topics. */
export async function createTopics(
  admin: Admin,
  prefix: string,
  { topics: names, kept = [] }: LogTopics,
  create: CreateLog,
): Promise<void> {
  const settings = { ...TOPIC_CONFIG, "min.insync.replicas": String(create.minInSync) };
  const topic = (name: string, numPartitions: number, more: Readonly<Record<string, string>> = {}): ITopicConfig => ({
    topic: name,
    numPartitions,
    replicationFactor: create.replicas,
    configEntries: config({ ...settings, ...more }),
  });
  const known = await listed(admin);
  const topics = [
    topic(identityTopic(prefix), 1, KEPT_CONFIG),
    ...names.map((name) => topic(topicOf(prefix, name), create.partitions, kept.includes(name) ? KEPT_CONFIG : {})),
  ].filter((one) => !known.has(one.topic));
  if (topics.length === 0) return;
  await admin.createTopics({ topics, waitForLeaders: false });
  await led(
    admin,
    topics.map((one) => one.topic),
  );
}

/** A busy broker may not know for some seconds what its controller made: the client's own wait ends at the first such word. */
const LED_TRIES = 60;
const LED_PAUSE_MS = 250;

/** Resolves once every partition has a leader. @throws the broker's word when that takes too long */
async function led(admin: Admin, names: string[]): Promise<void> {
  for (let n = 1; ; n++) {
    try {
      const { topics } = await admin.fetchTopicMetadata({ topics: names });
      if (topics.every(({ partitions }) => partitions.every(({ leader }) => leader >= 0))) return;
      if (n === LED_TRIES) throw new LogDown(`creating topics: no leaders after ${n} looks`);
    } catch (error) {
      if (n === LED_TRIES || !(error as { retriable?: boolean }).retriable) throw error;
    }
    await systemClock.sleep(LED_PAUSE_MS);
  }
}

/**
 * Returns the topics that no broker knows. Topics that were just created are looked up several times, since a request may
 * reach a broker that has not heard of them yet.
 */
async function missingOf(admin: Admin, names: readonly string[], made: boolean): Promise<string[]> {
  for (let n = 1; ; n++) {
    const known = await listed(admin);
    const missing = names.filter((name) => !known.has(name));
    if (missing.length === 0 || !made || n === LED_TRIES) return missing;
    await systemClock.sleep(LED_PAUSE_MS);
  }
}

/**
 * Partitions of the log, when its topics are there as they have to be.
 * @param made they were made a moment ago @throws LogRefused naming every topic that is missing, compacted, may lose
 * acknowledged records, drops what must be kept, or has other partitions
 */
export async function checkTopics(
  admin: Admin,
  prefix: string,
  { topics: ofLog, kept = [] }: LogTopics,
  made = false,
): Promise<number> {
  const names = [identityTopic(prefix), ...ofLog.map((topic) => topicOf(prefix, topic))];
  const missing = await missingOf(admin, names, made);
  if (missing.length > 0) throw new LogRefused(`kafka: no topic ${missing.join(", ")}`);
  const { topics } = await admin.fetchTopicMetadata({ topics: names });
  const counts = new Map(topics.map(({ name, partitions }) => [name, partitions.length]));
  const keeps = [identityTopic(prefix), ...kept.map((topic) => topicOf(prefix, topic))];
  const wrong = await wrongSettings(admin, names, new Set(keeps));
  if (counts.get(identityTopic(prefix)) !== 1) wrong.push(`${identityTopic(prefix)} has not one partition`);
  const [partitions, ...others] = new Set(ofLog.map((topic) => counts.get(topicOf(prefix, topic))!));
  if (others.length > 0) wrong.push(`the topics of ${prefix} have ${[partitions, ...others].join(", ")} partitions`);
  if (!Number.isInteger(Math.log2(partitions!)) || partitions! > 64) wrong.push(`${partitions} is not 1, 2, 4 .. 64`);
  if (wrong.length > 0) throw new LogRefused(`kafka: ${wrong.join("; ")}`);
  return partitions!;
}

async function wrongSettings(admin: Admin, names: readonly string[], kept: ReadonlySet<string>): Promise<string[]> {
  const required = (name: string): [string, string][] => [
    ...REQUIRED.map((setting): [string, string] => [setting, TOPIC_CONFIG[setting]!]),
    ...(kept.has(name) ? Object.entries(KEPT_CONFIG) : []),
  ];
  const asked = names.map((name) => required(name).map(([setting]) => setting));
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: names.map((name, i) => ({ type: ConfigResourceTypes.TOPIC, name, configNames: asked[i]! })),
  });
  return resources.flatMap(({ resourceName, configEntries }) =>
    required(resourceName).flatMap(([name, due]) => {
      const value = configEntries.find(({ configName }) => configName === name)?.configValue;
      return value === due ? [] : [`${resourceName} has ${name}=${value}, not ${due}`];
    }),
  );
}
