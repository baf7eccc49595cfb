import { rm } from "node:fs/promises";
import type { Clock } from "../../infra/clock.ts";
import { isDamage } from "../../infra/lake/damage.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { Turns } from "../../infra/lake/turns.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { BATCH_ROWS, type Batch, takeBatch } from "./batch.ts";
import { type Compacted, compactPlace } from "./compact.ts";
import { giveBack } from "./give-back.ts";
import type { Range } from "./judging.ts";
import { Line, type Made } from "./line.ts";
import { INGEST_TABLES, INGESTED, lakePositions, type Positions } from "./load.ts";
import { Place } from "./place.ts";
import { type Redriven, redrivePlace } from "./redrive.ts";
import { ownThreads, Supply, type Threads } from "./supply.ts";
import { sweepChain } from "./sweep.ts";

export interface IngestOptions {
  log: Log;
  privateStore: Store;
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
  /** Threads that judge in large passes (default: one for each core but ours, four at most). */
  threads?: Threads;
}

/** Keeps rows that left the lake from coming back when it is loaded anew. */
export interface Moved {
  /** Before anything is loaded: days whose records have to wait. */
  mark(lake: Lake): Promise<void>;
  /** After everything was loaded: the archive's leaves are followed. */
  settle(lake: Lake): Promise<void>;
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
  /** A new lake, loaded from the chain alone. */
  rebuild(): Promise<{ rows: number }>;
  /**
   * Go on with these partitions and no others. A pass that is under way discards its open batches of those that were
   * lost at once; then their rows leave the lake, and the next pass loads what was taken from its chain.
   */
  hold(partitions: readonly number[]): Promise<void>;
  /** Write the hole between chain and log into the chain, for every partition that has one. */
  acceptGap(): Promise<{ topic: string; partition: number; first: number; next: number }[]>;
}

/** Looks at the log in one pass, for what rivals or our own lost races leave over; a bound, never reached in practice. */
const MAX_SWEEPS = 16;
/** Of the first batch of a large sweep: small, so that the engine has something to do soon. */
const FIRST_ROWS = BATCH_ROWS / 4;

/** A batch, and whose it is. */
type Owned = readonly [Place, Batch];

export function createIngest(options: IngestOptions): Ingest {
  return new Ingester(options);
}

class Ingester implements Ingest {
  readonly #options: IngestOptions;
  readonly #placeOf: (topic: string, partition: number) => Place;
  #held: ReadonlySet<number>;
  #places: readonly Place[];
  readonly #turns = new Turns(1);
  #checked = false;

  constructor(options: IngestOptions) {
    const { log, lake, privateStore, clock } = options;
    const parts = { log, lake, privateStore, clock, ownHosts: new Set(options.ownHosts ?? []) };
    const partitions = options.partitions ?? Array.from({ length: log.partitions }, (_, i) => i);
    this.#options = options;
    this.#placeOf = (topic, partition) => new Place(parts, topic, partition);
    this.#held = new Set(partitions);
    this.#places = INGESTED.flatMap((topic) => partitions.map((partition) => this.#placeOf(topic, partition)));
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
      await giveBack(lake, held, log.partitions);
      const known = new Map(this.#places.map((place) => [`${place.topic}/${place.partition}`, place]));
      this.#places = INGESTED.flatMap((topic) =>
        held.map((partition) => known.get(`${topic}/${partition}`) ?? this.#placeOf(topic, partition)),
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
      for (const place of this.#places) {
        const { found, left } = await redrivePlace(place, this.#options.log);
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
      for (const place of this.#places) {
        const { before, after } = await compactPlace(place, lake, minFiles);
        total.before += before;
        total.after += after;
        total.deleted += await sweepChain(privateStore, place.chain, clock.now());
      }
      return total;
    });
  }

  rebuild(): Promise<{ rows: number }> {
    return this.#alone(async () => {
      await this.#replace(null);
      return { rows: await this.#start() };
    });
  }

  acceptGap(): Promise<{ topic: string; partition: number; first: number; next: number }[]> {
    return this.#alone(async () => {
      const { log, clock, logger } = this.#options;
      const accepted = [];
      for (const { topic, partition, chain } of this.#places) {
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
    for (let sweeps = 0; sweeps < MAX_SWEEPS; sweeps++) {
      const due = this.#places.filter((place) => !place.inStep || ends.get(place)! > place.next);
      if (due.length === 0) break;
      const waiting = due.reduce((sum, place) => sum + ends.get(place)! - place.next, 0);
      // Of two full batches on, one is written while the one before it is loaded: each has its thread by that already.
      const isLarge = waiting >= 2 * BATCH_ROWS;
      const sweep = () => this.#sweep(due, ends, isLarge);
      rows += await (isLarge ? this.#options.lake.narrow(sweep) : sweep());
    }
    return rows;
  }

  /** First the log is checked against every chain, then the lake brought to what the chains have. */
  async #start(): Promise<number> {
    if (!this.#checked) {
      for (const statement of INGEST_TABLES) await this.#options.lake.run(statement);
      await this.#refuseForeignLake();
      for (const place of this.#places) await place.check();
      this.#checked = true;
    }
    const { moved, lake } = this.#options;
    const isNew = moved !== undefined && (await this.#hasNewPlaces());
    if (isNew) await moved.mark(lake);
    let rows = 0;
    for (const place of this.#places) if (!place.inStep) rows += await place.catchUp();
    if (isNew) await moved.settle(lake);
    return rows;
  }

  /** Partitions that were taken, or all of a new lake. */
  async #hasNewPlaces(): Promise<boolean> {
    const rows = await this.#options.lake.all<{ topic: string; part: number }>("SELECT topic, part FROM positions");
    const known = new Set(rows.map(({ topic, part }) => `${topic}/${part}`));
    return this.#places.some(({ topic, partition }) => !known.has(`${topic}/${partition}`));
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
    await this.#options.lake.replace(reason);
    for (const statement of INGEST_TABLES) await this.#options.lake.run(statement);
    for (const place of this.#places) place.inStep = false;
  }

  async #ends(): Promise<Map<Place, number>> {
    const ends = new Map<Place, number>();
    for (const place of this.#places)
      ends.set(place, (await this.#options.log.bounds(place.topic, place.partition)).end);
    return ends;
  }

  /** Batches of all due partitions: one is read while the one before it is committed, and one more loaded. */
  async #sweep(due: readonly Place[], ends: ReadonlyMap<Place, number>, isLarge: boolean): Promise<number> {
    let rows = 0;
    const count = (fresh: number) => {
      rows += fresh;
    };
    for (const place of due) if (!place.inStep) rows += await place.catchUp();
    const line = new Line();
    try {
      for await (const [place, batch] of isLarge ? this.#beside(due, ends) : this.#inTurn(due, ends, BATCH_ROWS)) {
        await line.add((before) => this.#settle(place, batch, before, count));
      }
    } finally {
      await line.end();
    }
    return rows;
  }

  /** @param firstRows of the first of them, while whose reading there is nothing to commit or load */
  async *#inTurn(due: readonly Place[], ends: ReadonlyMap<Place, number>, firstRows: number): AsyncGenerator<Owned> {
    let most = firstRows;
    for (const place of due) {
      if (!this.#held.has(place.partition)) continue;
      for (let from = place.next; ; ) {
        const batch = await takeBatch(this.#options.log, place, { from, end: Math.min(ends.get(place)!, from + most) });
        if (!batch) break;
        most = BATCH_ROWS;
        from = batch.next;
        yield [place, batch];
      }
    }
  }

  /** Judged on threads where the log can be opened there: then we only fetch, commit and speak with the engine. */
  async *#beside(due: readonly Place[], ends: ReadonlyMap<Place, number>): AsyncGenerator<Owned> {
    const { log, logger, metrics, threads = ownThreads() } = this.#options;
    if (!log.packed || threads.count < 1) {
      yield* this.#inTurn(due, ends, FIRST_ROWS);
      return;
    }
    const places = new Map<Range, Place>();
    for (const place of due) {
      const end = ends.get(place)!;
      for (let { next: from } = place; from < end; ) {
        const to = Math.min(end, from + (places.size === 0 ? FIRST_ROWS : BATCH_ROWS));
        places.set({ topic: place.topic, partition: place.partition, from, end: to }, place);
        from = to;
      }
    }
    const supply = new Supply(log, threads, logger);
    const isWanted = ({ partition }: Range) => this.#held.has(partition);
    for await (const [range, batch] of supply.batches([...places.keys()], isWanted)) yield [places.get(range)!, batch];
    metrics.count("touchstone_ingest_batches_judged_on_threads_total", {}, supply.made);
    metrics.gauge("touchstone_ingest_judging_threads", supply.used);
  }

  async #settle(
    place: Place,
    batch: Batch,
    before: Promise<void>,
    count: (fresh: number) => void,
  ): Promise<Made | null> {
    if (batch.first !== place.next || !this.#held.has(place.partition)) {
      // A rival committed from where this batch begins: what it holds is read again from where his ended. Or the partition
      // is another's by now, who reads it.
      return null;
    }
    const { topic } = place;
    const published = await place.publish(batch);
    if (!published) {
      this.#options.metrics.count("touchstone_ingest_races_lost_total", { topic });
      // What we published before has to be in the lake: a look at it must not take that for a rival's.
      await before;
      count(await place.catchUp());
      return null;
    }
    this.#tell(place, batch);
    return {
      drop: () => rm(published.path, { force: true }),
      finish: async () => {
        count(await place.load(published));
        const { log, truncateLog } = this.#options;
        if (truncateLog) await log.truncate(topic, place.partition, batch.next);
      },
    };
  }

  #tell({ topic, partition }: Place, { rows, rejected }: Batch): void {
    const { metrics, logger } = this.#options;
    metrics.count("touchstone_ingest_rows_total", { topic }, rows);
    const { records, reason } = rejected;
    if (records === 0) return;
    metrics.count("touchstone_ingest_rejected_total", { topic }, records);
    logger.warn({ topic, partition, rejected: records, reason }, "records rejected");
  }
}
