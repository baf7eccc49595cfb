import { availableParallelism } from "node:os";
import type { Worker } from "node:worker_threads";
import type { Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { type Batch, refuseGone, takeBatch } from "./batch.ts";
import { beginWorker, type Job, JudgeThread, takeMade } from "./judge-thread.ts";
import type { Range } from "./judging.ts";
import { PackedCursor } from "./packed-cursor.ts";

/** More threads than the engine can load for are of no use. */
const MOST_THREADS = 4;
/** Bytes that are under way: packed ones that no thread has opened yet, and made batches that nobody has taken yet. */
const MOST_BYTES = 64 * 1024 * 1024;

/** Which threads judge; the defaults are those of this machine. */
export interface Threads {
  /** How many; none where the one that fetches and commits has no core beside it. */
  count: number;
  begin: () => Worker;
}

export const ownThreads = (): Threads => ({
  count: Math.min(MOST_THREADS, availableParallelism() - 1),
  begin: beginWorker,
});

/** A range, and who makes its batches: a thread, or we ourselves once we have come to it and no thread has. */
interface Turn {
  range: Range;
  job: Job | null;
  /** All of it was given to the thread. */
  isFed: boolean;
  isOurs: boolean;
}

/**
 * The batches of a large pass, in the order of their ranges. Threads make them, ahead of whoever takes them, as far as
 * {@link MOST_BYTES} reach; until the first thread is ready, and where one dies or cannot open what it was given, they
 * are made here. Only for logs that hand out what they keep packed.
 */
export class Supply {
  readonly #threads: JudgeThread[] = [];
  #turns: readonly Turn[] = [];
  /** Begun, and not taken to their end. */
  readonly #jobs = new Set<Job>();
  #waiting: (() => void)[] = [];
  #isStopped = false;
  /** Why nothing more can be read ahead. */
  #failure: unknown = null;
  /** Batches that threads made. */
  made = 0;
  /** Threads that made any. */
  get used(): number {
    return this.#threads.filter(({ made }) => made > 0).length;
  }

  constructor(
    private readonly log: Log,
    private readonly threads: Threads,
    private readonly logger: Logger,
  ) {}

  /**
   * @param isWanted whether a range is still to be read once its turn has come
   * @throws RecordsLost, and what the log throws
   */
  async *batches(
    ranges: readonly Range[],
    isWanted: (range: Range) => boolean,
  ): AsyncGenerator<readonly [Range, Batch], void, undefined> {
    this.#turns = ranges.map((range) => ({ range, job: null, isFed: false, isOurs: false }));
    for (let i = 0; i < this.threads.count; i++)
      this.#threads.push(new JudgeThread(this.threads.begin, () => this.#changed()));
    void this.#feed(isWanted);
    try {
      for (const turn of this.#turns) {
        if (!isWanted(turn.range)) continue;
        for await (const batch of this.#batchesOf(turn)) yield [turn.range, batch];
      }
    } finally {
      this.#isStopped = true;
      this.#changed();
      for (const { dead } of this.#threads)
        if (dead) this.logger.warn({ err: dead }, "a thread that judges records died: the pass went on without it");
      await Promise.all(this.#threads.map((thread) => thread.stop()));
    }
  }

  async *#batchesOf(turn: Turn): AsyncGenerator<Batch, void, undefined> {
    const { range } = turn;
    let { from } = range;
    await this.#until(() => turn.job !== null || turn.isOurs || this.#failure !== null || this.#ready().length === 0);
    if (!turn.job && this.#failure === null) turn.isOurs = true;
    for (;;) {
      const batch = turn.isOurs ? await takeBatch(this.log, range, { from, end: range.end }) : await this.#made(turn);
      if (!batch && turn.job?.failed && !turn.isOurs) {
        this.logger.warn({ err: turn.job.failed, ...range }, "a thread did not judge these records: judged without it");
        turn.isOurs = true;
        continue;
      }
      if (!batch) return;
      from = batch.next;
      yield batch;
      if (turn.isOurs && from >= range.end) return;
    }
  }

  /** The next batch of a thread; null when there is none any more, at the end or because it failed. */
  async #made(turn: Turn): Promise<Batch | null> {
    const { job, range } = turn;
    const isOver = () => job !== null && (job.ended || job.failed !== null);
    const isLost = () => this.#failure !== null && !turn.isFed;
    await this.#until(() => (job !== null && job.made.length > 0) || isOver() || isLost());
    const batch = job ? takeMade(job) : undefined;
    if (batch) {
      this.made++;
      this.#changed();
      return batch;
    }
    if (!isOver()) refuseGone(this.#failure, range, range.from);
    if (job) this.#jobs.delete(job);
    return null;
  }

  /** Gives range after range to the threads, as long as there are any. Never throws: whoever waits for a range does. */
  async #feed(isWanted: (range: Range) => boolean): Promise<void> {
    const cursor = new PackedCursor((...place) => this.log.packed!(...place));
    try {
      for (const turn of this.#turns) {
        await this.#until(() => this.#ready().length > 0 || this.#areDead());
        if (this.#isStopped || this.#areDead()) break;
        // Wanted again by the time that its turn has come, it is ours.
        turn.isOurs ||= !isWanted(turn.range);
        if (!turn.isOurs) await this.#feedOne(turn, cursor);
      }
    } catch (error) {
      this.#failure = error;
      this.#changed();
    } finally {
      cursor.close();
    }
  }

  async #feedOne(turn: Turn, cursor: PackedCursor): Promise<void> {
    const [thread] = this.#ready().sort((a, b) => a.waiting - b.waiting);
    const job = thread!.begin(turn.range);
    turn.job = job;
    this.#jobs.add(job);
    this.#changed();
    for await (const packed of cursor.of(turn.range)) {
      await this.#until(() => this.#bytes() < MOST_BYTES || job.failed !== null);
      if (this.#isStopped || job.failed) break;
      thread!.feed(job, packed);
    }
    thread!.end();
    turn.isFed = true;
  }

  #ready(): JudgeThread[] {
    return this.#threads.filter(({ isReady, dead }) => isReady && !dead);
  }

  #areDead(): boolean {
    return this.#threads.every(({ dead }) => dead !== null);
  }

  #bytes(): number {
    let bytes = 0;
    for (const job of this.#jobs) bytes += job.failed ? 0 : job.bytes;
    return bytes;
  }

  #changed(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }

  /** Once it is stopped nobody waits any more. */
  async #until(isSo: () => boolean): Promise<void> {
    while (!isSo() && !this.#isStopped) {
      await new Promise<void>((wake) => {
        this.#waiting.push(wake);
      });
    }
  }
}
