import { rm } from "node:fs/promises";
import type { Clock } from "../../infra/clock.ts";
import { Semaphore } from "../../infra/concurrency.ts";
import { isDamage } from "../../infra/lake/damage.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { Positions } from "../record/volatile.ts";
import { type Batch, takeBatch } from "./batch.ts";
import { evictPartitions, INGESTED, type Loadable, Loading, lakePositions } from "./load.ts";
import { Partition, type PartitionParts } from "./partition.ts";
import { type Compacted, collectGarbage, compactPartition, type Redriven, redrivePartition } from "./tidy.ts";

export interface IngestOptions {
  log: Log;
  privateStore: Store;
  /** Opened with `INGEST_TABLES`. */
  lake: Lake;
  clock: Clock;
  logger: Logger;
  metrics: Metrics;
  /** Partitions that this process owns, of every topic (default: all of the log's). */
  partitions?: readonly number[];
  /** Hosts (with port) that are ours: their endpoints are marked and never graded. */
  ownHosts?: readonly string[];
  /** Drop records from the log once they are committed and loaded. Only where the log is ours alone (embedded). */
  truncateLog?: boolean;
  /** What left the lake for the archive; asked when partitions are loaded that were not here. */
  moved?: Moved;
}

/** Segments that were taken so far, and how many there are. */
export type RebuildProgress = (taken: number, of: number) => void;

/** Keeps rows that left the lake from coming back when it is loaded anew. */
export interface Moved {
  /** Before anything is loaded of partitions that are not here: which of their rows the archive's leaves say were moved. */
  mark(lake: Lake): Promise<void>;
}

/**
 * Log -> segments -> commit chain -> lake. Exactly once: a record is in one live segment (or its rejected file) and its
 * event id once in the lake, whatever dies in between and however many processes do this at the same time.
 */
export interface Ingest {
  /**
   * Everything that the log held when it began, into the chain and the lake. Costs one look a partition when there is
   * nothing. After a throw the next pass mends what was left half done.
   * @throws NotOurLog, RecordsLost (see `acceptGap`), DamagedChain, and what log, store and lake throw
   */
  pass(): Promise<{ positions: Positions; rows: number }>;
  /** How far the lake has loaded: {topic: {partition: next offset}}. */
  positions(): Promise<Positions>;
  /** Read what was rejected again, with the readers of today; what passes now is appended once more and ingested. */
  redrive(): Promise<Redriven>;
  /**
   * Small neighbouring segments become one, and files that nothing needs for a week are deleted.
   * @param minFiles neighbours that are worth a commit (default 8)
   */
  tidy(minFiles?: number): Promise<Compacted & { deleted: number }>;
  /**
   * A new lake, loaded from the chain alone.
   * @param progress told of each segment that is taken
   */
  rebuild(progress?: RebuildProgress): Promise<{ rows: number }>;
  /**
   * Go on with these partitions and no others. A pass that is under way discards its open batches of those that were
   * lost at once; then their rows leave the lake, and the next pass loads what was taken from its chain.
   */
  hold(partitions: readonly number[]): Promise<void>;
  /**
   * Times that rows were about to leave the lake since it was opened: partitions were revoked, or it was replaced. Whoever
   * reads in several statements asks before the first and after the last; where the two differ rows may have been missed,
   * also when the same partitions are here again.
   */
  readonly revocations: number;
  /** Write the hole between chain and log into the chain, for every partition that has one. */
  acceptGap(): Promise<{ topic: string; partition: number; first: number; next: number }[]>;
}

/** Looks at the log in one pass, for what rivals or our own lost races leave over; a bound, never reached in practice. */
const MAX_ROUNDS = 16;
/** A batch, with the partition that it was read from. */
type Owned = readonly [Partition, Batch];
const nameOf = ({ topic, partition }: { topic: string; partition: number }): string => `${topic}/${partition}`;

export function createIngest(options: IngestOptions): Ingest {
  return new Ingester(options);
}

class Ingester implements Ingest {
  readonly #options: IngestOptions;
  readonly #parts: PartitionParts;
  #held: ReadonlySet<number>;
  #partitions: readonly Partition[];
  readonly #turns = new Semaphore(1);
  revocations = 0;
  #checked = false;

  constructor(options: IngestOptions) {
    const { log, lake, privateStore, clock } = options;
    this.#parts = { log, lake, privateStore, clock, ownHosts: new Set(options.ownHosts ?? []) };
    const partitions = options.partitions ?? Array.from({ length: log.partitions }, (_, i) => i);
    this.#options = options;
    this.#held = new Set(partitions);
    this.#partitions = INGESTED.flatMap((topic) =>
      partitions.map((partition) => new Partition(this.#parts, topic, partition)),
    );
  }

  pass(): Promise<{ positions: Positions; rows: number }> {
    return this.#alone(async () => {
      const rows = await this.#pass();
      return { positions: await this.positions(), rows };
    });
  }

  hold(partitions: readonly number[]): Promise<void> {
    this.#held = new Set(partitions);
    return this.#alone(async () => {
      // Several changes may have come while this one waited for its turn: the newest counts.
      const held = [...this.#held].sort((a, b) => a - b);
      const { lake, log } = this.#options;
      if (this.#partitions.some(({ partition }) => !this.#held.has(partition))) this.revocations++;
      await evictPartitions(lake, held, log.partitions);
      const known = this.#byName();
      this.#partitions = INGESTED.flatMap((topic) =>
        held.map(
          (partition) => known.get(nameOf({ topic, partition })) ?? new Partition(this.#parts, topic, partition),
        ),
      );
      this.#checked = false;
    });
  }

  positions(): Promise<Positions> {
    return lakePositions(this.#options.lake);
  }

  redrive(): Promise<Redriven> {
    return this.#alone(async () => {
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

  tidy(minFiles?: number): Promise<Compacted & { deleted: number }> {
    return this.#alone(async () => {
      await this.#start();
      const { lake, privateStore, clock } = this.#options;
      const total = { before: 0, after: 0, deleted: 0 };
      for (const partition of this.#partitions) {
        const { before, after } = await compactPartition(partition, lake, minFiles);
        total.before += before;
        total.after += after;
        total.deleted += await collectGarbage(privateStore, partition.chain, clock.now());
      }
      return total;
    });
  }

  rebuild(progress: RebuildProgress = () => {}): Promise<{ rows: number }> {
    return this.#alone(async () => {
      await this.#replace(null);
      let of = 0;
      for (const partition of this.#partitions) of += (await partition.head()).live.length;
      let taken = 0;
      return { rows: await this.#start(() => progress(++taken, of)) };
    });
  }

  acceptGap(): Promise<{ topic: string; partition: number; first: number; next: number }[]> {
    return this.#alone(async () => {
      const { log, clock, logger } = this.#options;
      const accepted = [];
      for (const { topic, partition, chain } of this.#partitions) {
        const head = await chain.head();
        const { start } = await log.bounds(topic, partition);
        if (log.id !== chain.logId || start <= head.next) continue;
        const { won } = await chain.gap(head.next, start, clock.now());
        if (!won) continue;
        logger.warn({ topic, partition, first: head.next, next: start }, "records lost, gap accepted");
        accepted.push({ topic, partition, first: head.next, next: start });
      }
      this.#checked = false;
      return accepted;
    });
  }

  /** One call at a time; a lake that turns out damaged is set aside and rebuilt, and the call made once more. */
  async #alone<T>(work: () => Promise<T>): Promise<T> {
    const done = await this.#turns.take();
    try {
      return await work().catch(async (error: unknown) => {
        if (!isDamage(error)) throw error;
        this.#options.logger.error({ err: error }, "lake damaged: set aside, loading it again from the segments");
        await this.#replace((error as Error).message);
        return work();
      });
    } finally {
      done();
    }
  }

  async #pass(): Promise<number> {
    let rows = await this.#start();
    const ends = await this.#ends();
    for (let rounds = 0; rounds < MAX_ROUNDS; rounds++) {
      const due = this.#partitions.filter((partition) => !partition.inStep || ends.get(partition)! > partition.next);
      if (due.length === 0) break;
      rows += await this.#round(due, ends);
    }
    return rows;
  }

  /** First the log is checked against every chain, then the lake brought to what the chains have. */
  async #start(onSegment?: () => void): Promise<number> {
    if (!this.#checked) {
      await this.#refuseForeignLake();
      for (const partition of this.#partitions) await partition.check();
      this.#checked = true;
    }
    const { moved, lake } = this.#options;
    if (moved && (await this.#hasNewPartitions())) await moved.mark(lake);
    let rows = 0;
    for (const partition of this.#partitions) if (!partition.inStep) rows += await partition.catchUp(onSegment);
    return rows;
  }

  /** Partitions that were taken, or all of a new lake. */
  async #hasNewPartitions(): Promise<boolean> {
    const rows = await this.#options.lake.all<{ topic: string; part: number }>("SELECT topic, part FROM positions");
    const known = new Set(rows.map(({ topic, part }) => nameOf({ topic, partition: part })));
    return this.#partitions.some((partition) => !known.has(nameOf(partition)));
  }

  /** A lake of another log has rows that no chain of ours vouches for. */
  async #refuseForeignLake(): Promise<void> {
    const { lake, log } = this.#options;
    const foreign = await lake.all("SELECT file FROM loaded WHERE NOT starts_with(file, $own) LIMIT 1", {
      own: `lake/${log.id}/`,
    });
    if (foreign.length > 0) await this.#replace("it was loaded from another log");
  }

  async #replace(reason: string | null): Promise<void> {
    this.revocations++;
    await this.#options.lake.replace(reason);
    for (const partition of this.#partitions) partition.inStep = false;
  }

  async #ends(): Promise<Map<Partition, number>> {
    const ends = new Map<Partition, number>();
    for (const partition of this.#partitions)
      ends.set(partition, (await this.#options.log.bounds(partition.topic, partition.partition)).end);
    return ends;
  }

  /** Batches of all due partitions: one is read and validated while the one before it is committed and loaded. */
  async #round(due: readonly Partition[], ends: ReadonlyMap<Partition, number>): Promise<number> {
    let rows = 0;
    for (const partition of due) if (!partition.inStep) rows += await partition.catchUp();
    const batches = this.#batches(due, ends);
    const loading = new Loading(this.#parts, (segments) => this.#loaded(segments));
    const take = () => {
      const coming = batches.next();
      // It is awaited later; until then a failure must not count as unhandled.
      coming.catch(() => undefined);
      return coming;
    };
    let coming = take();
    try {
      for (let taken = await coming; !taken.done; taken = await coming) {
        coming = take();
        rows += await this.#publish(...taken.value, loading);
      }
      await loading.load();
      return rows + loading.fresh;
    } catch (error) {
      // What was committed before is loaded all the same, unless a load failed.
      await loading.load().catch(() => undefined);
      throw error;
    } finally {
      const left = await coming.catch(() => null);
      if (left?.value) await rm(left.value[1].lines, { force: true });
      await loading.discard();
    }
  }

  /**
   * A batch of each partition in turn until none has more: were one read to its end first, its small last batch alone would
   * be read while a full one is loaded.
   */
  async *#batches(due: readonly Partition[], ends: ReadonlyMap<Partition, number>): AsyncGenerator<Owned, void> {
    let left = due.map((partition) => ({ partition, from: partition.next }));
    while (left.length > 0) {
      const more: typeof left = [];
      for (const { partition, from } of left) {
        if (!this.#held.has(partition.partition)) continue;
        const range = { from, end: ends.get(partition)! };
        const batch = await takeBatch(this.#options.log, partition, range, partition.path("lines"));
        if (!batch) continue;
        more.push({ partition, from: batch.next });
        yield [partition, batch];
      }
      left = more;
    }
  }

  /** What was committed from a batch waits for others to be loaded with. @returns records that were new to the lake */
  async #publish(partition: Partition, batch: Batch, loading: Loading): Promise<number> {
    if (batch.first !== partition.next || !this.#held.has(partition.partition)) {
      // A rival committed from where this batch begins: what it holds is read again from where his ended. Or the partition
      // is another's by now, who reads it.
      await rm(batch.lines, { force: true });
      return 0;
    }
    const { topic } = partition;
    const published = await partition.publish(batch);
    if (!published) {
      this.#options.metrics.count("touchstone_ingest_races_lost_total", { topic });
      return partition.catchUp();
    }
    this.#tell(partition, batch);
    await loading.add(published);
    return 0;
  }

  /** What is in the chain and in the lake may leave the log. */
  async #loaded(segments: readonly Loadable[]): Promise<void> {
    const { log, truncateLog } = this.#options;
    const known = this.#byName();
    for (const segment of segments) {
      known.get(nameOf(segment))?.loaded(segment);
      if (truncateLog) await log.truncate(segment.topic, segment.partition, segment.next);
    }
  }

  #byName(): Map<string, Partition> {
    return new Map(this.#partitions.map((partition) => [nameOf(partition), partition]));
  }

  #tell({ topic, partition }: Partition, { rows, rejected }: Batch): void {
    const { metrics, logger } = this.#options;
    metrics.count("touchstone_ingest_rows_total", { topic }, rows);
    const { records, reason } = rejected;
    if (records === 0) return;
    metrics.count("touchstone_ingest_rejected_total", { topic }, records);
    logger.warn({ topic, partition, rejected: records, reason }, "records rejected");
  }
}
