import type Cluster from "kafkajs/src/cluster/index.js";
import { LogDown } from "../errors.ts";
import type { LogRecord } from "../log.ts";
import { topicOf } from "./topics.ts";

/** Bytes that one fetch brings (a batch that is larger comes whole), and what a reader keeps of it for the next read. */
const FETCH_BYTES = 8 * 1024 * 1024;
const KEPT_BYTES = 64 * 1024 * 1024;
/** Tries of one fetch while leaders move, and the pause between them, ms. */
const TRIES = 8;
const PAUSE_MS = 250;

/** Header that carries the event id. */
export const EVENT_ID = "event_id";

interface Kept {
  records: LogRecord[];
  bytes: number;
}

const errorType = (error: unknown): string => (error as { type?: string } | null)?.type ?? "";

/** Reads by offset from the leaders of the partitions. What a fetch brought too much is kept for the next read. */
export class KafkaReader {
  readonly #kept = new Map<string, Kept>();
  #keptBytes = 0;

  constructor(
    private readonly cluster: Cluster,
    private readonly prefix: string,
  ) {}

  /** Records from `from` on, any number; null when `from` lies outside of what the partition keeps. */
  async fetch(topic: string, partition: number, from: number, waitMs: number): Promise<LogRecord[] | null> {
    const kept = this.#takeKept(topic, partition, from);
    if (kept) return kept;
    try {
      return await this.#leading(topic, partition, async (broker) => {
        const { responses } = await broker.fetch({
          isolationLevel: 0,
          maxWaitTime: waitMs,
          minBytes: 1,
          maxBytes: FETCH_BYTES,
          topics: [
            {
              topic: topicOf(this.prefix, topic),
              partitions: [{ partition, fetchOffset: String(from), maxBytes: FETCH_BYTES }],
            },
          ],
        });
        const messages = responses.flatMap(({ partitions }) => partitions.flatMap((one) => one.messages));
        // A batch comes whole: what lies before the offset is not ours to give.
        return messages.flatMap((message) => {
          const offset = Number(message.offset);
          if (offset < from || message.isControlRecord) return [];
          return [
            {
              topic,
              partition,
              offset,
              eventId: message.headers[EVENT_ID]?.toString() ?? "",
              key: message.key?.toString("utf8") ?? "",
              value: message.value ?? new Uint8Array(),
              appendedAt: new Date(Number(message.timestamp)),
            },
          ];
        });
      });
    } catch (error) {
      if (errorType(error) === "OFFSET_OUT_OF_RANGE") return null;
      throw error;
    }
  }

  /** Keep what a read did not want, for the one that comes next. */
  keep(topic: string, partition: number, records: LogRecord[]): void {
    const bytes = records.reduce((sum, { value }) => sum + value.byteLength + 200, 0);
    if (records.length === 0 || this.#keptBytes + bytes > KEPT_BYTES) return;
    this.#kept.set(`${topic}/${partition}`, { records, bytes });
    this.#keptBytes += bytes;
  }

  #takeKept(topic: string, partition: number, from: number): LogRecord[] | null {
    const place = `${topic}/${partition}`;
    const kept = this.#kept.get(place);
    if (!kept) return null;
    this.#kept.delete(place);
    this.#keptBytes -= kept.bytes;
    return kept.records[0]!.offset === from ? kept.records : null;
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

  #leading<T>(
    topic: string,
    partition: number,
    work: (broker: Awaited<ReturnType<Cluster["findBroker"]>>) => Promise<T>,
  ) {
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
