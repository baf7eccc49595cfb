import { rm } from "node:fs/promises";
import type { Clock } from "../../infra/clock.ts";
import { forEachSettled, Semaphore } from "../../infra/concurrency.ts";
import { Failure } from "../../infra/errors.ts";
import { isDamage } from "../../infra/lake/damage.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { Positions } from "../record/volatile.ts";
import { type Batch, takeBatch } from "./batch.ts";
import { evictPartitions, GROUP_BATCHES, INGESTED, type Loadable, lakePositions, SegmentLoader } from "./load.ts";
import { Partition, type PartitionParts } from "./partition.ts";
import { type Compacted, collectGarbage, compactPartition, type Redriven, redrivePartition } from "./tidy.ts";

export interface IngestOptions {
  log: Log;
  privateStore: Store;
  /** The lake (the database that is loaded from the segments), opened with `INGEST_TABLES`. */
  lake: Lake;
  clock: Clock;
  logger: Logger;
  metrics: Metrics;
  /** Partitions of every topic that this process owns (default: all partitions of the log). */
  partitions?: readonly number[];
  /** Hosts (with port) of our own service: their endpoints are marked and never graded. */
  ownHosts?: readonly string[];
  /**
   * Drops records from the log once they are committed and loaded. Only for a log that is embedded in this process,
   * which no other process reads.
   */
  truncateLog?: boolean;
  /** Keeps rows that were moved to the archive from coming back when the lake is loaded again. */
  moved?: {
    /**
     * Called before partitions are loaded that the lake does not have. It notes which of their rows the published
     * archive contains, so that these rows are not loaded.
     */
    mark(lake: Lake): Promise<void>;
  };
}

/**
 * Largest number of rounds of one pass. One round is enough unless another ingester commits first; then a further round
 * reads the records after that commit. This bound is never reached in practice.
 */
const MAX_ROUNDS = 16;
/** A batch, with the partition that it was read from. */
type PartitionBatch = readonly [Partition, Batch];

export type Ingest = Pick<Ingester, keyof Ingester>;

export const createIngest = (options: IngestOptions): Ingest => new Ingester(options);

/**
 * Writes records of the log to segments, commits the segments in the chain, and loads them into the lake, exactly once:
 * each record is in one live segment (or in that segment's file of rejected records), and its event id is once in the
 * lake, even if processes die in between or several run at the same time.
 */
class Ingester {
  readonly #options: IngestOptions;
  readonly #parts: PartitionParts;
  #heldPartitions: ReadonlySet<number>;
  /** Was `suspend` called after the last `hold`? */
  #isSuspended = false;
  #partitions: readonly Partition[] = [];
  readonly #turns = new Semaphore(1);
  /**
   * Number of times since the start that this process was suspended, or that rows were about to be deleted from the
   * lake, because partitions were revoked or the lake was replaced. A reader that runs several statements compares the
   * number before the first with the number after the last. If they differ, it may have missed rows, even if the lake
   * holds the same partitions again.
   */
  revocations = 0;
  /** Was the log compared with the chain of every held partition since these were last set? */
  #isLogChecked = false;

  constructor(options: IngestOptions) {
    const { log, lake, privateStore, clock } = options;
    this.#parts = { log, lake, privateStore, clock, ownHosts: new Set(options.ownHosts ?? []) };
    const partitions = options.partitions ?? Array.from({ length: log.partitions }, (_, i) => i);
    this.#options = options;
    this.#heldPartitions = new Set(partitions);
    this.#partitions = this.#partitionsOf(partitions);
  }

  /**
   * Commits and loads all records that the log held when the pass began. If there are none, it only asks the log for
   * the bounds of each partition. If it throws, the next pass completes the work that was left unfinished.
   * @returns `rows`: number of loaded records that the lake did not have before
   * @throws NotOurLog, RecordsLost (see `acceptGap`), DamagedChain, and what log, store and lake throw
   */
  pass(): Promise<{ positions: Positions; rows: number }> {
    return this.#runAlone(async () => {
      const rows = await this.#pass();
      return { positions: await this.positions(), rows };
    });
  }

  /**
   * Continues with the given partitions and no others. A running pass discards its open batches of all other
   * partitions. When it has ended, the rows of those others are deleted from the lake. The next pass loads the
   * partitions that are held anew from their chains.
   * @throws Failure `busy`, and deletes nothing, when `suspend` was called meanwhile
   */
  hold(partitions: readonly number[]): Promise<void> {
    this.#heldPartitions = new Set(partitions);
    this.#isSuspended = false;
    return this.#runAlone(async () => {
      if (this.#isSuspended) throw new Failure("busy", "this process lost contact before it held its partitions");
      // `hold` may have been called again while this call waited for its turn. The newest call's partitions are used.
      const heldPartitions = [...this.#heldPartitions].sort((a, b) => a - b);
      const { lake, log } = this.#options;
      if (this.#partitions.some(({ partition }) => !this.#heldPartitions.has(partition))) this.revocations++;
      await evictPartitions(lake, heldPartitions, log.partitions);
      this.#partitions = this.#partitionsOf(heldPartitions);
      this.#isLogChecked = false;
    });
  }

  /**
   * Stops the work on all partitions while this process does not know which ones are its own. A running pass discards
   * its open batches, and later passes do nothing. The rows stay in the lake until `hold` names the partitions, since
   * most of them may come back.
   */
  suspend(): void {
    if (this.#heldPartitions.size > 0) this.revocations++;
    this.#heldPartitions = new Set();
    this.#isSuspended = true;
  }

  /** Positions up to which the lake has loaded: {topic: {partition: next offset}}. */
  positions(): Promise<Positions> {
    return lakePositions(this.#options.lake);
  }

  /**
   * Reads rejected records again. Those that the current version accepts are appended to the log again and ingested.
   */
  redrive(): Promise<Redriven> {
    return this.#runAlone(async () => {
      await this.#start();
      const total = { found: 0, left: 0 };
      for (const partition of this.#partitions) {
        const { found, left } = await redrivePartition(partition, this.#options.log);
        total.found += found;
        total.left += left;
      }
      await this.#pass();
      return total;
    });
  }

  /**
   * Joins small neighbouring segments, and deletes files that no commit has needed for a week. A failure in one
   * partition, such as a torn segment, does not stop the other partitions.
   * @param minFiles least number of neighbouring segments that are joined (default 8)
   * @throws the first failure, after all partitions
   */
  tidy(minFiles?: number): Promise<Compacted & { deleted: number }> {
    return this.#runAlone(async () => {
      await this.#start();
      const { lake, privateStore, clock } = this.#options;
      const total = { before: 0, after: 0, deleted: 0 };
      const failures = await forEachSettled(this.#partitions, 1, async (partition) => {
        const { before, after } = await compactPartition(partition, lake, minFiles);
        total.before += before;
        total.after += after;
        total.deleted += await collectGarbage(privateStore, partition.chain, clock.now());
      });
      if (failures.length > 0) throw failures[0];
      return total;
    });
  }

  /**
   * Replaces the lake by a new one, which is loaded from the chain alone.
   * @param onProgress called after each segment with the number of segments that are loaded and the number of all
   * segments
   */
  rebuild(onProgress: (loadedCount: number, segmentCount: number) => void = () => {}): Promise<{ rows: number }> {
    return this.#runAlone(async () => {
      await this.#replace(null);
      let segmentCount = 0;
      for (const partition of this.#partitions) segmentCount += (await partition.chain.head()).live.length;
      let loadedCount = 0;
      return { rows: await this.#start(() => onProgress(++loadedCount, segmentCount)) };
    });
  }

  /**
   * Accepts that records are lost: where the log of a partition begins after the end of its commit chain, writes the
   * missing range of offsets, `first` to before `next`, into the chain as a gap. Returns the gaps.
   */
  acceptGap(): Promise<{ topic: string; partition: number; first: number; next: number }[]> {
    return this.#runAlone(async () => {
      const { log, clock, logger } = this.#options;
      const accepted = [];
      for (const { topic, partition, chain } of this.#partitions) {
        const head = await chain.head();
        const { start } = await log.bounds(topic, partition);
        if (log.id !== chain.logId || start <= head.next) continue;
        const { won } = await chain.gap(head.next, start, clock.now());
        if (!won) continue;
        const gap = { topic, partition, first: head.next, next: start };
        logger.warn(gap, "records lost, gap accepted");
        accepted.push(gap);
      }
      this.#isLogChecked = false;
      return accepted;
    });
  }

  /**
   * Runs one call at a time. If a call finds that the lake is damaged, the lake is replaced and loaded again, and the
   * call is made once more.
   */
  async #runAlone<T>(work: () => Promise<T>): Promise<T> {
    const release = await this.#turns.take();
    try {
      return await work().catch(async (error: unknown) => {
        if (!isDamage(error)) throw error;
        this.#options.logger.error({ err: error }, "lake damaged: set aside, loading it again from the segments");
        await this.#replace((error as Error).message);
        return work();
      });
    } finally {
      release();
    }
  }

  async #pass(): Promise<number> {
    if (this.#isSuspended) return 0;
    let rows = await this.#start();
    const ends = await this.#readEnds();
    for (let rounds = 0; rounds < MAX_ROUNDS; rounds++) {
      const duePartitions = this.#partitions.filter(
        (partition) => !partition.isUpToDate || ends.get(partition)! > partition.next,
      );
      if (duePartitions.length === 0) break;
      rows += await this.#options.lake.onOneThread(() => this.#runRound(duePartitions, ends));
    }
    return rows;
  }

  /** Checks the log against every chain, then loads the segments that the lake does not have. */
  async #start(onSegment?: () => void): Promise<number> {
    if (!this.#isLogChecked) {
      await this.#replaceForeignLake();
      for (const partition of this.#partitions) await partition.check();
      this.#isLogChecked = true;
    }
    const { moved, lake } = this.#options;
    if (moved && (await this.#hasNewPartitions())) await moved.mark(lake);
    let rows = 0;
    for (const partition of this.#partitions) if (!partition.isUpToDate) rows += await partition.catchUp(onSegment);
    return rows;
  }

  /** Is there a partition of which the lake has loaded nothing? */
  async #hasNewPartitions(): Promise<boolean> {
    const knownPositions = await this.positions();
    return this.#partitions.some(({ topic, partition }) => knownPositions[topic]?.[partition] === undefined);
  }

  /** Replaces a lake that was loaded from another log. */
  async #replaceForeignLake(): Promise<void> {
    const { lake, log } = this.#options;
    const foreignFiles = await lake.all("SELECT file FROM loaded WHERE NOT starts_with(file, $own) LIMIT 1", {
      own: `lake/${log.id}/`,
    });
    if (foreignFiles.length > 0) await this.#replace("it was loaded from another log");
  }

  async #replace(reason: string | null): Promise<void> {
    this.revocations++;
    await this.#options.lake.replace(reason);
    for (const partition of this.#partitions) partition.isUpToDate = false;
  }

  /** Reads the end of the log of each partition. @throws NotOurLog when it is before the end of the chain */
  async #readEnds(): Promise<Map<Partition, number>> {
    const ends = new Map<Partition, number>();
    for (const partition of this.#partitions) {
      const { end } = await this.#options.log.bounds(partition.topic, partition.partition);
      // The log lost records after the check at the start, for example because its only broker lost power.
      if (end < partition.next) await partition.check();
      ends.set(partition, end);
    }
    return ends;
  }

  /**
   * Ingests batches of these partitions. Each batch is read and validated while those before it are committed and
   * loaded.
   */
  async #runRound(duePartitions: readonly Partition[], ends: ReadonlyMap<Partition, number>): Promise<number> {
    let rows = 0;
    for (const partition of duePartitions) if (!partition.isUpToDate) rows += await partition.catchUp();
    const batches = this.#readBatches(duePartitions, ends);
    const loading = new SegmentLoader(this.#parts, (segments) => this.#noteLoaded(segments));
    const startNextBatch = () => {
      const nextBatch = batches.next();
      // The promise is awaited later. Until then a failure must not count as an unhandled rejection.
      nextBatch.catch(() => undefined);
      return nextBatch;
    };
    let nextBatch = startNextBatch();
    try {
      for (let batchResult = await nextBatch; !batchResult.done; batchResult = await nextBatch) {
        nextBatch = startNextBatch();
        rows += await this.#publishBatch(...batchResult.value, loading);
      }
      await loading.load();
      return rows + loading.newRecords;
    } catch (error) {
      // Segments that were committed before the error are loaded, unless loading was what failed.
      await loading.load().catch(() => undefined);
      throw error;
    } finally {
      const unusedBatch = await nextBatch.catch(() => null);
      if (unusedBatch?.value) await rm(unusedBatch.value[1].linesPath, { force: true });
      await loading.discard();
    }
  }

  /**
   * Yields GROUP_BATCHES batches of each partition in turn until none has more records. If each partition were read to
   * its end first, only a small last batch would be read while a full group is loaded.
   */
  async *#readBatches(
    duePartitions: readonly Partition[],
    ends: ReadonlyMap<Partition, number>,
  ): AsyncGenerator<PartitionBatch, void> {
    let remaining = duePartitions.map((partition) => ({ partition, from: partition.next }));
    while (remaining.length > 0) {
      const stillRemaining: typeof remaining = [];
      for (const { partition, from } of remaining) {
        // Records that the log lost since the last pass may have been replaced by others at the same offsets.
        if (from === partition.next) await partition.checkLastRecord();
        let [next, count] = [from, 0];
        for (; count < GROUP_BATCHES && this.#heldPartitions.has(partition.partition); count++) {
          const range = { from: next, end: ends.get(partition)! };
          const batch = await takeBatch(this.#options.log, partition, range, partition.path("lines"));
          if (!batch) break;
          next = batch.next;
          yield [partition, batch];
        }
        if (count === GROUP_BATCHES) stillRemaining.push({ partition, from: next });
      }
      remaining = stillRemaining;
    }
  }

  /**
   * Commits a batch and adds its segment to the next load. @returns number of records that were loaded because another
   * ingester committed first
   */
  async #publishBatch(partition: Partition, batch: Batch, loading: SegmentLoader): Promise<number> {
    if (batch.first !== partition.next || !this.#heldPartitions.has(partition.partition)) {
      // Another ingester committed records of this batch, and the records after that commit are read again. Or another
      // process owns the partition by now and reads it.
      await rm(batch.linesPath, { force: true });
      return 0;
    }
    const { topic } = partition;
    const published = await partition.publish(batch);
    if (!published) {
      this.#options.metrics.count("touchstone_ingest_races_lost_total", { topic });
      return partition.catchUp();
    }
    this.#reportBatch(partition, batch);
    await loading.add(published);
    return 0;
  }

  /** Notes that segments are in the lake. Their records may then be dropped from the log. */
  async #noteLoaded(segments: readonly Loadable[]): Promise<void> {
    const { log, truncateLog } = this.#options;
    for (const segment of segments) {
      this.#find(segment)?.markLoaded(segment);
      if (truncateLog) await log.truncate(segment.topic, segment.partition, segment.next);
    }
  }

  #find({ topic, partition }: Pick<Loadable, "topic" | "partition">): Partition | undefined {
    return this.#partitions.find((one) => one.topic === topic && one.partition === partition);
  }

  /** Returns these partitions of all topics. A partition that was held before keeps its state. */
  #partitionsOf(heldPartitions: readonly number[]): Partition[] {
    return INGESTED.flatMap((topic) =>
      heldPartitions.map(
        (partition) => this.#find({ topic, partition }) ?? new Partition(this.#parts, topic, partition),
      ),
    );
  }

  #reportBatch({ topic, partition }: Partition, { rows, rejected }: Batch): void {
    const { metrics, logger } = this.#options;
    metrics.count("touchstone_ingest_rows_total", { topic }, rows);
    const { records, reason } = rejected;
    if (records === 0) return;
    metrics.count("touchstone_ingest_rejected_total", { topic }, records);
    logger.warn({ topic, partition, rejected: records, reason }, "records rejected");
  }
}
