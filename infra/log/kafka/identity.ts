import { randomBytes } from "node:crypto";
import type { Kafka } from "kafkajs";
import { LogDown, type LogRecord, LogRefused } from "../log.ts";
import type { KafkaReader } from "./reader.ts";
import { identityTopic, topicOf } from "./topics.ts";

/** Longest wait of one read, ms. */
const READ_WAIT_MS = 100;
/**
 * Largest number of attempts of the first read of new topics. A busy broker may be elected leader of a topic before it
 * knows the topic.
 */
const FIRST_READ_TRIES = 4;
/**
 * Largest number of reads of the identity record after it was written. A broker that has just become the leader may not
 * return it at once.
 */
const REREAD_TRIES = 20;

/** Content of the first record of the identity topic. */
interface IdentityRecord {
  v: 1;
  /** 16 random hex digits, drawn by the process that creates the log. */
  id: string;
  partitions: number;
}

interface IdentityParts {
  kafka: Kafka;
  reader: KafkaReader;
  prefix: string;
  /** Topics of the log besides the identity topic, without the prefix. */
  topics: readonly string[];
  partitions: number;
  /** Called before this process begins the log; rejects if it may not (default: it may). */
  mayBegin?: (() => Promise<void>) | undefined;
}

/**
 * Returns the id of the log in the topics of a prefix. If no process has begun the log, this begins it. Kafka has no
 * compare-and-swap, so several processes that find the identity topic empty may each append a record. Only the first
 * record of the partition counts: every process, also one that appended, reads the record at offset 0 before it
 * continues. Before that read no process appends to another topic or writes to a store. So if the identity topic is
 * empty and another topic has records, the log's identity was lost.
 * @param wereTopicsCreated true if the topics may have been created a moment ago
 * @throws LogRefused when the identity is lost, or has another form; the error of `mayBegin`; LogDown
 */
export async function readLogId(parts: IdentityParts, wereTopicsCreated: boolean): Promise<string> {
  let record = await readFirst(parts, wereTopicsCreated ? FIRST_READ_TRIES : 1);
  if (!record) {
    const beginError = await beginLog(parts).catch((error: unknown) => error);
    // Another process may have begun the log meanwhile, which also makes this process's attempt fail.
    for (let n = 0; !record && n < REREAD_TRIES; n++) record = await readFirst(parts, 1);
    if (!record)
      throw beginError ?? new LogDown(`beginning ${parts.prefix}`, new Error("its first record is not to be read"));
  }
  return readIdentity(record.value, parts.partitions).id;
}

/** Returns the first record; undefined if none was ever written. @throws LogRefused when the record was deleted */
async function readFirst({ reader, prefix }: IdentityParts, tries: number): Promise<LogRecord | undefined> {
  for (let n = 1; ; n++) {
    try {
      const records = await reader.read("log", 0, 0, { maxRecords: 1, maxBytes: 0, waitMs: READ_WAIT_MS });
      if (records?.length === 0) return undefined;
      if (records?.[0]?.offset === 0) return records[0];
    } catch (error) {
      if (n < tries) continue;
      throw error;
    }
    throw new LogRefused(`kafka: the first record of ${identityTopic(prefix)}, which says which log this is, is gone`);
  }
}

/** Appends an identity to the empty topics. @throws LogRefused when they have records already; the error of `mayBegin` */
async function beginLog({ kafka, reader, prefix, topics, partitions, mayBegin }: IdentityParts): Promise<void> {
  for (const topic of topics) {
    for (let partition = 0; partition < partitions; partition++) {
      const { end } = await reader.bounds(topic, partition);
      if (end > 0)
        throw new LogRefused(
          `kafka: ${identityTopic(prefix)} is empty, but ${topicOf(prefix, topic)} is not: what says which log this is was ` +
            "lost. Put its record back (infra/deploy/kafka/topics.md), or begin another log under another prefix",
        );
    }
  }
  await mayBegin?.();
  const producer = kafka.producer({ idempotent: false, allowAutoTopicCreation: false });
  const identity: IdentityRecord = { v: 1, id: randomBytes(8).toString("hex"), partitions };
  const message = { partition: 0, key: "log", value: JSON.stringify(identity) };
  try {
    await producer.connect();
    await producer.send({ topic: identityTopic(prefix), acks: -1, messages: [message] });
  } finally {
    await producer.disconnect().catch(() => undefined);
  }
}

/** Parses the identity record. @throws LogRefused for other bytes, or for another number of partitions than the topics have */
function readIdentity(value: Uint8Array, partitions: number): IdentityRecord {
  let identity: IdentityRecord;
  try {
    identity = JSON.parse(Buffer.from(value).toString("utf8")) as IdentityRecord;
  } catch (error) {
    throw new LogRefused("kafka: the identity record of the log cannot be read", error);
  }
  if (identity?.v !== 1 || !/^[0-9a-f]{16}$/.test(identity.id) || identity.partitions !== partitions) {
    throw new LogRefused(
      `kafka: the log was created as ${JSON.stringify(identity)}, its topics have ${partitions} partitions`,
    );
  }
  return identity;
}
