import type { Admin } from "kafkajs";
import { describe, expect, test } from "vitest";
import {
  checkTopics,
  createTopics,
  identityTopic,
  NO_EXPIRY_CONFIG,
  TOPIC_CONFIG,
  topicOf,
} from "../../../../infra/log/kafka/topics.ts";
import { LogRefused } from "../../../../infra/log/log.ts";
import { LOG_TOPIC_OPTIONS, PERMANENT_TOPICS, TOPICS } from "../../../../pipelines/record/topics.ts";

const NAMES = [identityTopic("log"), ...TOPICS.map((topic) => topicOf("log", topic))];

/** Brokers of which those that are asked first do not know yet what their controller made. */
function brokers(behind: number, expires: readonly string[] = []): { admin: Admin; asked: () => number } {
  let asked = 0;
  const partitions = (name: string) => Array.from({ length: name === NAMES[0] ? 1 : 4 }, () => ({ leader: 1 }));
  const configOf = (name: string) => {
    const all = {
      ...TOPIC_CONFIG,
      ...NO_EXPIRY_CONFIG,
      ...(expires.includes(name) ? { "retention.ms": "604800000" } : {}),
    };
    return Object.entries(all).map(([configName, configValue]) => ({ configName, configValue }));
  };
  const admin = {
    listTopics: async () => (++asked <= behind ? NAMES.slice(0, 3) : NAMES),
    fetchTopicMetadata: async () => ({ topics: NAMES.map((name) => ({ name, partitions: partitions(name) })) }),
    describeConfigs: async () => ({
      resources: NAMES.map((name) => ({ resourceName: name, configEntries: configOf(name) })),
    }),
  };
  return { admin: admin as unknown as Admin, asked: () => asked };
}

describe("topics of a log", () => {
  test("that were just made are looked for again where a broker does not know them yet", async () => {
    const { admin, asked } = brokers(2);
    expect(await checkTopics(admin, "log", LOG_TOPIC_OPTIONS, true)).toBe(4);
    expect(asked()).toBe(3);
  });

  test("that nobody made are refused at once, by name", async () => {
    const { admin, asked } = brokers(1);
    const refused = checkTopics(admin, "log", LOG_TOPIC_OPTIONS);
    await expect(refused).rejects.toThrow(LogRefused);
    await expect(refused).rejects.toThrow(NAMES.at(-1)!);
    expect(asked()).toBe(1);
  });

  test("that are the only copy of what they hold are refused where it would expire, and no others", async () => {
    for (const topic of [...PERMANENT_TOPICS, "log"]) {
      const { admin } = brokers(0, [`log.${topic}`]);
      await expect(checkTopics(admin, "log", LOG_TOPIC_OPTIONS)).rejects.toThrow(
        `log.${topic} has retention.ms=604800000, not -1`,
      );
    }
    const others = TOPICS.filter((topic) => !(PERMANENT_TOPICS as readonly string[]).includes(topic)).map(
      (topic) => `log.${topic}`,
    );
    expect(await checkTopics(brokers(0, others).admin, "log", LOG_TOPIC_OPTIONS)).toBe(4);
  });

  test("are made so", async () => {
    const made: { topic: string; configEntries: { name: string; value: string }[] }[] = [];
    const admin = {
      listTopics: async () => [],
      createTopics: async ({ topics }: { topics: typeof made }) => made.push(...topics),
      fetchTopicMetadata: async () => ({ topics: [] }),
    } as unknown as Admin;
    await createTopics(admin, "log", LOG_TOPIC_OPTIONS, { partitions: 4, replicas: 3, minInSync: 2 });
    const endless = made.filter(({ configEntries }) => configEntries.some(({ name }) => name === "retention.ms"));
    expect(endless.map(({ topic }) => topic).sort()).toEqual(
      [...PERMANENT_TOPICS, "log"].map((topic) => `log.${topic}`).sort(),
    );
    for (const { configEntries } of endless) {
      for (const [name, value] of Object.entries(NO_EXPIRY_CONFIG))
        expect(configEntries).toContainEqual({ name, value });
    }
  });
});
