import { BoundedMap } from "../../infra/bounded-map.ts";
import { systemClock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { type Log, OffsetGone } from "../../infra/log/log.ts";
import type { BodyOf } from "../record/bodies.ts";
import { readRecord } from "../record/envelope.ts";
import { partitionOf } from "../record/ids.ts";

const TOPIC = "observations.paid";
/** Most intents remembered: more than are written in the six hours in which two observers can take one slot. */
const MAX_REMEMBERED = 2_000_000;
/** Longest wait for an intent of ours to appear in the log, real ms. */
const MAX_WAIT_MS = 30_000;

/**
 * Decides between two observers that both believe a host to be theirs. Both may sign and append an intent for one slot
 * (one event id); the first in its partition of the log wins, and only its observer pays. The log is read from where it
 * ended at the start: every observer knows the older intents from memory before it calls anything.
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

  /** Call this before memory reads the log for the first time. */
  static async open(log: Pick<Log, "read" | "bounds" | "partitions">, max = MAX_REMEMBERED): Promise<FirstIntents> {
    const next = new Map<number, number>();
    for (let partition = 0; partition < log.partitions; partition++) {
      next.set(partition, (await log.bounds(TOPIC, partition)).end);
    }
    return new FirstIntents(log, next, max);
  }

  /**
   * Is our intent, which was appended, the first under its id? A copy of it that an unsure append made has its nonce,
   * and counts as ours.
   * @throws Failure
   */
  async won(cap: string, eventId: string, nonce: string): Promise<boolean> {
    const partition = partitionOf(cap, this.log.partitions);
    const began = systemClock.monotonic();
    while (!this.#first.has(eventId)) {
      if (systemClock.monotonic() - began > MAX_WAIT_MS)
        throw new Failure("failed", `the intent ${eventId} was appended and could not be read back`);
      await this.#readOn(partition);
    }
    return this.#first.get(eventId) === nonce;
  }

  /** One read of a partition at a time: a second caller waits for the read that is under way. */
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
      // Retention dropped these records days after they were written: none of them is of a slot of today.
      this.#next.set(partition, error.start);
    }
  }
}
