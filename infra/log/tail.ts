import { forEachYielding } from "../concurrency.ts";
import type { FoldFile, ReadTo } from "./fold-file.ts";
import { type Log, type LogRecord, OffsetGone } from "./log.ts";

/** Longest single wait for a first record, ms: who closes a tail waits no longer than this. */
const WAIT_MS = 250;
/** Records that are applied between two turns of others: a few milliseconds. */
const APPLIED_A_TURN = 64;

/**
 * Follows one topic for a fold, from the topic's first kept record or from the position in the fold's file. Each record is
 * applied once, and the records of a partition in order. Records that the log no longer keeps are skipped. If a read fails,
 * the caller reads again, and the read goes on where it stopped.
 */
export class LogTail {
  readonly #read = new Map<number, ReadTo>();
  readonly #reading = new Map<number, Promise<unknown>>();
  #closed = false;
  #begun: Promise<void> | null = null;
  /** Records since the fold was kept. */
  #applied = 0;
  #keeping: Promise<void> | null = null;

  constructor(
    private readonly log: Pick<Log, "read" | "bounds" | "partitions">,
    readonly topic: string,
    private readonly apply: (record: LogRecord) => void,
    /** Where the fold that `apply` feeds is kept now and then, and begun from. */
    private readonly file: FoldFile | null = null,
  ) {}

  /** Was everything up to and with this offset applied? */
  has(partition: number, offset: number): boolean {
    return (this.#read.get(partition)?.next ?? 0) > offset;
  }

  /** Catching up ends with the read under way. */
  close(): void {
    this.#closed = true;
  }

  /** Apply all that is there, of every partition or of one. @throws what the log's reads throw */
  async catchUp(partition?: number): Promise<void> {
    if (partition !== undefined) return this.#inTurn(partition, () => this.#drain(partition));
    for (let one = 0; one < this.log.partitions; one++) await this.#inTurn(one, () => this.#drain(one));
    if (this.file?.isDue(this.#applied)) void this.keep();
  }

  /** Keep the fold as it stands. Never rejects: one that cannot be kept is read from the log again. */
  keep(): Promise<void> {
    this.#keeping ??= this.#keep().finally(() => {
      this.#keeping = null;
    });
    return this.#keeping;
  }

  async #keep(): Promise<void> {
    if (!this.file) return;
    // Nothing is applied meanwhile: every partition's turn is ours until all was taken.
    let taken = (): void => {};
    const isTaken = new Promise<void>((resolve) => {
      taken = resolve;
    });
    const { partitions } = this.log;
    const held = Array.from({ length: partitions }, (_, one) => {
      return new Promise<void>((resolve) => {
        void this.#inTurn(one, () => {
          resolve();
          return isTaken;
        });
      });
    });
    try {
      await Promise.all(held);
      await this.#begin();
      this.#applied = 0;
      await this.file.save(this.topic, partitions, [...this.#read.values()], taken);
    } catch (error) {
      this.file.notKept(error);
    } finally {
      taken();
    }
  }

  /** Once, before anything is read. @throws what the log's reads throw */
  #begin(): Promise<void> {
    if (!this.file) return Promise.resolve();
    this.#begun ??= this.file.load(this.log, this.topic).then(
      (read) => {
        for (const one of read) this.#read.set(one.partition, one);
      },
      (error: unknown) => {
        this.#begun = null;
        throw error;
      },
    );
    return this.#begun;
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
    await this.#begin();
    const from = this.#read.get(partition)?.next ?? (await this.log.bounds(this.topic, partition)).start;
    try {
      const records = await this.log.read(this.topic, partition, from, { waitMs });
      await forEachYielding(records, APPLIED_A_TURN, this.apply);
      const last = records.at(-1);
      if (last) this.#read.set(partition, { partition, next: last.offset + 1, last: last.eventId });
      else if (!this.#read.has(partition)) this.#read.set(partition, { partition, next: from, last: null });
      this.#applied += records.length;
      return records.length;
    } catch (error) {
      if (!(error instanceof OffsetGone)) throw error;
      this.#read.set(partition, { partition, next: error.start, last: null });
      return 1;
    }
  }
}
