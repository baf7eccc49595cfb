import { existsSync } from "node:fs";
import { type Clock, systemClock } from "../clock.ts";
import { makeFolder, nodeFs } from "../store/fs.ts";
import {
  type Appended,
  BadRecord,
  checkBatch,
  checkOffset,
  checkPartition,
  type KnownLog,
  type Log,
  LogBusy,
  LogClosed,
  type LogRecord,
  MAX_BATCH,
  MAX_BATCH_BYTES,
  type NewRecord,
  NONE_KNOWN,
  type ReadOptions,
  readLimits,
  refuseNewLog,
} from "./log.ts";
import { type LogFile, type LogFileOptions, logFileIn, openLogFile } from "./log-file.ts";
import { type Bounds, LogRows } from "./log-rows.ts";

/** Rows that one transaction of a truncation deletes: the loop and other writers get a turn in between. */
const TRUNCATE_ROWS = 2_000;

/** How often a reader that waits looks for appends, whichever process they are of. */
const POLL_MS = 40;

export interface EmbeddedLogOptions {
  /** What the log consists of; one that a file has not yet is added to it. */
  topics: readonly string[];
  /** 1, 2, 4 .. 64; fixed when the log is created. */
  partitions: number;
  /** Gives `appendedAt`, the real time of the append (default: the system's clock). */
  clock?: Clock;
  /** Bound on the file in bytes (default: the disk). A full file rejects appends with Failure `storage`. */
  maxBytes?: number;
  /** How long a write waits, blocking, while another process writes (default 5,000 ms); then LogBusy. */
  busyMs?: number;
  /** What is known of the log (default: nothing, so one is made where there is none). */
  known?: KnownLog;
  /** See {@link LogFileOptions}. */
  syncFile?: LogFileOptions["syncFile"];
}

/**
 * The log on one machine: one SQLite file in `dir`, made with its folders when absent. Several processes may have it
 * open. Appends are committed in groups on the event loop and synced outside it. A record is readable only once it is
 * durable: a reader that had gone on from a record which a power cut then removed would be ahead of the log.
 * Errors of its calls: BadRecord, OffsetGone, LogBusy, LogClosed; Failure `storage` where the disk is full.
 * @throws LogRefused when the library is too old, the file is no log of ours, or has another partition count.
 */
export async function openEmbeddedLog(dir: string, options: EmbeddedLogOptions): Promise<Log> {
  const { known = NONE_KNOWN } = options;
  if (!existsSync(logFileIn(dir))) refuseNewLog(dir, known);
  const file = openLogFile(logFileIn(await makeFolder(nodeFs, dir)), { ...options, known });
  return new EmbeddedLog(file, options, options.clock ?? systemClock);
}

class EmbeddedLog implements Log {
  readonly id: string;
  readonly topics: ReadonlySet<string>;
  readonly partitions: number;
  readonly #file: LogFile;
  readonly #rows: LogRows;
  readonly #group: GroupCommit;
  /** Version of the file up to which it was synced. */
  #synced = "";
  #closed = false;

  constructor(file: LogFile, { topics, partitions }: EmbeddedLogOptions, clock: Clock) {
    this.id = file.id;
    this.topics = new Set(topics);
    this.partitions = partitions;
    this.#file = file;
    const rows = new LogRows(file);
    this.#rows = rows;
    this.#group = new GroupCommit(async (batches) => {
      const appended = rows.append(batches, clock.now().getTime());
      await this.#durable();
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
      if (found.length > 0) await this.#durable();
      const left = deadline - performance.now();
      if (found.length > 0 || left <= 0) return found;
      await systemClock.sleep(Math.min(POLL_MS, left), options?.signal);
    }
  }

  async bounds(topic: string, partition: number): Promise<Bounds> {
    this.#check(topic, partition);
    const found = this.#rows.bounds(topic, partition);
    await this.#durable();
    return found;
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
    await this.#durable();
    while (!this.#closed && this.#rows.dropUnseen(topic, partition, TRUNCATE_ROWS) === TRUNCATE_ROWS) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#group.drained();
    await this.#file.close();
  }

  /** Everything that stands in the file now is on the disk when it resolves. */
  async #durable(): Promise<void> {
    const version = this.#rows.version();
    if (version === this.#synced) return;
    await this.#file.sync();
    this.#synced = version;
  }

  #check(topic: string, partition: number): void {
    if (this.#closed) throw new LogClosed();
    checkPartition(this, topic, partition);
  }
}

/** What may wait for its commit; more is refused, so a burst cannot eat the memory. */
const MAX_QUEUED_RECORDS = 20 * MAX_BATCH;
const MAX_QUEUED_BYTES = 4 * MAX_BATCH_BYTES;

interface Waiting {
  records: readonly NewRecord[];
  bytes: number;
  resolve(appended: Appended[]): void;
  reject(error: unknown): void;
}

/**
 * Appends that arrive in the same turn of the event loop share one transaction, since the sync at its end is what costs.
 * While one is committed and synced the next ones gather, so the groups grow with the load.
 */
export class GroupCommit {
  #queue: Waiting[] = [];
  #records = 0;
  #bytes = 0;
  #scheduled = false;
  #idle: (() => void)[] = [];
  readonly #commit: (batches: (readonly NewRecord[])[]) => Promise<Appended[][]>;

  /** @param commit stores all batches durably; when it rejects, any prefix of them or nothing may have been stored. */
  constructor(commit: (batches: (readonly NewRecord[])[]) => Promise<Appended[][]>) {
    this.#commit = commit;
  }

  /** Resolves after the commit. The records must not be changed until then. @throws LogBusy when too much waits. */
  add(records: readonly NewRecord[], bytes: number): Promise<Appended[]> {
    const full = this.#records + records.length > MAX_QUEUED_RECORDS || this.#bytes + bytes > MAX_QUEUED_BYTES;
    if (full) return Promise.reject(new LogBusy(`${this.#records} records wait for their commit`));
    return new Promise((resolve, reject) => {
      this.#queue.push({ records, bytes, resolve, reject });
      this.#records += records.length;
      this.#bytes += bytes;
      this.#schedule();
    });
  }

  /** Resolves when nothing waits and nothing is being committed. */
  drained(): Promise<void> {
    if (!this.#scheduled) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idle.push(resolve);
    });
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(async () => {
      await this.#flush();
      this.#scheduled = false;
      if (this.#queue.length > 0) this.#schedule();
      else for (const resolve of this.#idle.splice(0)) resolve();
    });
  }

  async #flush(): Promise<void> {
    const group = this.#takeGroup();
    try {
      const appended = await this.#commit(group.map((waiting) => waiting.records));
      for (const [i, waiting] of group.entries()) waiting.resolve(appended[i]!);
    } catch (error) {
      for (const waiting of group) waiting.reject(error);
    }
  }

  /** At most one full batch's worth, so that no commit blocks the loop for long. */
  #takeGroup(): Waiting[] {
    let records = 0;
    let bytes = 0;
    let count = 0;
    for (const waiting of this.#queue) {
      records += waiting.records.length;
      bytes += waiting.bytes;
      if (count > 0 && (records > MAX_BATCH || bytes > MAX_BATCH_BYTES)) break;
      count++;
    }
    const group = this.#queue.splice(0, count);
    for (const waiting of group) {
      this.#records -= waiting.records.length;
      this.#bytes -= waiting.bytes;
    }
    return group;
  }
}
