import { randomBytes } from "node:crypto";
import kafkajs from "kafkajs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { declareTopics, type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { parseKafkaAddress } from "../../infra/log/kafka/address.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import { NO_EXPIRY_CONFIG, TOPIC_CONFIG } from "../../infra/log/kafka/topics.ts";
import { LogDown, LogRefused, OffsetPastEnd } from "../../infra/log/log.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { LOG_TOPIC_OPTIONS } from "../../pipelines/record/topics.ts";
import { logContract, record } from "../infra/log/contract.ts";
import { compressByGzip } from "./gzip-topics.ts";

const logger = createLogger("silent");
const CREATE = { partitions: 4, replicas: 1, minInSync: 1 };

let kafka: KafkaCluster;
beforeAll(async () => {
  kafka = await startKafka();
});
afterAll(() => kafka.stop());

const place = (prefix: string) => parseKafkaAddress(`kafka://${kafka.brokers.join(",")}/${prefix}`);
const open = (prefix: string, create?: typeof CREATE) =>
  openKafkaLog(place(prefix), { ...LOG_TOPIC_OPTIONS, logger, ...(create ? { create } : {}) });

logContract("Kafka", async () => ({
  open: () => open("contract", CREATE),
  dispose: async () => undefined,
  truncates: false,
}));

// What fetchBatches leaves to kafkajs: here, batches that the broker compresses with gzip.
logContract("Kafka, decoded by kafkajs", async () => {
  await (await open("gzip", CREATE)).close();
  await compressByGzip(kafka.brokers, "gzip");
  return { open: () => open("gzip"), dispose: async () => undefined, truncates: false };
});

it("is read through kafkajs, with one warning, where a topic has another codec", async () => {
  const lines: { why?: string }[] = [];
  const warned = { ...logger, warn: (line: { why?: string }) => lines.push(line) } as unknown as typeof logger;
  await (await open("codec", CREATE)).close();
  const log = await openKafkaLog(place("codec"), { ...LOG_TOPIC_OPTIONS, logger: warned });
  const values = Array.from({ length: 40 }, () => record("asks", 1, randomBytes(100)));
  const appended = await log.append(values.slice(0, 20));
  await log.read("asks", 1, 0);
  expect([appended.length, lines]).toEqual([20, []]);
  await compressByGzip(kafka.brokers, "codec");
  // The broker hears of it a moment later; from then on both codecs lie side by side.
  await expect
    .poll(async () => {
      await log.append([record("asks", 2)]);
      await log.read("asks", 2, 0);
      return lines;
    })
    .toEqual([{ why: "record batches of codec 1" }]);
  await log.append(values.slice(20));
  const found = await log.read("asks", 1, 0);
  const [ids, bytes] = [found.map(({ eventId }) => eventId), found.map(({ value }) => Buffer.from(value))];
  expect([ids, bytes]).toEqual([values.map(({ eventId }) => eventId), values.map(({ value }) => value)]);
  expect(lines).toHaveLength(1);
  await log.close();
});

/** The administrator's side of the cluster. */
async function admin<T>(
  work: (admin: ReturnType<InstanceType<typeof kafkajs.Kafka>["admin"]>) => Promise<T>,
): Promise<T> {
  const client = new kafkajs.Kafka({ brokers: kafka.brokers, logLevel: kafkajs.logLevel.NOTHING }).admin();
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

/** How many records the identity topic was ever given. */
const identityRecords = async (prefix: string): Promise<number> =>
  Number((await admin((client) => client.fetchTopicOffsets(`${prefix}.log`)))[0]!.high);
const begins = (prefix: string, mayBegin?: () => Promise<void>) =>
  openKafkaLog(place(prefix), { ...LOG_TOPIC_OPTIONS, logger, ...(mayBegin ? { mayBegin } : {}) });
/** What was appended so far is gone, as by a retention that ended. */
const dropRecords = (topic: string) =>
  admin(async (client) => {
    const [partition] = await client.fetchTopicOffsets(topic);
    await client.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: partition!.high }] });
  });

// By create-topics.sh of the deployment, with kafka-topics over the jars of its pom.xml.
describe("a log whose topics an operator declared", () => {
  it("is begun by the first that opens it, and is one log for all who do at the same moment", async () => {
    await declareTopics(kafka.brokers, "declared", 4);
    // Repeated, the script leaves what is there as it is.
    await declareTopics(kafka.brokers, "declared", 4);
    expect(await identityRecords("declared")).toBe(0);
    const logs = await Promise.all(Array.from({ length: 6 }, () => begins("declared")));
    expect(new Set(logs.map(({ id }) => id)).size).toBe(1);
    const written = await identityRecords("declared");
    expect(written).toBeGreaterThanOrEqual(1);
    await logs[0]!.append([record("asks", 0)]);
    const later = await begins("declared");
    expect(later).toMatchObject({ id: logs[0]!.id, partitions: 4 });
    expect(await identityRecords("declared")).toBe(written);
    for (const log of [...logs, later]) await log.close();

    // Its first record is gone: that is no log that nobody has begun.
    await dropRecords("declared.log");
    await expect(begins("declared")).rejects.toThrow("the first record of declared.log");
    await expect(begins("declared")).rejects.toThrow(LogRefused);
  });

  it("goes on with the record that another wrote, though it wrote one too", async () => {
    await (await open("late", CREATE)).close();
    await admin((client) => client.deleteTopics({ topics: ["late.log"] }));
    await recreate("late.log");
    // Another begins the log between our look and our own record.
    let theirs = "";
    const ours = await begins("late", async () => {
      const log = await begins("late");
      theirs = log.id;
      await log.close();
    });
    expect(ours.id).toBe(theirs);
    expect(await identityRecords("late")).toBe(2);
    await ours.close();
  });

  it("is not begun by whoever may not, unless another did meanwhile", async () => {
    await (await open("kept", CREATE)).close();
    await admin((client) => client.deleteTopics({ topics: ["kept.log"] }));
    await recreate("kept.log");
    const refusal = new LogRefused("the private store is of another log");
    await expect(begins("kept", () => Promise.reject(refusal))).rejects.toBe(refusal);
    expect(await identityRecords("kept")).toBe(0);
    const after = await begins("kept", async () => {
      await (await begins("kept")).close();
      throw refusal;
    });
    expect(await identityRecords("kept")).toBe(1);
    await after.close();
  });

  it("is refused where its identity was lost, and goes on when it is put back", async () => {
    const before = await open("lost", CREATE);
    await before.append([record("orders", 3)]);
    await before.close();
    await admin((client) => client.deleteTopics({ topics: ["lost.log"] }));
    await recreate("lost.log");
    await expect(begins("lost")).rejects.toThrow(LogRefused);
    await expect(open("lost", CREATE)).rejects.toThrow("lost.log is empty, but lost.orders is not");
    expect(await identityRecords("lost")).toBe(0);
    // As topics.md says.
    const producer = new kafkajs.Kafka({ brokers: kafka.brokers, logLevel: kafkajs.logLevel.NOTHING }).producer();
    await producer.connect();
    await producer.send({
      topic: "lost.log",
      messages: [{ value: JSON.stringify({ v: 1, id: before.id, partitions: 4 }) }],
    });
    await producer.disconnect();
    const after = await begins("lost");
    expect(after.id).toBe(before.id);
    await after.close();
  });
});

/** An identity topic as it must be, without its record. */
async function recreate(topic: string): Promise<void> {
  const configEntries = Object.entries({ ...TOPIC_CONFIG, ...NO_EXPIRY_CONFIG }).map(([name, value]) => ({
    name,
    value,
  }));
  const made = () => admin((client) => client.createTopics({ topics: [{ topic, numPartitions: 1, configEntries }] }));
  // A topic that is being deleted is there for a moment.
  await expect.poll(() => made().catch(() => false)).toBe(true);
}

describe("a log in Kafka", () => {
  it("is one log for all who create it at the same moment", async () => {
    const logs = await Promise.all(Array.from({ length: 4 }, () => open("race", CREATE)));
    expect(new Set(logs.map(({ id }) => id)).size).toBe(1);
    const later = await open("race");
    expect(later).toMatchObject({ id: logs[0]!.id, partitions: 4 });
    for (const log of [...logs, later]) await log.close();
  });

  it("is refused when it is not there, and named", async () => {
    await expect(open("nobody")).rejects.toThrow(LogRefused);
    await expect(open("nobody")).rejects.toThrow("nobody.listings");
  });

  it.each([
    ["compacted", "cleanup.policy", "compact"],
    ["one that elects a stale leader", "unclean.leader.election.enable", "true"],
    ["expiring, of which the log is the only copy", "retention.ms", "604800000"],
  ])("is refused with a topic that is %s", async (name, setting, value) => {
    const prefix = name.split(/[ ,]/)[0]!;
    await (await open(prefix, CREATE)).close();
    await admin((client) =>
      client.alterConfigs({
        validateOnly: false,
        resources: [
          {
            type: kafkajs.ConfigResourceTypes.TOPIC,
            name: `${prefix}.orders`,
            configEntries: [{ name: setting, value }],
          },
        ],
      }),
    );
    // What a broker was told reaches what it says a moment later.
    await expect
      .poll(() => open(prefix).then((log) => log.close(), String))
      .toContain(`${prefix}.orders has ${setting}=${value}`);
  });

  it("that was deleted and made again is another log", async () => {
    const before = await open("again", CREATE);
    await before.append([record("asks", 0)]);
    await before.close();
    const ofIt = async () => (await admin((client) => client.listTopics())).filter((name) => name.startsWith("again."));
    const topics = await ofIt();
    await admin((client) => client.deleteTopics({ topics }));
    await expect.poll(ofIt).toEqual([]);
    const after = await open("again", CREATE);
    expect(after.id).not.toBe(before.id);
    expect(await after.bounds("asks", 0)).toEqual({ start: 0, end: 0 });
    await after.close();
  });

  it("reads on where a batch was cut, without fetching it twice, and from any offset again", async () => {
    const log = await open("reading", CREATE);
    const values = Array.from({ length: 3_000 }, () => record("observations.free", 2, randomBytes(400)));
    await log.append(values);
    const found: string[] = [];
    for (let from = 0; from < values.length; ) {
      const read = await log.read("observations.free", 2, from, { maxRecords: 700 });
      found.push(...read.map(({ eventId }) => eventId));
      from += read.length;
    }
    expect(found).toEqual(values.map(({ eventId }) => eventId));
    const [one] = await log.read("observations.free", 2, 1_234, { maxRecords: 1 });
    expect([one!.offset, one!.eventId]).toEqual([1_234, values[1_234]!.eventId]);
    await expect(log.read("observations.free", 2, 99_999)).rejects.toThrow(OffsetPastEnd);
    await log.close();
  });

  it("says that nobody answers, after a bounded time", async () => {
    const lost = openKafkaLog(parseKafkaAddress("kafka://127.0.0.1:1/none"), { ...LOG_TOPIC_OPTIONS, logger });
    await expect(lost).rejects.toThrow(LogDown);
  });
});

it.each([
  "kafka://",
  "kafka://host/x",
  "kafka://host:9092",
  "kafka://host:9092/",
  "http://host:9092/x",
  "kafka://a:1,b/x",
])("%s is no address of a log", (address) => {
  expect(() => parseKafkaAddress(address)).toThrow(LogRefused);
});
