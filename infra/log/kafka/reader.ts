import type { Broker, Cluster, KafkaMessage } from "kafkajs";
import type { Logger } from "../../telemetry.ts";
import { LogClosed, LogDown, type LogRecord } from "../log.ts";
import { decodeBatches, EVENT_ID, unsupported } from "./record-batches.ts";
import { topicOf } from "./topics.ts";

/**
 * Bytes that one fetch brings, compressed (a batch that is larger comes whole), and bytes of values that are held. Records of
 * a larger fetch would grow old before they are read, and the garbage collector would copy them.
 */
const FETCH_BYTES = 256 * 1024;
const HELD_BYTES = 64 * 1024 * 1024;
/**
 * Most attempts at one request to a broker, since the leader of a partition may change meanwhile, and the pause after a
 * failure, ms.
 */
const TRIES = 8;
const PAUSE_MS = 250;

/** At most so much of one partition, but one record where there is one. */
export interface Portion {
  maxRecords: number;
  /** Bytes of values. */
  maxBytes: number;
  /** How long the broker may wait for a first record, ms. */
  waitMs: number;
}

/** The decoded answer to a fetch, as far as it is read here. */
interface Fetched {
  responses: { partitions: { partition: number; messages: KafkaMessage[] | Buffer }[] }[];
}

/** What kafkajs makes of one request, and how it reads the answer. Its types leave this out. */
interface Exchange {
  request: { apiVersion: number };
  response: { decode(payload: Buffer): Promise<object> };
}
interface Requests extends Broker {
  lookupRequest(apiKey: number, versions: object): (asked: object) => Exchange;
}

/**
 * Version of Fetch whose answers are read here: throttle time, error, session, topics (name, partitions: number, error,
 * three offsets, aborted transactions, preferred replica, record set). https://kafka.apache.org/protocol#The_Messages_Fetch
 */
const FETCH_VERSION = 11;

/**
 * Has a broker of kafkajs give the record batches of an answer to Fetch as bytes, in place of messages: kafkajs makes an
 * object of each message, with its numbers as decimal texts, which costs four times what `decodeBatches` does. An answer
 * that is not of one partition, or whose batches `decodeBatches` does not know, kafkajs decodes.
 * @param warn is called with why kafkajs decodes a record set
 */
export function fetchBatches(broker: Broker, warn: (why: string) => void): Broker {
  const { lookupRequest } = broker as Requests;
  const lookUp: Requests["lookupRequest"] = (apiKey, versions) => (asked) => {
    const exchange = lookupRequest(apiKey, versions)(asked);
    const { request, response } = exchange;
    const decode = async (payload: Buffer): Promise<object> => {
      const found =
        request.apiVersion === FETCH_VERSION ? batchesOf(payload) : `version ${request.apiVersion} of Fetch`;
      if (typeof found === "string") warn(found);
      if (found === null || typeof found === "string") return response.decode(payload);
      return { clientSideThrottleTime: payload.readInt32BE(0), responses: [{ partitions: [found] }] };
    };
    return { ...exchange, response: { ...response, decode } };
  };
  return Object.assign(Object.create(broker), { lookupRequest: lookUp });
}

/** The one partition of an answer. Else why it is not read here; null: it has no records, or an error. */
function batchesOf(payload: Buffer): { partition: number; errorCode: 0; messages: Buffer } | string | null {
  try {
    if (payload.readInt16BE(4) !== 0) return null;
    if (payload.readInt32BE(10) !== 1) return "an answer of several topics";
    let at = 16 + payload.readInt16BE(14); // name of the topic
    if (payload.readInt32BE(at) !== 1) return "an answer of several partitions";
    const partition = payload.readInt32BE(at + 4);
    if (payload.readInt16BE(at + 8) !== 0) return null;
    at += 10 + 3 * 8; // three offsets
    at += 4 + 16 * Math.max(0, payload.readInt32BE(at)); // aborted transactions
    const size = payload.readInt32BE(at + 4); // behind the preferred replica
    if (size <= 0) return null;
    const messages = payload.subarray(at + 8);
    if (messages.length !== size) return "an answer of another shape";
    return unsupported(messages) ?? { partition, errorCode: 0, messages };
  } catch {
    return "an answer of another shape";
  }
}

/** Records of one partition that lie ready from an offset on. */
interface Held {
  from: number;
  records: readonly LogRecord[];
  at: number;
  bytes: number;
  /** What comes behind them, under way; null when it brought nothing or failed. */
  coming: Promise<readonly LogRecord[] | null> | null;
}

const errorType = (error: unknown): string => (error as { type?: string } | null)?.type ?? "";
const sizeOf = (records: readonly LogRecord[]): number => records.reduce((sum, { value }) => sum + value.byteLength, 0);

/**
 * Reads by offset from the leaders of the partitions. What a fetch brought too much is held for the reads that follow;
 * where more must be there, it is fetched while the caller works on what he has.
 */
export class KafkaReader {
  readonly #held = new Map<string, Held>();
  #closed = false;
  #isWarned = false;

  constructor(
    private readonly cluster: Cluster,
    private readonly prefix: string,
    private readonly logger: Logger,
  ) {}

  /** Records from `from` on; null when `from` lies outside of what the partition keeps. @throws LogDown, LogClosed */
  async read(topic: string, partition: number, from: number, portion: Portion): Promise<LogRecord[] | null> {
    const name = `${topic}/${partition}`;
    const held = this.#take(name, from);
    if (held.at === held.records.length) {
      const records = (await held.coming) ?? (await this.#fetch(topic, partition, from, portion.waitMs));
      if (records === null) return null;
      Object.assign(held, { records, at: 0, bytes: sizeOf(records), coming: null });
      if (records.length > 0) held.coming = this.#ahead(topic, partition, records.at(-1)!.offset + 1);
    }
    const given: LogRecord[] = [];
    let room = portion.maxBytes;
    while (held.at < held.records.length && given.length < portion.maxRecords) {
      const record = held.records[held.at]!;
      room -= record.value.byteLength;
      if (room < 0 && given.length > 0) break;
      given.push(record);
      held.at++;
      held.from = record.offset + 1;
    }
    if (held.at < held.records.length || held.coming) this.#hold(name, held);
    return given;
  }

  /** What is held is dropped, and so is what is under way. */
  close(): void {
    this.#closed = true;
    this.#held.clear();
  }

  #take(name: string, from: number): Held {
    const held = this.#held.get(name);
    this.#held.delete(name);
    return held?.from === from ? held : { from, records: [], at: 0, bytes: 0, coming: null };
  }

  /** For the next read. What was not asked for the longest gives way: it is fetched again. */
  #hold(name: string, held: Held): void {
    if (this.#closed) return;
    this.#held.set(name, held);
    let bytes = 0;
    for (const one of this.#held.values()) bytes += one.bytes;
    for (const [other, one] of this.#held) {
      if (bytes <= HELD_BYTES || one === held) break;
      bytes -= one.bytes;
      this.#held.delete(other);
    }
  }

  /** The next fetch. A read that needs what failed tries by itself, and hears why not. */
  #ahead(topic: string, partition: number, from: number): Promise<readonly LogRecord[] | null> {
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
      // What is damaged is fetched again, as what does not come at all.
      return await this.#leading(topic, partition, async (broker) => {
        const fetching = fetchBatches(broker, (why) => this.#warn(why));
        const { responses } = (await fetching.fetch(request)) as unknown as Fetched;
        const found = responses.flatMap((one) => one.partitions).find((one) => one.partition === partition);
        const messages = found?.messages ?? [];
        if (Buffer.isBuffer(messages)) return decodeBatches(topic, partition, messages, from);
        // A batch comes whole: what lies before the offset that was asked for is not given.
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

  /** First kept and next offset, as the leader sees them now. */
  async bounds(topic: string, partition: number): Promise<{ start: number; end: number }> {
    const at = (fromBeginning: boolean) =>
      this.#retrying(topic, partition, async () => {
        const asked = { topic: topicOf(this.prefix, topic), partitions: [{ partition }], fromBeginning };
        const [found] = await this.cluster.fetchTopicsOffset([asked]);
        const offset = Number(found?.partitions[0]?.offset);
        if (!Number.isSafeInteger(offset) || offset < 0) throw new Error(`no offset of ${topic}/${partition}`);
        return offset;
      });
    // The start first: what is dropped in between makes it older than it is, never newer than the end.
    const start = await at(true);
    return { start, end: await at(false) };
  }

  #leading<T>(topic: string, partition: number, work: (broker: Broker) => Promise<T>) {
    return this.#retrying(topic, partition, async () => {
      await this.cluster.refreshMetadataIfNecessary();
      const [nodeId] = Object.keys(this.cluster.findLeaderForPartitions(topicOf(this.prefix, topic), [partition]));
      if (nodeId === undefined) throw new Error(`${topic}/${partition} has no leader now`);
      return work(await this.cluster.findBroker({ nodeId }));
    });
  }

  /** Leaders move and brokers go: what is known of them is read again before each further try. @throws LogDown */
  async #retrying<T>(topic: string, partition: number, work: () => Promise<T>): Promise<T> {
    for (let n = 1; ; n++) {
      if (this.#closed) throw new LogClosed();
      try {
        return await work();
      } catch (error) {
        if (errorType(error) === "OFFSET_OUT_OF_RANGE") throw error;
        if (n === TRIES) throw new LogDown(`reading ${topic}/${partition}`, error);
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * n));
        await this.cluster.refreshMetadata().catch(() => this.cluster.connect().catch(() => undefined));
      }
    }
  }
}

export function recordOf(topic: string, partition: number, message: KafkaMessage): LogRecord {
  const { offset, key, value, headers, timestamp } = message;
  return {
    ...{ topic, partition, offset: Number(offset), eventId: String(headers?.[EVENT_ID] ?? "") },
    ...{ key: key?.toString() ?? "", value: value ?? Buffer.alloc(0), appendedAt: new Date(Number(timestamp)) },
  };
}
