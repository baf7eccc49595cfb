import { forEachYielding } from "../concurrency.ts";
import type { FoldFile, ReadPosition } from "./fold-file.ts";
import { type Log, type LogRecord, OffsetGone } from "./log.ts";

/** Longest wait of one read for a first record, ms. A read that runs when the tail is closed ends within this time. */
const MAX_WAIT_MS = 250;
/** Number of records that are applied before the event loop runs again. Applying them takes a few milliseconds. */
const RECORDS_AT_ONCE = 64;

/**
 * Follows one topic for a fold (a state that is made by applying all records in order), from the topic's first kept
 * record or from the position in the fold's file. Each record is applied once, and the records of a partition in
 * order. Records that the log no longer keeps are skipped. If a read fails, the caller calls again, and reading
 * continues where it stopped. If the log lost records that were applied, each read fails with OffsetPastEnd until the
 * log has grown past them again; a process that starts then reads the topic from its first record.
 */
export class LogTail {
  readonly #positions = new Map<number, ReadPosition>();
  readonly #pendingWork = new Map<number, Promise<unknown>>();
  #closed = false;
  #loading: Promise<void> | null = null;
  /** Records applied since the fold was last stored. */
  #appliedCount = 0;
  #saving: Promise<void> | null = null;

  constructor(
    private readonly log: Pick<Log, "read" | "bounds" | "partitions">,
    readonly topic: string,
    private readonly apply: (record: LogRecord) => void,
    /** File in which the fold is stored from time to time, and from which it is loaded at start; null: none. */
    private readonly file: FoldFile | null = null,
  ) {}

  /** Reports whether all records up to and including this offset were applied. */
  has(partition: number, offset: number): boolean {
    return (this.#positions.get(partition)?.next ?? 0) > offset;
  }

  /** Stops catching up after the running read. */
  close(): void {
    this.#closed = true;
  }

  /** Applies all records that the log holds now, of one partition or of all. @throws the errors of the log's reads */
  async catchUp(partition?: number): Promise<void> {
    if (partition !== undefined) return this.#runInOrder(partition, () => this.#applyAll(partition));
    for (let one = 0; one < this.log.partitions; one++) await this.#runInOrder(one, () => this.#applyAll(one));
    if (this.file?.isDue(this.#appliedCount)) void this.keep();
  }

  /** Stores the fold's current state. Never rejects: when it cannot be stored, the next start reads more of the log. */
  keep(): Promise<void> {
    this.#saving ??= this.#save().finally(() => {
      this.#saving = null;
    });
    return this.#saving;
  }

  async #save(): Promise<void> {
    if (!this.file) return;
    // Enters the queue of work of every partition and holds it, so that no record is applied until the whole state was
    // taken.
    let releaseTurns = (): void => {};
    const stateTaken = new Promise<void>((resolve) => {
      releaseTurns = resolve;
    });
    const { partitions } = this.log;
    const turns = Array.from({ length: partitions }, (_, one) => {
      return new Promise<void>((resolve) => {
        void this.#runInOrder(one, () => {
          resolve();
          return stateTaken;
        });
      });
    });
    try {
      await Promise.all(turns);
      await this.#loadOnce();
      this.#appliedCount = 0;
      await this.file.save(this.topic, partitions, [...this.#positions.values()], releaseTurns);
    } catch (error) {
      this.file.warnNotStored(error);
    } finally {
      releaseTurns();
    }
  }

  /** Loads the fold's file, once, before any record is read. @throws the errors of the log's reads */
  #loadOnce(): Promise<void> {
    if (!this.file) return Promise.resolve();
    this.#loading ??= this.file.load(this.log, this.topic).then(
      (read) => {
        for (const one of read) this.#positions.set(one.partition, one);
      },
      (error: unknown) => {
        this.#loading = null;
        throw error;
      },
    );
    return this.#loading;
  }

  /**
   * Waits until the record at this offset is applied.
   * @returns "late" when that takes longer than `waitMs` (real time); "none" when there is no such partition, or the
   * log ends before the offset
   * @throws the errors of the log's reads
   */
  async reach(partition: number, offset: number, waitMs: number): Promise<"there" | "late" | "none"> {
    if (this.has(partition, offset)) return "there";
    if (partition >= this.log.partitions) return "none";
    if (offset >= (await this.log.bounds(this.topic, partition)).end) return "none";
    const deadline = performance.now() + waitMs;
    do {
      await this.#runInOrder(partition, () => this.#applyNext(partition, Math.min(MAX_WAIT_MS, waitMs)));
      if (this.has(partition, offset)) return "there";
    } while (performance.now() < deadline);
    return "late";
  }

  /** Runs work of a partition one after the other, so that no record is applied twice. */
  #runInOrder<T>(partition: number, work: () => Promise<T>): Promise<T> {
    const turn = (this.#pendingWork.get(partition) ?? Promise.resolve()).then(work, work);
    this.#pendingWork.set(partition, turn);
    return turn;
  }

  async #applyAll(partition: number): Promise<void> {
    while (!this.#closed && (await this.#applyNext(partition, 0)) > 0);
  }

  /**
   * Reads and applies the next records, or skips those that the log no longer keeps.
   * @returns 0 when there was nothing to apply or to skip, else a larger number
   */
  async #applyNext(partition: number, waitMs: number): Promise<number> {
    await this.#loadOnce();
    const from = this.#positions.get(partition)?.next ?? (await this.log.bounds(this.topic, partition)).start;
    try {
      const records = await this.log.read(this.topic, partition, from, { waitMs });
      await forEachYielding(records, RECORDS_AT_ONCE, this.apply);
      const last = records.at(-1);
      if (last) this.#positions.set(partition, { partition, next: last.offset + 1, last: last.eventId });
      else if (!this.#positions.has(partition)) this.#positions.set(partition, { partition, next: from, last: null });
      this.#appliedCount += records.length;
      return records.length;
    } catch (error) {
      if (!(error instanceof OffsetGone)) throw error;
      this.#positions.set(partition, { partition, next: error.start, last: null });
      return 1;
    }
  }
}
