import { existsSync } from "node:fs";
import { type Clock, systemClock } from "../clock.ts";
import { makeFolder, nodeFs } from "../store/fs.ts";
import {
  type AppendedRecord,
  BadRecord,
  checkBatch,
  checkOffset,
  checkPartition,
  type KnownLog,
  type Log,
  LogBusy,
  LogClosed,
  type LogRecord,
  MAX_BATCH_BYTES,
  MAX_BATCH_RECORDS,
  type NewRecord,
  NONE_KNOWN,
  type ReadOptions,
  readLimits,
  refuseNewLog,
} from "./log.ts";
import { type LogFile, type LogFileOptions, logFileIn, openLogFile } from "./log-file.ts";
import { type Bounds, LogRows } from "./log-rows.ts";

/** Rows that one transaction of a truncation deletes. Between two transactions the event loop and other writers run. */
const TRUNCATE_ROWS = 2_000;

/** Interval at which a waiting reader looks for new records of any process, ms. */
const POLL_INTERVAL_MS = 40;

export interface EmbeddedLogOptions {
  /** Topics of the log. A topic that an existing file lacks is added to it. */
  topics: readonly string[];
  /** Number of partitions of a new log: 1, 2, 4 .. 64. An existing log keeps its own. */
  partitions: number;
  /** Source of `appendedAt`, the real time of an append (default: the system's clock). */
  clock?: Clock;
  /**
   * Largest size of the file in bytes (default: the size of the disk). A full file refuses appends with Failure
   * `storage`.
   */
  maxBytes?: number;
  /**
   * Longest time that a write blocks while another process writes (default 5,000 ms). After it the write fails with
   * LogBusy.
   */
  busyMs?: number;
  /** Facts about the log from other files. By default there are none, and a missing log is created. */
  known?: KnownLog;
  /** Syncs an open file (default: fdatasync). Tests delay it or let it fail. */
  syncFile?: LogFileOptions["syncFile"];
}

/**
 * Opens the log of one machine: an SQLite file in `dir`, which is created when absent. Several processes may open it.
 * Appends are committed in groups on the event loop and synced outside it. A record becomes readable only when it is
 * durable; otherwise a reader could go on from a record that a power cut then removes.
 * Methods throw BadRecord, OffsetGone, OffsetPastEnd, LogBusy, LogClosed, and Failure `storage` when the disk is full.
 * @throws LogRefused when the SQLite library is too old, or the file is not a log of ours
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
  readonly #groupCommit: GroupCommit;
  /** Value of `LogRows.version` before the last sync; all commits up to that version are durable. */
  #syncedVersion = "";
  #closed = false;

  constructor(file: LogFile, { topics }: EmbeddedLogOptions, clock: Clock) {
    this.id = file.id;
    this.topics = new Set(topics);
    this.partitions = file.partitions;
    this.#file = file;
    const rows = new LogRows(file);
    this.#rows = rows;
    this.#groupCommit = new GroupCommit(async (batches) => {
      const appended = rows.append(batches, clock.now().getTime());
      await this.#makeDurable();
      return appended;
    });
  }

  async append(records: readonly NewRecord[]): Promise<AppendedRecord[]> {
    if (this.#closed) throw new LogClosed();
    const byteCount = checkBatch(this, records);
    return records.length === 0 ? [] : this.#groupCommit.add(records, byteCount);
  }

  async read(topic: string, partition: number, from: number, options?: ReadOptions): Promise<LogRecord[]> {
    this.#check(topic, partition);
    checkOffset(from);
    const limits = readLimits(options);
    const deadline = performance.now() + limits.waitMs;
    for (;;) {
      if (this.#closed) throw new LogClosed();
      options?.signal?.throwIfAborted();
      const records = this.#rows.range(topic, partition, from, limits);
      if (records.length > 0) await this.#makeDurable();
      const leftMs = deadline - performance.now();
      if (records.length > 0 || leftMs <= 0) return records;
      await systemClock.sleep(Math.min(POLL_INTERVAL_MS, leftMs), options?.signal);
    }
  }

  async bounds(topic: string, partition: number): Promise<Bounds> {
    this.#check(topic, partition);
    const partitionBounds = this.#rows.bounds(topic, partition);
    await this.#makeDurable();
    return partitionBounds;
  }

  /**
   * Drops the records below `below`: makes `below` durable as the first kept offset, and then deletes the rows in
   * steps. After a crash in between, no reader sees the remaining rows, and the next truncation deletes them. The file
   * keeps its size; later appends reuse the space.
   * @throws BadRecord when `below` is past the end, since records that were never appended cannot be dropped
   */
  async truncate(topic: string, partition: number, below: number): Promise<void> {
    this.#check(topic, partition);
    checkOffset(below);
    const { end } = this.#rows.bounds(topic, partition);
    if (below > end) throw new BadRecord(`${topic}/${partition} ends at ${end}, it has nothing up to ${below}`);
    this.#rows.raiseStart(topic, partition, below);
    await this.#makeDurable();
    while (!this.#closed && this.#rows.dropUnseen(topic, partition, TRUNCATE_ROWS) === TRUNCATE_ROWS) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#groupCommit.whenIdle();
    await this.#file.close();
  }

  /** Resolves when all that the file holds now is on the disk. */
  async #makeDurable(): Promise<void> {
    const version = this.#rows.version();
    if (version === this.#syncedVersion) return;
    await this.#file.sync();
    this.#syncedVersion = version;
  }

  #check(topic: string, partition: number): void {
    if (this.#closed) throw new LogClosed();
    checkPartition(this, topic, partition);
  }
}

/**
 * Limits on records and bytes that wait for their commit. More are refused, so that a burst does not use up the memory.
 */
const MAX_QUEUED_RECORDS = 20 * MAX_BATCH_RECORDS;
const MAX_QUEUED_BYTES = 4 * MAX_BATCH_BYTES;

interface WaitingAppend {
  records: readonly NewRecord[];
  /** Sum of the value bytes of the records. */
  bytes: number;
  resolve(appended: AppendedRecord[]): void;
  reject(error: unknown): void;
}

/**
 * Groups appends that arrive in one turn of the event loop into one transaction, since the sync at its end is the
 * expensive part. While a group is committed and synced, the next one gathers, so groups grow with the load.
 */
export class GroupCommit {
  #queue: WaitingAppend[] = [];
  #waitingRecords = 0;
  #waitingBytes = 0;
  #isScheduled = false;
  #idleCallbacks: (() => void)[] = [];
  readonly #commit: (batches: (readonly NewRecord[])[]) => Promise<AppendedRecord[][]>;

  /** @param commit stores all batches durably; when it rejects, it may have stored nothing or any prefix of them */
  constructor(commit: (batches: (readonly NewRecord[])[]) => Promise<AppendedRecord[][]>) {
    this.#commit = commit;
  }

  /**
   * Adds a batch to the next commit and resolves when the batch is durable. The records must not be changed until then.
   * @throws LogBusy when too much waits
   */
  add(records: readonly NewRecord[], bytes: number): Promise<AppendedRecord[]> {
    const isFull =
      this.#waitingRecords + records.length > MAX_QUEUED_RECORDS || this.#waitingBytes + bytes > MAX_QUEUED_BYTES;
    if (isFull) return Promise.reject(new LogBusy(`${this.#waitingRecords} records wait for their commit`));
    return new Promise((resolve, reject) => {
      this.#queue.push({ records, bytes, resolve, reject });
      this.#waitingRecords += records.length;
      this.#waitingBytes += bytes;
      this.#schedule();
    });
  }

  /** Resolves when nothing waits and nothing is being committed. */
  whenIdle(): Promise<void> {
    if (!this.#isScheduled) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idleCallbacks.push(resolve);
    });
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(async () => {
      await this.#flush();
      this.#isScheduled = false;
      if (this.#queue.length > 0) this.#schedule();
      else for (const resolve of this.#idleCallbacks.splice(0)) resolve();
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

  /** Takes at most one full batch from the queue, so that no commit blocks the event loop for long. */
  #takeGroup(): WaitingAppend[] {
    let records = 0;
    let byteCount = 0;
    let count = 0;
    for (const waiting of this.#queue) {
      records += waiting.records.length;
      byteCount += waiting.bytes;
      if (count > 0 && (records > MAX_BATCH_RECORDS || byteCount > MAX_BATCH_BYTES)) break;
      count++;
    }
    const group = this.#queue.splice(0, count);
    for (const waiting of group) {
      this.#waitingRecords -= waiting.records.length;
      this.#waitingBytes -= waiting.bytes;
    }
    return group;
  }
}
