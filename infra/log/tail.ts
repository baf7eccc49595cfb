import { inTurns } from "../concurrency.ts";
import { type Log, type LogRecord, OffsetGone } from "./log.ts";

/** Longest single wait for a first record, ms: who closes a tail waits no longer than this. */
const WAIT_MS = 250;
/** Records that are applied between two turns of others: a few milliseconds. */
const APPLIED_A_TURN = 64;

/**
 * One topic of a log followed from its first kept record, for whoever folds it: every record is applied once, those of a
 * partition in order. Records that the log no longer keeps are passed over; a read that fails is the caller's to make
 * again, and goes on where it stopped.
 */
export class LogTail {
  readonly #next = new Map<number, number>();
  readonly #reading = new Map<number, Promise<unknown>>();
  #closed = false;

  constructor(
    private readonly log: Pick<Log, "read" | "bounds" | "partitions">,
    readonly topic: string,
    private readonly apply: (record: LogRecord) => void,
  ) {}

  /** Was everything up to and with this offset applied? */
  has(partition: number, offset: number): boolean {
    return (this.#next.get(partition) ?? 0) > offset;
  }

  /** Catching up ends with the read under way. */
  close(): void {
    this.#closed = true;
  }

  /** Apply all that is there, of every partition or of one. @throws what the log's reads throw */
  async catchUp(partition?: number): Promise<void> {
    if (partition !== undefined) return this.#inTurn(partition, () => this.#drain(partition));
    for (let one = 0; one < this.log.partitions; one++) await this.#inTurn(one, () => this.#drain(one));
  }

  /**
   * Wait until a record that was told of somewhere else is applied here. @returns "late" when it is not within `waitMs`
   * (real), "none" when there is no such record: no such partition, or the log ends before it
   * @throws what the log's reads throw
   */
  async reach(partition: number, offset: number, waitMs: number): Promise<"there" | "late" | "none"> {
    if (this.has(partition, offset)) return "there";
    if (partition >= this.log.partitions) return "none";
    if (offset >= (await this.log.bounds(this.topic, partition)).end) return "none";
    const deadline = performance.now() + waitMs;
    do {
      await this.#inTurn(partition, () => this.#step(partition, Math.min(WAIT_MS, waitMs)));
      if (this.has(partition, offset)) return "there";
    } while (performance.now() < deadline);
    return "late";
  }

  /** One reader of a partition at a time, or a record would be applied twice. */
  #inTurn<T>(partition: number, work: () => Promise<T>): Promise<T> {
    const turn = (this.#reading.get(partition) ?? Promise.resolve()).then(work, work);
    this.#reading.set(partition, turn);
    return turn;
  }

  async #drain(partition: number): Promise<void> {
    while (!this.#closed && (await this.#step(partition, 0)) > 0);
  }

  /** @returns how many records were applied */
  async #step(partition: number, waitMs: number): Promise<number> {
    const from = this.#next.get(partition) ?? (await this.log.bounds(this.topic, partition)).start;
    try {
      const records = await this.log.read(this.topic, partition, from, { waitMs });
      await inTurns(records, APPLIED_A_TURN, this.apply);
      this.#next.set(partition, (records.at(-1)?.offset ?? from - 1) + 1);
      return records.length;
    } catch (error) {
      if (!(error instanceof OffsetGone)) throw error;
      this.#next.set(partition, error.start);
      return 1;
    }
  }
}
