import { BoundedMap } from "../../infra/bounded-map.ts";
import { systemClock } from "../../infra/clock.ts";
import { type Log, OffsetGone } from "../../infra/log/log.ts";
import type { BodyOf } from "../record/bodies.ts";
import { readRecord } from "../record/envelope.ts";
import { partitionOf } from "../record/ids.ts";

const TOPIC = "observations.paid";
/** Intents that are remembered: more than are ever written within the six hours in which a slot can be taken twice. */
const MAX_REMEMBERED = 2_000_000;
/** Longest wait for our own record, real ms. */
const MAX_WAIT_MS = 30_000;

/** The log was not seen to hold an intent of ours: whether it does is not known, and nothing may leave. */
class IntentNotSeen extends Error {
  constructor(eventId: string) {
    super(`the intent ${eventId} was appended and could not be read back`);
    this.name = "IntentNotSeen";
  }
}

/**
 * Who took a slot: the first intent under its event id in its partition of the log, whatever any process believes to
 * own. Two processes that both think a host is theirs may both sign, and both append; only the first may pay. Read from
 * where the log ended at the start: what lies before is in everybody's memory before anything is called.
 */
export class FirstIntents {
  readonly #next: Map<number, number>;
  readonly #first: BoundedMap<string, string>;
  readonly #reading = new Map<number, Promise<void>>();

  private constructor(
    private readonly log: Pick<Log, "read" | "partitions">,
    next: Map<number, number>,
    max: number,
  ) {
    this.#next = next;
    this.#first = new BoundedMap(max);
  }

  /** Before memory reads the log for the first time. */
  static async open(log: Pick<Log, "read" | "bounds" | "partitions">, max = MAX_REMEMBERED): Promise<FirstIntents> {
    const next = new Map<number, number>();
    for (let partition = 0; partition < log.partitions; partition++) {
      next.set(partition, (await log.bounds(TOPIC, partition)).end);
    }
    return new FirstIntents(log, next, max);
  }

  /**
   * After our intent was appended: is it the one that counts? A copy that an unsure append made is as good as the first.
   * @throws IntentNotSeen
   */
  async won(cap: string, eventId: string, nonce: string): Promise<boolean> {
    const partition = partitionOf(cap, this.log.partitions);
    const began = systemClock.monotonic();
    while (!this.#first.has(eventId)) {
      if (systemClock.monotonic() - began > MAX_WAIT_MS) throw new IntentNotSeen(eventId);
      await this.#readOn(partition);
    }
    return this.#first.get(eventId) === nonce;
  }

  /** One reader a partition at a time: who comes meanwhile waits for it and looks again. */
  #readOn(partition: number): Promise<void> {
    const reading =
      this.#reading.get(partition) ?? this.#read(partition).finally(() => this.#reading.delete(partition));
    this.#reading.set(partition, reading);
    return reading;
  }

  async #read(partition: number): Promise<void> {
    const from = this.#next.get(partition)!;
    try {
      const records = await this.log.read(TOPIC, partition, from, { waitMs: 200 });
      for (const record of records) {
        const read = readRecord(record);
        if (!read.ok || read.envelope.type !== "paid.intent" || this.#first.has(record.eventId)) continue;
        this.#first.set(record.eventId, (read.envelope.body as BodyOf<"paid.intent">).nonce);
      }
      const last = records.at(-1);
      if (last) this.#next.set(partition, last.offset + 1);
    } catch (error) {
      if (!(error instanceof OffsetGone)) throw error;
      // Dropped by retention days after it was written: no slot of today.
      this.#next.set(partition, error.start);
    }
  }
}
