import type { Cluster, Kafka } from "kafkajs";
import { systemClock } from "../../clock.ts";
import type { Logger } from "../../telemetry.ts";
import {
  type AppendedRecord,
  BadRecord,
  checkBatch,
  checkOffset,
  checkPartition,
  type KnownLog,
  type Log,
  LogClosed,
  LogDown,
  type LogRecord,
  LogRefused,
  type NewRecord,
  NONE_KNOWN,
  OffsetGone,
  OffsetPastEnd,
  type ReadOptions,
  readLimits,
  refuseOtherLog,
} from "../log.ts";
import type { KafkaAddress } from "./address.ts";
import { createCluster, createKafka } from "./client.ts";
import { readLogId } from "./identity.ts";
import { KafkaReader } from "./reader.ts";
import { type CreateLog, checkTopics, createTopics, identityTopic, type LogTopics, topicOf } from "./topics.ts";
import { KafkaWriter } from "./writer.ts";

/** Longest wait of one fetch, ms. It is short, since a connection serves its requests one after the other. */
const FETCH_WAIT_MS = 100;
/**
 * Largest number of attempts to open the log. A connection may be cut at any request, and kafkajs repeats only some
 * requests by itself.
 */
const OPEN_TRIES = 5;
/** Pause after a failed attempt, ms, times the number of attempts so far. */
const OPEN_PAUSE_MS = 250;

export interface KafkaLogOptions extends LogTopics {
  logger: Logger;
  /** Facts about the log from other files (default: none). */
  known?: KnownLog;
  /** How missing topics are created; absent: a log without its topics is refused. */
  create?: CreateLog;
  /** Called before this process begins a log that no process has begun; rejects if it may not (default: it may). */
  mayBegin?: () => Promise<void>;
}

/**
 * Opens the log in a Kafka cluster: its topics, whose names have a prefix, and a topic with the log's identity.
 * Offsets are those of Kafka. Reads are by offset and join no group, since the positions to read from are stored in
 * the commits of the segments.
 * The methods of the log throw BadRecord, OffsetGone, OffsetPastEnd, LogBusy, LogDown and LogClosed.
 * @throws LogRefused when topics are missing or have wrong settings, or the identity is lost; LogDown when no broker
 * answers; LogNotBegun
 */
export async function openKafkaLog(address: KafkaAddress, options: KafkaLogOptions): Promise<Log> {
  for (let n = 1; ; n++) {
    try {
      return await openOnce(address, options);
    } catch (error) {
      if (error instanceof LogRefused || error instanceof LogDown) throw error;
      if (n === OPEN_TRIES || !isTransient(error)) throw new LogDown("opening the log", error);
      await systemClock.sleep(OPEN_PAUSE_MS * n);
    }
  }
}

/**
 * Reports whether a later attempt may succeed. kafkajs sets `retriable` to false on its final errors; a cut connection
 * may also appear as a TypeError without this property.
 */
const isTransient = (error: unknown): boolean => (error as { retriable?: boolean }).retriable !== false;

async function openOnce(address: KafkaAddress, options: KafkaLogOptions): Promise<Log> {
  const { topics, logger, create, mayBegin, known = NONE_KNOWN } = options;
  const { prefix } = address;
  const kafka = createKafka(address, logger);
  const cluster = createCluster(address, logger);
  try {
    const partitions = await prepareTopics(kafka, prefix, options);
    await cluster.connect();
    await cluster.addMultipleTargetTopics([identityTopic(prefix), ...topics.map((topic) => topicOf(prefix, topic))]);
    const reader = new KafkaReader(cluster, prefix, logger);
    const id = await readLogId({ kafka, reader, prefix, topics, partitions, mayBegin }, !!create);
    refuseOtherLog(identityTopic(prefix), id, known);
    return new KafkaLog(id, new Set(topics), partitions, cluster, reader, new KafkaWriter(kafka, prefix));
  } catch (error) {
    await cluster.disconnect().catch(() => undefined);
    throw error;
  }
}

async function prepareTopics(kafka: Kafka, prefix: string, options: KafkaLogOptions): Promise<number> {
  const admin = kafka.admin();
  await admin.connect();
  try {
    if (options.create) await createTopics(admin, prefix, options, options.create);
    return await checkTopics(admin, prefix, options, !!options.create);
  } finally {
    await admin.disconnect();
  }
}

class KafkaLog implements Log {
  #closed = false;

  constructor(
    readonly id: string,
    readonly topics: ReadonlySet<string>,
    readonly partitions: number,
    private readonly cluster: Cluster,
    private readonly reader: KafkaReader,
    private readonly writer: KafkaWriter,
  ) {}

  async append(records: readonly NewRecord[]): Promise<AppendedRecord[]> {
    if (this.#closed) throw new LogClosed();
    const byteCount = checkBatch(this, records);
    return records.length === 0 ? [] : this.writer.append(records, byteCount);
  }

  async read(topic: string, partition: number, from: number, options?: ReadOptions): Promise<LogRecord[]> {
    this.#check(topic, partition);
    checkOffset(from);
    const { maxRecords, maxBytes, waitMs } = readLimits(options);
    const deadline = performance.now() + waitMs;
    for (;;) {
      if (this.#closed) throw new LogClosed();
      options?.signal?.throwIfAborted();
      const leftMs = Math.max(0, deadline - performance.now());
      const portion = { maxRecords, maxBytes, waitMs: Math.min(FETCH_WAIT_MS, Math.ceil(leftMs)) };
      const records = await this.reader.read(topic, partition, from, portion);
      if (records === null) await this.#refuseOutside(topic, partition, from);
      if (records && records.length > 0) return records;
      if (leftMs === 0) return [];
      // A broker does not wait for records when `from` is outside the partition's offsets, as it was a moment ago. So
      // this process waits.
      if (records === null) await systemClock.sleep(FETCH_WAIT_MS);
    }
  }

  async #refuseOutside(topic: string, partition: number, from: number): Promise<void> {
    const { start, end } = await this.reader.bounds(topic, partition);
    if (from < start) throw new OffsetGone(topic, partition, from, start);
    if (from > end) throw new OffsetPastEnd(topic, partition, from, end);
  }

  async bounds(topic: string, partition: number): Promise<{ start: number; end: number }> {
    this.#check(topic, partition);
    return this.reader.bounds(topic, partition);
  }

  async truncate(topic: string, partition: number, below: number): Promise<void> {
    this.#check(topic, partition);
    throw new BadRecord(`${topic}/${partition} is not cut at ${below}: the cluster's retention drops records`);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.reader.close();
    await this.writer.close();
    await this.cluster.disconnect();
  }

  #check(topic: string, partition: number): void {
    if (this.#closed) throw new LogClosed();
    checkPartition(this, topic, partition);
  }
}
