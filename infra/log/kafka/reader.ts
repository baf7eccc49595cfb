import type { Broker, Cluster, KafkaMessage } from "kafkajs";
import { systemClock } from "../../clock.ts";
import { Failure } from "../../errors.ts";
import type { Logger } from "../../telemetry.ts";
import { LogClosed, LogDown, type LogRecord, type ReadOptions } from "../log.ts";
import { errorType } from "./client.ts";
import { decodeBatches, EVENT_ID, whyUnsupported } from "./record-batches.ts";
import { topicOf } from "./topics.ts";

/**
 * Largest number of compressed bytes of one fetch; a single larger batch is returned complete. With larger fetches,
 * records would wait so long to be read that the garbage collector would copy them.
 */
const FETCH_BYTES = 256 * 1024;
/** Largest number of value bytes of buffered records. */
const MAX_BUFFERED_BYTES = 64 * 1024 * 1024;
/** Largest number of attempts at one request to a broker, since the leader of a partition may change meanwhile. */
const TRIES = 8;
/** Pause after a failed attempt, ms, times the number of attempts so far. */
const PAUSE_MS = 250;

/** The decoded answer to a fetch, with only the fields that are read here. */
interface FetchAnswer {
  responses: { partitions: { partition: number; messages: KafkaMessage[] | Buffer }[] }[];
}

/** A request as kafkajs encodes it, and the decoder of its answer. The types of kafkajs leave this out. */
interface Exchange {
  request: { apiVersion: number };
  response: { decode(payload: Buffer): Promise<object> };
}
interface Requests extends Broker {
  lookupRequest(apiKey: number, versions: object): (asked: object) => Exchange;
}

/**
 * Version of Fetch whose answers are parsed here. The fields of an answer are, in order: throttle time, error, session,
 * and topics. A topic has a name and partitions. A partition has a number, an error, three offsets, aborted
 * transactions, a preferred replica and a record set.
 * https://kafka.apache.org/protocol#The_Messages_Fetch
 */
const FETCH_VERSION = 11;

/**
 * Returns a broker of kafkajs whose answers to Fetch hold the record batches as bytes instead of messages. kafkajs
 * makes an object of each message, with its numbers as decimal texts, which takes four times as long as
 * `decodeBatches`. kafkajs still decodes an answer of several partitions, and batches that `decodeBatches` does not
 * support.
 * @param warn called with the reason when kafkajs decodes a record set
 */
export function fetchBatches(broker: Broker, warn: (why: string) => void): Broker {
  const { lookupRequest } = broker as Requests;
  const lookUp: Requests["lookupRequest"] = (apiKey, versions) => (args) => {
    const exchange = lookupRequest(apiKey, versions)(args);
    const { request, response } = exchange;
    const decode = async (payload: Buffer): Promise<object> => {
      const batches =
        request.apiVersion === FETCH_VERSION ? parseFetchAnswer(payload) : `version ${request.apiVersion} of Fetch`;
      if (typeof batches === "string") warn(batches);
      if (batches === null || typeof batches === "string") return response.decode(payload);
      return { clientSideThrottleTime: payload.readInt32BE(0), responses: [{ partitions: [batches] }] };
    };
    return { ...exchange, response: { ...response, decode } };
  };
  return Object.assign(Object.create(broker), { lookupRequest: lookUp });
}

/**
 * Returns the partition of an answer to Fetch; or the reason why the answer is not parsed here, as a text; or null if
 * it has no records, or an error.
 */
function parseFetchAnswer(payload: Buffer): { partition: number; errorCode: 0; messages: Buffer } | string | null {
  try {
    if (payload.readInt16BE(4) !== 0) return null;
    if (payload.readInt32BE(10) !== 1) return "an answer of several topics";
    let offset = 16 + payload.readInt16BE(14); // name of the topic
    if (payload.readInt32BE(offset) !== 1) return "an answer of several partitions";
    const partition = payload.readInt32BE(offset + 4);
    if (payload.readInt16BE(offset + 8) !== 0) return null;
    offset += 10 + 3 * 8; // three offsets
    offset += 4 + 16 * Math.max(0, payload.readInt32BE(offset)); // aborted transactions
    const size = payload.readInt32BE(offset + 4); // after the preferred replica
    if (size <= 0) return null;
    const messages = payload.subarray(offset + 8);
    if (messages.length !== size) return "an answer of another shape";
    return whyUnsupported(messages) ?? { partition, errorCode: 0, messages };
  } catch {
    return "an answer of another shape";
  }
}

/** Records of one partition that were fetched and not yet read. */
interface BufferedRecords {
  /** Offset of the next record to read. */
  from: number;
  records: readonly LogRecord[];
  /** Index in `records` of the next record to read. */
  at: number;
  /** Value bytes of `records`. */
  bytes: number;
  /**
   * Running fetch of the records after `records`; it resolves with null when it found nothing or failed. Null when none
   * was started.
   */
  coming: Promise<readonly LogRecord[] | null> | null;
}

const sizeOf = (records: readonly LogRecord[]): number => records.reduce((sum, { value }) => sum + value.byteLength, 0);

/**
 * Reads by offset from the leaders of the partitions. Records of a fetch beyond the requested ones are buffered for
 * later reads, and the records after them are fetched while the caller processes its result.
 */
export class KafkaReader {
  readonly #buffers = new Map<string, BufferedRecords>();
  #closed = false;
  #isWarned = false;

  constructor(
    private readonly cluster: Cluster,
    private readonly prefix: string,
    private readonly logger: Logger,
  ) {}

  /** Reads records from `from` on; null when `from` is outside the partition's offsets. @throws LogDown, LogClosed */
  async read(
    topic: string,
    partition: number,
    from: number,
    limit: Required<Omit<ReadOptions, "signal">>,
  ): Promise<LogRecord[] | null> {
    const name = `${topic}/${partition}`;
    const buffer = this.#takeBuffer(name, from);
    if (buffer.at === buffer.records.length) {
      const records = (await buffer.coming) ?? (await this.#fetch(topic, partition, from, limit.waitMs));
      if (records === null) return null;
      Object.assign(buffer, { records, at: 0, bytes: sizeOf(records), coming: null });
      if (records.length > 0) buffer.coming = this.#fetchAhead(topic, partition, records.at(-1)!.offset + 1);
    }
    const result: LogRecord[] = [];
    let bytesLeft = limit.maxBytes;
    while (buffer.at < buffer.records.length && result.length < limit.maxRecords) {
      const record = buffer.records[buffer.at]!;
      bytesLeft -= record.value.byteLength;
      if (bytesLeft < 0 && result.length > 0) break;
      result.push(record);
      buffer.at++;
      buffer.from = record.offset + 1;
    }
    if (buffer.at < buffer.records.length || buffer.coming) this.#storeBuffer(name, buffer);
    return result;
  }

  /** Drops the buffered records, and the results of running fetches. */
  close(): void {
    this.#closed = true;
    this.#buffers.clear();
  }

  #takeBuffer(name: string, from: number): BufferedRecords {
    const buffer = this.#buffers.get(name);
    this.#buffers.delete(name);
    return buffer?.from === from ? buffer : { from, records: [], at: 0, bytes: 0, coming: null };
  }

  /**
   * Stores a buffer for the next read. If all buffers together exceed the limit, those that were stored longest ago
   * are dropped.
   */
  #storeBuffer(name: string, buffer: BufferedRecords): void {
    if (this.#closed) return;
    this.#buffers.set(name, buffer);
    let byteCount = 0;
    for (const one of this.#buffers.values()) byteCount += one.bytes;
    for (const [otherName, one] of this.#buffers) {
      if (byteCount <= MAX_BUFFERED_BYTES || one === buffer) break;
      byteCount -= one.bytes;
      this.#buffers.delete(otherName);
    }
  }

  /** Fetches the next records in advance. If this fails, the read that needs them fetches again and gets the error. */
  #fetchAhead(topic: string, partition: number, from: number): Promise<readonly LogRecord[] | null> {
    return this.#fetch(topic, partition, from, 0).then(
      (records) => (records && records.length > 0 ? records : null),
      () => null,
    );
  }

  async #fetch(topic: string, partition: number, from: number, waitMs: number): Promise<LogRecord[] | null> {
    const partitions = [{ partition, fetchOffset: String(from), maxBytes: FETCH_BYTES }];
    const topics = [{ topic: topicOf(this.prefix, topic), partitions }];
    const request = { isolationLevel: 0, maxWaitTime: waitMs, minBytes: 1, maxBytes: FETCH_BYTES, topics };
    try {
      // A damaged answer is fetched again, as after a failed request.
      return await this.#withLeader(topic, partition, async (broker) => {
        const fetching = fetchBatches(broker, (why) => this.#warn(why));
        const { responses } = (await fetching.fetch(request)) as unknown as FetchAnswer;
        const found = responses.flatMap((one) => one.partitions).find((one) => one.partition === partition);
        const messages = found?.messages ?? [];
        if (Buffer.isBuffer(messages)) return decodeBatches(topic, partition, messages, from);
        // A broker sends whole batches, so the first one may begin before the requested offset.
        return messages.map((message) => recordOf(topic, partition, message)).filter(({ offset }) => offset >= from);
      });
    } catch (error) {
      if (errorType(error) === "OFFSET_OUT_OF_RANGE") return null;
      throw error;
    }
  }

  #warn(why: string): void {
    if (!this.#isWarned) this.logger.warn({ why }, "kafka: record batches are decoded by kafkajs, which is slower");
    this.#isWarned = true;
  }

  /** Returns the first kept offset and the next offset, from the leader. */
  async bounds(topic: string, partition: number): Promise<{ start: number; end: number }> {
    const offsetAt = (fromBeginning: boolean) =>
      this.#withRetries(topic, partition, async () => {
        const query = { topic: topicOf(this.prefix, topic), partitions: [{ partition }], fromBeginning };
        const [found] = await this.cluster.fetchTopicsOffset([query]);
        const offset = Number(found?.partitions[0]?.offset);
        if (!Number.isSafeInteger(offset) || offset < 0) throw new Error(`no offset of ${topic}/${partition}`);
        return offset;
      });
    // The start is read first: if records are dropped in between, it is too low, but never above the end.
    const start = await offsetAt(true);
    return { start, end: await offsetAt(false) };
  }

  #withLeader<T>(topic: string, partition: number, work: (broker: Broker) => Promise<T>) {
    return this.#withRetries(topic, partition, async () => {
      await this.cluster.refreshMetadataIfNecessary();
      const [nodeId] = Object.keys(this.cluster.findLeaderForPartitions(topicOf(this.prefix, topic), [partition]));
      if (nodeId === undefined) throw new Error(`${topic}/${partition} has no leader now`);
      return work(await this.cluster.findBroker({ nodeId }));
    });
  }

  /**
   * Repeats failed work; metadata about leaders and brokers is read again before each further attempt.
   * @throws LogDown; Failure `unreadable`, without a further attempt, for a batch that cannot be read (decodeBatches)
   */
  async #withRetries<T>(topic: string, partition: number, work: () => Promise<T>): Promise<T> {
    for (let n = 1; ; n++) {
      if (this.#closed) throw new LogClosed();
      try {
        return await work();
      } catch (error) {
        if (errorType(error) === "OFFSET_OUT_OF_RANGE") throw error;
        // Another broker would send the batch with the same bytes.
        if (error instanceof Failure && error.code === "unreadable") throw error;
        if (n === TRIES) throw new LogDown(`reading ${topic}/${partition}`, error);
        await systemClock.sleep(PAUSE_MS * n);
        await this.cluster.refreshMetadata().catch(() => this.cluster.connect().catch(() => undefined));
      }
    }
  }
}

/** Converts a message that kafkajs decoded to a record of the log. */
export function recordOf(topic: string, partition: number, message: KafkaMessage): LogRecord {
  const { offset, key, value, headers, timestamp } = message;
  return {
    ...{ topic, partition, offset: Number(offset), eventId: String(headers?.[EVENT_ID] ?? "") },
    ...{ key: key?.toString() ?? "", value: value ?? Buffer.alloc(0), appendedAt: new Date(Number(timestamp)) },
  };
}
