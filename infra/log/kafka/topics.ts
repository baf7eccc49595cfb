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
export const NO_EXPIRY_CONFIG: Readonly<Record<string, string>> = { "retention.ms": "-1", "retention.bytes": "-1" };

/** Settings that every topic must have, also one that an operator declared; without them the log is refused. */
const REQUIRED_SETTINGS = ["cleanup.policy", "unclean.leader.election.enable"] as const;

/** The topics of a log. */
export interface LogTopics {
  topics: readonly string[];
  /** Topics that keep every record (default: none). */
  kept?: readonly string[];
}

/** Returns the name in the cluster of a topic of the log. */
export const topicOf = (prefix: string, topic: string): string => `${prefix}.${topic}`;

/** Returns the name of the topic whose only record holds the log's id and number of partitions. It never expires. */
export const identityTopic = (prefix: string): string => `${prefix}.log`;

/**
 * Largest number of attempts to list the topics. If no broker can be reached at that moment, kafkajs throws a TypeError
 * instead of trying again.
 */
const LIST_TRIES = 8;
const LIST_PAUSE_MS = 500;

async function listTopicNames(admin: Admin): Promise<Set<string>> {
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
  const topic = (name: string, numPartitions: number, extra: Readonly<Record<string, string>> = {}): ITopicConfig => ({
    topic: name,
    numPartitions,
    replicationFactor: create.replicas,
    configEntries: Object.entries({ ...settings, ...extra }).map(([name, value]) => ({ name, value })),
  });
  const existing = await listTopicNames(admin);
  const topics = [
    topic(identityTopic(prefix), 1, NO_EXPIRY_CONFIG),
    ...names.map((name) =>
      topic(topicOf(prefix, name), create.partitions, kept.includes(name) ? NO_EXPIRY_CONFIG : {}),
    ),
  ].filter((one) => !existing.has(one.topic));
  if (topics.length === 0) return;
  await admin.createTopics({ topics, waitForLeaders: false });
  await waitForLeaders(
    admin,
    topics.map((one) => one.topic),
  );
}

/**
 * Largest number of attempts to find the leaders of new topics. For some seconds a busy broker may not know topics that
 * its controller created, and the wait of kafkajs ends at the first such answer.
 */
const LEADER_TRIES = 60;
const LEADER_PAUSE_MS = 250;

/** Waits until every partition has a leader. @throws LogDown, or the broker's error, when that takes too long */
async function waitForLeaders(admin: Admin, names: string[]): Promise<void> {
  for (let n = 1; ; n++) {
    try {
      const { topics } = await admin.fetchTopicMetadata({ topics: names });
      if (topics.every(({ partitions }) => partitions.every(({ leader }) => leader >= 0))) return;
      if (n === LEADER_TRIES) throw new LogDown(`creating topics: no leaders after ${n} looks`);
    } catch (error) {
      if (n === LEADER_TRIES || !(error as { retriable?: boolean }).retriable) throw error;
    }
    await systemClock.sleep(LEADER_PAUSE_MS);
  }
}

/**
 * Returns the topics that no broker knows. Topics that were just created are looked up several times, since a request
 * may reach a broker that does not know them yet.
 */
async function findMissingTopics(admin: Admin, names: readonly string[], wereCreated: boolean): Promise<string[]> {
  for (let n = 1; ; n++) {
    const existing = await listTopicNames(admin);
    const missing = names.filter((name) => !existing.has(name));
    if (missing.length === 0 || !wereCreated || n === LEADER_TRIES) return missing;
    await systemClock.sleep(LEADER_PAUSE_MS);
  }
}

/**
 * Checks the topics of the log, and returns their number of partitions.
 * @param wereCreated true if the topics were created a moment ago
 * @throws LogRefused naming every topic that is missing, is compacted, may lose acknowledged records, drops records
 * that must be kept, or has another number of partitions
 */
export async function checkTopics(
  admin: Admin,
  prefix: string,
  { topics: logTopics, kept = [] }: LogTopics,
  wereCreated = false,
): Promise<number> {
  const names = [identityTopic(prefix), ...logTopics.map((topic) => topicOf(prefix, topic))];
  const missing = await findMissingTopics(admin, names, wereCreated);
  if (missing.length > 0) throw new LogRefused(`kafka: no topic ${missing.join(", ")}`);
  const { topics } = await admin.fetchTopicMetadata({ topics: names });
  const counts = new Map(topics.map(({ name, partitions }) => [name, partitions.length]));
  const neverExpiring = [identityTopic(prefix), ...kept.map((topic) => topicOf(prefix, topic))];
  const problems = await findSettingProblems(admin, names, new Set(neverExpiring));
  if (counts.get(identityTopic(prefix)) !== 1) problems.push(`${identityTopic(prefix)} has not one partition`);
  const [partitions, ...otherCounts] = new Set(logTopics.map((topic) => counts.get(topicOf(prefix, topic))!));
  if (otherCounts.length > 0)
    problems.push(`the topics of ${prefix} have ${[partitions, ...otherCounts].join(", ")} partitions`);
  if (!Number.isInteger(Math.log2(partitions!)) || partitions! > 64)
    problems.push(`${partitions} is not 1, 2, 4 .. 64`);
  if (problems.length > 0) throw new LogRefused(`kafka: ${problems.join("; ")}`);
  return partitions!;
}

async function findSettingProblems(
  admin: Admin,
  names: readonly string[],
  kept: ReadonlySet<string>,
): Promise<string[]> {
  const required = (name: string): [string, string][] => [
    ...REQUIRED_SETTINGS.map((setting): [string, string] => [setting, TOPIC_CONFIG[setting]!]),
    ...(kept.has(name) ? Object.entries(NO_EXPIRY_CONFIG) : []),
  ];
  const settingNames = names.map((name) => required(name).map(([setting]) => setting));
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: names.map((name, i) => ({ type: ConfigResourceTypes.TOPIC, name, configNames: settingNames[i]! })),
  });
  return resources.flatMap(({ resourceName, configEntries }) =>
    required(resourceName).flatMap(([name, expected]) => {
      const value = configEntries.find(({ configName }) => configName === name)?.configValue;
      return value === expected ? [] : [`${resourceName} has ${name}=${value}, not ${expected}`];
    }),
  );
}
