import { randomBytes } from "node:crypto";
import type { Kafka } from "kafkajs";
import { LogDown, type LogRecord, LogRefused } from "../log.ts";
import type { KafkaReader } from "./reader.ts";
import { identityTopic, topicOf } from "./topics.ts";

/** Longest wait of one read, ms. */
const POLL_MS = 100;
/** Rounds of tries of the first read. A busy broker may be named leader of a new topic before it knows of the topic. */
const FIRST_TRIES = 4;
/** Reads of a record that was already written. A broker that has just become leader may show it a moment later. */
const AGAIN_TRIES = 20;

/** What the first record of the identity topic holds. */
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
  /** Topics of the record, without the prefix. */
  topics: readonly string[];
  partitions: number;
}

/**
 * Which log the topics of a prefix are. Kafka has no compare-and-swap, so several processes that find the identity topic
 * empty may each append a record. The first record of the partition decides: everybody, the writers too, reads it from
 * offset 0 before going on, and later ones mean nothing. Nothing is appended to any other topic, or written to a store,
 * before that read; so a topic with records beside an empty identity is a log whose identity was lost.
 */
export class Identity {
  constructor(
    private readonly parts: IdentityParts,
    private readonly mayBegin: () => Promise<void> = async () => undefined,
  ) {}

  /**
   * The log's id; one that nobody has begun is begun.
   * @param made the topics were made a moment ago
   * @throws LogRefused when the identity is gone, or of another shape; what `mayBegin` rejects with; LogDown
   */
  async id(made: boolean): Promise<string> {
    const { prefix, partitions } = this.parts;
    let record = await this.#first(made ? FIRST_TRIES : 1);
    if (!record) {
      const refused = await this.#begin().then(
        () => null,
        (error: unknown) => error,
      );
      // Another process may have begun the log meanwhile: what looked like an obstacle is then its work.
      record = await this.#again();
      if (!record) throw refused ?? new LogDown(`beginning ${prefix}`, new Error("its first record is not to be read"));
    }
    return readIdentity(record.value, partitions).id;
  }

  /** Undefined when nothing was ever written. @throws LogRefused when the record was and is not there any more */
  async #first(tries = 1): Promise<LogRecord | undefined> {
    const { reader, prefix } = this.parts;
    for (let n = 1; ; n++) {
      const found = await reader
        .read("log", 0, 0, { maxRecords: 1, maxBytes: 0, waitMs: POLL_MS })
        .catch((error: unknown) => {
          if (n >= tries) throw error;
          return undefined;
        });
      if (found === undefined) continue;
      const [record] = found ?? [];
      if (found === null || (record && record.offset !== 0))
        throw new LogRefused(
          `kafka: the first record of ${identityTopic(prefix)}, which says which log this is, is gone`,
        );
      return record;
    }
  }

  async #again(): Promise<LogRecord | undefined> {
    for (let n = 1; n < AGAIN_TRIES; n++) {
      const record = await this.#first();
      if (record) return record;
    }
    return this.#first();
  }

  /** @throws LogRefused when the topics have records already; what `mayBegin` rejects with */
  async #begin(): Promise<void> {
    const { kafka, reader, prefix, topics, partitions } = this.parts;
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
    await this.mayBegin();
    const producer = kafka.producer({ idempotent: false, allowAutoTopicCreation: false });
    try {
      await producer.connect();
      const value = JSON.stringify(drawIdentity(partitions));
      await producer.send({ topic: identityTopic(prefix), acks: -1, messages: [{ partition: 0, key: "log", value }] });
    } finally {
      await producer.disconnect().catch(() => undefined);
    }
  }
}

const drawIdentity = (partitions: number): IdentityRecord => ({
  v: 1,
  id: randomBytes(8).toString("hex"),
  partitions,
});

/** @throws LogRefused for bytes that are no identity, or one of another shape than the topics have */
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
