import kafkajs, { type Kafka, type Producer } from "kafkajs";
import { type AppendedRecord, LogBusy, LogDown, type NewRecord } from "../log.ts";
import { EVENT_ID } from "./record-batches.ts";
import { topicOf } from "./topics.ts";

const { CompressionTypes } = kafkajs;

/**
 * Largest number of value bytes of one request of a partition. The batch must fit into `max.message.bytes`, even if
 * compression makes it larger.
 */
const CHUNK_BYTES = 1_500_000;
/** Largest number of records of one request. */
const CHUNK_RECORDS = 5_000;
/** Largest number of value bytes that wait in all queues together; an append beyond that is refused. */
const MAX_WAITING_BYTES = 256 * 1024 * 1024;
/** Longest time for which a broker waits until enough copies store an append, ms. */
const ACK_TIMEOUT_MS = 10_000;

interface WaitingRecord {
  record: NewRecord;
  done: (offset: number) => void;
  failed: (error: unknown) => void;
}

/**
 * Appends records. Each partition has a queue, from which one request at a time is sent, so records keep the order of
 * the calls. The idempotent producer of kafkajs is not used: after a lost answer it applies the broker's "duplicate"
 * to the wrong batch, and acknowledged records are lost (engines.md). Without it a record may be stored twice, which
 * is harmless, since readers drop duplicates by event id.
 */
export class KafkaWriter {
  readonly #queues = new Map<string, WaitingRecord[]>();
  readonly #running = new Set<Promise<void>>();
  #producer: Promise<Producer> | null = null;
  #waitingBytes = 0;

  constructor(
    private readonly kafka: Kafka,
    private readonly prefix: string,
  ) {}

  /**
   * Appends records; `bytes` is the sum of their value bytes.
   * @throws LogBusy, and nothing was stored; LogDown, and any prefix of the records of each partition may be stored
   */
  async append(records: readonly NewRecord[], bytes: number): Promise<AppendedRecord[]> {
    if (this.#waitingBytes + bytes > MAX_WAITING_BYTES)
      throw new LogBusy(`${this.#waitingBytes} bytes wait for the brokers`);
    this.#waitingBytes += bytes;
    try {
      // Waits for all records, so that no request of a failed append is still running when the caller gets the error.
      const results = await Promise.allSettled(records.map((record) => this.#enqueue(record)));
      return results.map((end, i) => {
        if (end.status === "rejected") throw end.reason;
        const { topic, partition, eventId } = records[i]!;
        return { topic, partition, eventId, offset: end.value };
      });
    } finally {
      this.#waitingBytes -= bytes;
    }
  }

  #enqueue(record: NewRecord): Promise<number> {
    return new Promise((done, failed) => {
      const name = `${record.topic}/${record.partition}`;
      const queue = this.#queues.get(name);
      if (queue) return void queue.push({ record, done, failed });
      const newQueue: WaitingRecord[] = [{ record, done, failed }];
      this.#queues.set(name, newQueue);
      const running = this.#sendQueue(name, newQueue).finally(() => this.#running.delete(running));
      this.#running.add(running);
    });
  }

  /** Sends the waiting records, chunk after chunk, until the queue is empty. */
  async #sendQueue(name: string, queue: WaitingRecord[]): Promise<void> {
    // Waits for one turn of the event loop, so that a batch that is being enqueued is sent as one.
    await new Promise((resolve) => setImmediate(resolve));
    while (queue.length > 0) {
      const chunk = queue.splice(0, chunkLength(queue));
      try {
        const firstOffset = await this.#send(chunk);
        for (const [i, { done }] of chunk.entries()) done(firstOffset + i);
      } catch (error) {
        for (const { failed } of chunk) failed(error);
        // Later records of the queue must not overtake the failed ones, so they fail too, and their callers append again.
        for (const { failed } of queue.splice(0)) failed(error);
      }
    }
    this.#queues.delete(name);
  }

  /** Sends records of one partition in one request. @returns the offset of the first of them */
  async #send(chunk: readonly WaitingRecord[]): Promise<number> {
    const { topic, partition } = chunk[0]!.record;
    const producer = this.#producer ?? this.#connect();
    this.#producer = producer;
    try {
      const [answer, ...otherAnswers] = await (await producer).send({
        topic: topicOf(this.prefix, topic),
        acks: -1,
        timeout: ACK_TIMEOUT_MS,
        compression: CompressionTypes.ZSTD,
        messages: chunk.map(({ record }) => ({
          partition,
          key: record.key,
          value: Buffer.from(record.value.buffer, record.value.byteOffset, record.value.byteLength),
          headers: { [EVENT_ID]: record.eventId },
        })),
      });
      const firstOffset = Number(answer?.baseOffset);
      if (
        otherAnswers.length > 0 ||
        answer?.errorCode !== 0 ||
        answer.partition !== partition ||
        !Number.isSafeInteger(firstOffset)
      ) {
        throw new Error(`the broker's answer names no offset of ${topic}/${partition}`);
      }
      return firstOffset;
    } catch (error) {
      // A new producer is used next, since the connections of this one may hold answers to failed requests.
      if (this.#producer === producer) this.#producer = null;
      void producer.then((one) => one.disconnect()).catch(() => undefined);
      throw new LogDown(`appending to ${topic}/${partition}`, error);
    }
  }

  async #connect(): Promise<Producer> {
    const producer = this.kafka.producer({ idempotent: false, allowAutoTopicCreation: false, maxInFlightRequests: 8 });
    await producer.connect();
    return producer;
  }

  /** Waits for running requests, then disconnects. */
  async close(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
    const producer = this.#producer;
    this.#producer = null;
    await producer?.then((one) => one.disconnect()).catch(() => undefined);
  }
}

/** Returns how many of the waiting records the next request takes. */
function chunkLength(queue: readonly WaitingRecord[]): number {
  let byteCount = 0;
  let n = 0;
  for (const { record } of queue) {
    byteCount += record.value.byteLength;
    if (n === CHUNK_RECORDS || (n > 0 && byteCount > CHUNK_BYTES)) break;
    n++;
  }
  return n;
}
