import kafkajs, { type Admin, type ITopicConfig } from "kafkajs";
import { systemClock } from "../../clock.ts";
import { LogDown, LogRefused, MAX_VALUE_BYTES } from "../log.ts";

const { ConfigResourceTypes } = kafkajs;

/** How the topics of a new log are created. An operator can also create them (infra/deploy/kafka). */
export interface CreateLog {
  /** Number of partitions of each topic: 1, 2, 4 .. 64. It cannot be changed later. */
  partitions: number;
  /** Number of copies of each partition. */
  replicas: number;
  /** Number of copies that must store an append before it is acknowledged. */
  minInSync: number;
}

/** Largest batch, bytes. One record with its headers must fit, even if compression makes it larger. */
const MAX_MESSAGE_BYTES = 2 * MAX_VALUE_BYTES;

/** Settings of a log's topics: records are never compacted, and a stale copy never becomes the leader. */
export const TOPIC_CONFIG: Readonly<Record<string, string>> = {
  "cleanup.policy": "delete",
  "unclean.leader.election.enable": "false",
  "message.timestamp.type": "LogAppendTime",
  "max.message.bytes": String(MAX_MESSAGE_BYTES),
  "compression.type": "producer",
};

/** Further settings of topics whose records must never expire, since the log is the only copy of them. */
export const KEPT_CONFIG: Readonly<Record<string, string>> = { "retention.ms": "-1", "retention.bytes": "-1" };

/** Settings that every topic must have, also one that an operator declared; without them the log is refused. */
const REQUIRED = ["cleanup.policy", "unclean.leader.election.enable"] as const;

/** The topics of a log. */
export interface LogTopics {
  topics: readonly string[];
  /** Topics that keep every record (default: none). */
  kept?: readonly string[];
}

export const topicOf = (prefix: string, topic: string): string => `${prefix}.${topic}`;

/** Returns the name of the topic whose only record holds the log's id and number of partitions. It never expires. */
export const identityTopic = (prefix: string): string => `${prefix}.log`;

const config = (more: Record<string, string>) => Object.entries(more).map(([name, value]) => ({ name, value }));

/**
 * Attempts to list the topics. If no broker can be reached at that moment, kafkajs throws a TypeError instead of trying
 * again.
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

/** Creates the missing topics of a log. Two processes may do so at once. */
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

/**
 * Attempts to find the leaders of new topics. For some seconds a busy broker may not know topics that its controller
 * created, and the wait of kafkajs ends at the first such answer.
 */
const LED_TRIES = 60;
const LED_PAUSE_MS = 250;

/** Waits until every partition has a leader. @throws LogDown, or the broker's error, when that takes too long */
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
 * Checks the topics of the log, and returns their number of partitions.
 * @param wereCreated true if the topics were created a moment ago
 * @throws LogRefused naming every topic that is missing, is compacted, may lose acknowledged records, drops records that
 * must be kept, or has another number of partitions
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
