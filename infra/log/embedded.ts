import { type Clock, systemClock } from "../clock.ts";
import { makeFolder } from "../store/folders.ts";
import { nodeFs } from "../store/fs.ts";
import { checkBatch, checkOffset, checkPartition, readLimits } from "./check.ts";
import { BadRecord, LogClosed } from "./errors.ts";
import { GroupCommit } from "./group-commit.ts";
import type { Appended, Log, LogRecord, NewRecord, ReadOptions } from "./log.ts";
import { type LogFile, openLogFile } from "./log-file.ts";
import { type Bounds, LogRows } from "./log-rows.ts";
import { Wakeups } from "./wakeups.ts";

/** Rows that one transaction of a truncation deletes: the loop and other writers get a turn in between. */
const TRUNCATE_ROWS = 2_000;

export interface EmbeddedLogOptions {
  /** What the log consists of; one that a file has not yet is added to it. */
  topics: readonly string[];
  /** 1, 2, 4 .. 64; fixed when the log is created. */
  partitions: number;
  /** Gives `appendedAt`, the real time of the append (default: the system's clock). */
  clock?: Clock;
  /** Bound on the file in bytes (default: the disk). A full file rejects appends with LogFull. */
  maxBytes?: number;
  /** How long a write waits, blocking, while another process writes (default 5,000 ms); then LogBusy. */
  busyMs?: number;
}

/**
 * The log on one machine: one SQLite file in `dir`, made with its folders when absent. Several processes may have it
 * open. Appends commit on the event loop, in groups, each synced.
 * Errors of its calls: BadRecord, OffsetGone, LogFull, LogBusy, LogClosed.
 * @throws LogRefused when the library is too old, the file is no log of ours, or has another partition count.
 */
export async function openEmbeddedLog(dir: string, options: EmbeddedLogOptions): Promise<Log> {
  const folder = await makeFolder(nodeFs, dir);
  const file = openLogFile(`${folder}/log.sqlite`, options);
  return new EmbeddedLog(file, options, options.clock ?? systemClock);
}

class EmbeddedLog implements Log {
  readonly id: string;
  readonly topics: ReadonlySet<string>;
  readonly partitions: number;
  readonly #file: LogFile;
  readonly #rows: LogRows;
  readonly #group: GroupCommit;
  readonly #wakeups: Wakeups;
  #closed = false;

  constructor(file: LogFile, { topics, partitions }: EmbeddedLogOptions, clock: Clock) {
    this.id = file.id;
    this.topics = new Set(topics);
    this.partitions = partitions;
    this.#file = file;
    const rows = new LogRows(file);
    const wakeups = new Wakeups(() => rows.foreignVersion());
    this.#rows = rows;
    this.#wakeups = wakeups;
    this.#group = new GroupCommit((batches) => {
      const appended = rows.append(batches, clock.now().getTime());
      for (const batch of appended) wakeups.wake(batch);
      return appended;
    });
  }

  async append(records: readonly NewRecord[]): Promise<Appended[]> {
    if (this.#closed) throw new LogClosed();
    const bytes = checkBatch(this, records);
    return records.length === 0 ? [] : this.#group.add(records, bytes);
  }

  async read(topic: string, partition: number, from: number, options?: ReadOptions): Promise<LogRecord[]> {
    this.#check(topic, partition);
    checkOffset(from);
    const limits = readLimits(options);
    const deadline = performance.now() + limits.waitMs;
    for (;;) {
      if (this.#closed) throw new LogClosed();
      options?.signal?.throwIfAborted();
      const found = this.#rows.range(topic, partition, from, limits);
      const left = deadline - performance.now();
      if (found.length > 0 || left <= 0) return found;
      await this.#wakeups.wait({ topic, partition }, left, options?.signal);
    }
  }

  async bounds(topic: string, partition: number): Promise<Bounds> {
    this.#check(topic, partition);
    return this.#rows.bounds(topic, partition);
  }

  /**
   * The new start is durable first, then the rows go in steps; a crash in between leaves rows that no reader sees and
   * that the next truncation takes along. The file keeps its size: later appends fill the space.
   * @throws BadRecord when `below` lies past the end: what was never appended cannot be dropped.
   */
  async truncate(topic: string, partition: number, below: number): Promise<void> {
    this.#check(topic, partition);
    checkOffset(below);
    const { end } = this.#rows.bounds(topic, partition);
    if (below > end) throw new BadRecord(`${topic}/${partition} ends at ${end}, it has nothing up to ${below}`);
    this.#rows.raiseStart(topic, partition, below);
    while (!this.#closed && this.#rows.dropUnseen(topic, partition, TRUNCATE_ROWS) === TRUNCATE_ROWS) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#group.drained();
    this.#wakeups.end(new LogClosed());
    this.#file.db.close();
  }

  #check(topic: string, partition: number): void {
    if (this.#closed) throw new LogClosed();
    checkPartition(this, topic, partition);
  }
}
