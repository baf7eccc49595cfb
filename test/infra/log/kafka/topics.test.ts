import type { Admin } from "kafkajs";
import { describe, expect, test } from "vitest";
import { LogRefused } from "../../../../infra/log/errors.ts";
import { checkTopics, identityTopic, TOPIC_CONFIG, topicOf } from "../../../../infra/log/kafka/topics.ts";
import { TOPICS } from "../../../../pipelines/record/topics.ts";

const NAMES = [identityTopic("log"), ...TOPICS.map((topic) => topicOf("log", topic))];

/** Brokers of which those that are asked first do not know yet what their controller made. */
function brokers(behind: number): { admin: Admin; asked: () => number } {
  let asked = 0;
  const partitions = (name: string) => Array.from({ length: name === NAMES[0] ? 1 : 4 }, () => ({ leader: 1 }));
  const configEntries = Object.entries(TOPIC_CONFIG).map(([configName, configValue]) => ({ configName, configValue }));
  const admin = {
    listTopics: async () => (++asked <= behind ? NAMES.slice(0, 3) : NAMES),
    fetchTopicMetadata: async () => ({ topics: NAMES.map((name) => ({ name, partitions: partitions(name) })) }),
    describeConfigs: async () => ({ resources: NAMES.map((resourceName) => ({ resourceName, configEntries })) }),
  };
  return { admin: admin as unknown as Admin, asked: () => asked };
}

describe("topics of a log", () => {
  test("that were just made are looked for again where a broker does not know them yet", async () => {
    const { admin, asked } = brokers(2);
    expect(await checkTopics(admin, "log", TOPICS, true)).toBe(4);
    expect(asked()).toBe(3);
  });

  test("that nobody made are refused at once, by name", async () => {
    const { admin, asked } = brokers(1);
    const refused = checkTopics(admin, "log", TOPICS);
    await expect(refused).rejects.toThrow(LogRefused);
    await expect(refused).rejects.toThrow(NAMES.at(-1)!);
    expect(asked()).toBe(1);
  });
});
