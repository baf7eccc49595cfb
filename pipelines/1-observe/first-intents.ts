import { BoundedMap } from "../../infra/bounded-map.ts";
import { systemClock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { type Log, OffsetGone } from "../../infra/log/log.ts";
import type { BodyOf } from "../record/bodies.ts";
import { readRecord } from "../record/envelope.ts";
import { partitionOf } from "../record/ids.ts";

const TOPIC = "observations.paid";
/**
 * Largest number of intents (records that are written before a payment) that are remembered: more than are written in
 * the six hours in which two observers can make one call (the call of an endpoint in one block and minute).
 */
const MAX_REMEMBERED = 2_000_000;
/** Longest wait until our own intent can be read from the log, real ms. */
const MAX_WAIT_MS = 30_000;

/**
 * Decides between two observers that both believe that a host is assigned to them. Both may sign and append an intent
 * for one call, with one event id. The intent that is first in its partition of the log wins, and only its observer
 * pays. Only intents after the log's end at the start are read here, since every observer loads the older ones before
 * its first call.
 */
export class FirstIntents {
  /** Offset of the next record to read, by partition. */
  readonly #nextOffsets: Map<number, number>;
  /** Nonce of the first intent in the log, by event id. */
  readonly #firstNonces: BoundedMap<string, string>;
  readonly #runningReads = new Map<number, Promise<void>>();

  private constructor(
    private readonly log: Pick<Log, "read" | "partitions">,
    nextOffsets: Map<number, number>,
    max: number,
  ) {
    this.#nextOffsets = nextOffsets;
    this.#firstNonces = new BoundedMap(max);
  }

  /** Notes where the log ends now. Call this before the older intents are loaded, so that none is missed in between. */
  static async open(log: Pick<Log, "read" | "bounds" | "partitions">, max = MAX_REMEMBERED): Promise<FirstIntents> {
    const nextOffsets = new Map<number, number>();
    for (let partition = 0; partition < log.partitions; partition++) {
      nextOffsets.set(partition, (await log.bounds(TOPIC, partition)).end);
    }
    return new FirstIntents(log, nextOffsets, max);
  }

  /**
   * Is our appended intent the first record in the log with its event id? A first record with our nonce is ours, also
   * when a repeated append wrote two copies of it.
   * @throws Failure
   */
  async isFirst(cap: string, eventId: string, nonce: string): Promise<boolean> {
    const partition = partitionOf(cap, this.log.partitions);
    const startedAt = systemClock.monotonic();
    while (!this.#firstNonces.has(eventId)) {
      if (systemClock.monotonic() - startedAt > MAX_WAIT_MS)
        throw new Failure("failed", `the intent ${eventId} was appended and could not be read back`);
      await this.#readNext(partition);
    }
    return this.#firstNonces.get(eventId) === nonce;
  }

  /**
   * Reads the next records of a partition. Only one read of a partition runs at a time; further callers wait for it.
   */
  #readNext(partition: number): Promise<void> {
    const runningRead =
      this.#runningReads.get(partition) ?? this.#read(partition).finally(() => this.#runningReads.delete(partition));
    this.#runningReads.set(partition, runningRead);
    return runningRead;
  }

  async #read(partition: number): Promise<void> {
    const fromOffset = this.#nextOffsets.get(partition)!;
    try {
      const records = await this.log.read(TOPIC, partition, fromOffset, { waitMs: 200 });
      for (const record of records) {
        const parsed = readRecord(record);
        if (!parsed.ok || parsed.envelope.type !== "paid.intent" || this.#firstNonces.has(record.eventId)) continue;
        this.#firstNonces.set(record.eventId, (parsed.envelope.body as BodyOf<"paid.intent">).nonce);
      }
      const last = records.at(-1);
      if (last) this.#nextOffsets.set(partition, last.offset + 1);
    } catch (error) {
      if (!(error instanceof OffsetGone)) throw error;
      // The log's retention has dropped these records. They are days old, so none is for a call of today.
      this.#nextOffsets.set(partition, error.start);
    }
  }
}
