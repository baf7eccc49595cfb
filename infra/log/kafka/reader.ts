import type Cluster from "kafkajs/src/cluster/index.js";
import type { FetchBroker } from "kafkajs/src/cluster/index.js";
import { LogClosed, LogDown } from "../errors.ts";
import type { LogRecord } from "../log.ts";
import { Ahead } from "./ahead.ts";
import { fetchRaw } from "./raw-fetch.ts";
import { decodeBatch, type RawBatch, splitBatches } from "./record-batch.ts";
import { topicOf } from "./topics.ts";

/** Bytes that one fetch brings, compressed (a batch that is larger comes whole), and what a reader holds of all of them. */
const FETCH_BYTES = 4 * 1024 * 1024;
const HELD_BYTES = 64 * 1024 * 1024;
/** Tries of one fetch while leaders move, and the pause between them, ms. */
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

const errorType = (error: unknown): string => (error as { type?: string } | null)?.type ?? "";

/**
 * Reads by offset from the leaders of the partitions. What a fetch brought too much is held as it came, compressed, for
 * the reads that follow; where more must be there, it is fetched while the caller works on what he has.
 */
export class KafkaReader {
  readonly #held = new Map<string, Ahead>();
  #closed = false;

  constructor(
    private readonly cluster: Cluster,
    private readonly prefix: string,
  ) {}

  /** Records from `from` on; null when `from` lies outside of what the partition keeps. @throws LogDown, LogClosed */
  async read(topic: string, partition: number, from: number, portion: Portion): Promise<LogRecord[] | null> {
    const ahead = this.#take(`${topic}/${partition}`, from);
    const records: LogRecord[] = [];
    let room = portion.maxBytes;
    while (records.length < portion.maxRecords) {
      const record = ahead.peek();
      if (record) {
        room -= record.value.byteLength;
        if (room < 0 && records.length > 0) break;
        records.push(record);
        ahead.pass();
        continue;
      }
      const batch = ahead.batch();
      if (batch) {
        ahead.open(await this.#decoded(topic, partition, batch));
        continue;
      }
      if (records.length > 0) break;
      const batches = (await ahead.coming) ?? (await this.#fetch(topic, partition, ahead.end, portion.waitMs));
      ahead.coming = null;
      if (batches === null) return null;
      if (batches.length === 0) break;
      ahead.add(batches);
    }
    this.#hold(topic, partition, ahead);
    return records;
  }

  /**
   * Batches from the one with `from` on, as they came; the next ones are fetched while the caller works on these. Ends at
   * the end of the partition, or where `from` lies outside of what it keeps. @throws LogDown, LogClosed
   */
  async *packed(topic: string, partition: number, from: number): AsyncGenerator<RawBatch[], void, undefined> {
    let coming = this.#fetch(topic, partition, from, 0);
    for (;;) {
      const batches = await coming;
      const end = batches?.at(-1)?.next;
      if (!batches || end === undefined) return;
      coming = this.#fetch(topic, partition, end, 0);
      // Whoever wants no more never hears of it.
      coming.catch(() => undefined);
      yield batches.filter(({ next }) => next > from);
    }
  }

  /** What is held is dropped, and so is what is under way. */
  close(): void {
    this.#closed = true;
    this.#held.clear();
  }

  #take(place: string, from: number): Ahead {
    const ahead = this.#held.get(place);
    this.#held.delete(place);
    return ahead?.from === from ? ahead : new Ahead(from);
  }

  /** For the next read. What was not asked for the longest gives way: it is fetched again. */
  #hold(topic: string, partition: number, ahead: Ahead): void {
    // A fetch that came full says that more is there.
    if (!ahead.coming && ahead.fetched > FETCH_BYTES / 2 && ahead.closedBytes < FETCH_BYTES / 2) {
      ahead.coming = this.#fetch(topic, partition, ahead.end, 0).then(
        (batches) => (batches && batches.length > 0 ? batches : undefined),
        // The read that needs it tries by itself, and hears why not.
        () => undefined,
      );
    }
    if (this.#closed || (ahead.bytes === 0 && !ahead.coming)) return;
    this.#held.set(`${topic}/${partition}`, ahead);
    let held = 0;
    for (const one of this.#held.values()) held += one.bytes + (one.coming ? FETCH_BYTES : 0);
    for (const [place, one] of this.#held) {
      if (held <= HELD_BYTES || one === ahead) break;
      held -= one.bytes + (one.coming ? FETCH_BYTES : 0);
      this.#held.delete(place);
    }
  }

  async #fetch(topic: string, partition: number, from: number, waitMs: number): Promise<RawBatch[] | null> {
    const place = { topic: topicOf(this.prefix, topic), partition };
    try {
      return await this.#leading(topic, partition, async (broker) =>
        splitBatches(await fetchRaw(broker, place, { from, waitMs, maxBytes: FETCH_BYTES })),
      );
    } catch (error) {
      if (errorType(error) === "OFFSET_OUT_OF_RANGE") return null;
      throw error;
    }
  }

  /** Bytes that are not what was written are fetched again by the next read. */
  async #decoded(topic: string, partition: number, batch: RawBatch): Promise<LogRecord[]> {
    try {
      return await decodeBatch(topic, partition, batch);
    } catch (error) {
      throw new LogDown(`reading ${topic}/${partition} from ${batch.first} on`, error);
    }
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

  #leading<T>(topic: string, partition: number, work: (broker: FetchBroker) => Promise<T>) {
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
