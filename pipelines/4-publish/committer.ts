import { PublishedFold } from "../published/fold.ts";
import { compareWithChain, publicationTime } from "./clocks.ts";
import { type Generation, highestGeneration, mergePositions, stageLeaves, winGeneration } from "./generation.ts";
import { type BadLeaf, type Group, sealGroups } from "./leaves.ts";
import { growTree } from "./live.ts";
import {
  type CommitterOptions,
  encodeTreeHead,
  finishGeneration,
  followCheckpoint,
  type HintedLeaves,
  type LiveLog,
  MAX_LOST_GENERATIONS,
  recover,
  treeHeadOf,
  writeHints,
} from "./recover.ts";
import { publishCheckpoint } from "./tree-head.ts";

/** A run (one result of grading) that was taken whole. The generation records it with the root that it led to. */
export interface TakenRun {
  run: number;
  log: string;
  positions: Generation["positions"];
}
/**
 * The published state that a planner decides on. A planner may use nothing else, since it is called again after a lost
 * race.
 */
export interface PublishedState {
  fold: PublishedFold;
  generation: Generation | null;
  at: Date;
}
export interface Plan {
  groups: readonly Group[];
  taken?: TakenRun;
}
/** Decides which leaves to publish. This process publishes nothing else until the planner has returned. */
export type Planner = (before: PublishedState) => Plan | Promise<Plan>;
export interface CommitResult {
  /** Leaves that were published by this call. */
  leaves: number;
  /** Groups that can never be published, with the reason. */
  refused: BadLeaf[];
}

/**
 * The only code that extends the log, in the order of publication.md: stage the leaves, win the generation, write
 * tiles, checkpoint and hints. After any error it drops its state in memory, and the next call starts from the highest
 * generation in the store, as after a crash.
 */
export class Committer {
  #fold = new PublishedFold();
  #liveLog: LiveLog | null = null;
  #knownGeneration = -1;
  readonly #hintedLeaves: HintedLeaves = new Map();
  #queue: Promise<unknown> = Promise.resolve();

  constructor(private readonly options: CommitterOptions) {}

  /** The state of everything published. Read it between calls; it changes in place. */
  get fold(): PublishedFold {
    return this.#fold;
  }

  /** Reads the state that all publishers have published. If the highest generation is unfinished, finishes it first. */
  readState(): Promise<PublishedState> {
    return this.#runExclusive(async () => {
      await this.#forgetIfBehind();
      const { generation } = await this.#loadState();
      return { fold: this.#fold, generation, at: this.options.clock.now() };
    });
  }

  /**
   * Publishes the leaves that `plan` returns, in one generation. After a lost race `plan` is called again with the new
   * state.
   */
  commit(plan: Planner): Promise<CommitResult> {
    return this.#runExclusive(async () => {
      for (let lostRaces = 0; lostRaces < MAX_LOST_GENERATIONS; lostRaces++) {
        const liveLog = await this.#loadState();
        const publishAt = publicationTime(this.options, liveLog.generation);
        const { groups, taken } = await plan({ fold: this.#fold, generation: liveLog.generation, at: publishAt });
        if (groups.length === 0) return { leaves: 0, refused: [] };
        await compareWithChain(this.options, publishAt);
        const committed = await this.#commitGroups(liveLog, groups, taken, publishAt);
        if (committed) return committed;
        this.options.metrics.count("touchstone_generations_lost_total");
      }
      throw new Error(`lost ${MAX_LOST_GENERATIONS} generations in a row to other publishers`);
    });
  }

  /** Signs the newest head again, so that readers see that the log is alive. Does nothing for an empty log. */
  refresh(): Promise<void> {
    return this.#runExclusive(async () => {
      const wasBehind = await this.#forgetIfBehind();
      const { generation } = await this.#loadState();
      // The checkpoint is new already: the winner of that generation or our recovery has just signed it.
      if (wasBehind || !generation) return;
      const publishAt = publicationTime(this.options, generation);
      await compareWithChain(this.options, publishAt);
      const { publicStore, keys, witnesses } = this.options;
      const head = treeHeadOf(this.options, generation.new);
      if (!(await publishCheckpoint(publicStore, head, keys, publishAt, { refresh: true, witnesses })))
        this.#liveLog = null;
    });
  }

  /** Forgets the tree in memory when another publisher has extended the log since. @returns whether it has */
  async #forgetIfBehind(): Promise<boolean> {
    if (!this.#liveLog) return false;
    const knownGeneration = this.#liveLog.generation?.n ?? -1;
    if ((await highestGeneration(this.options.privateStore, knownGeneration)) <= knownGeneration) return false;
    this.#liveLog = null;
    return true;
  }

  /**
   * Folds what other publishers have published and writes nothing, so that a standby publisher has little left to read when
   * it takes over. The consistency of the tree is checked then.
   */
  follow(): Promise<void> {
    return this.#runExclusive(async () => {
      await this.#forgetIfBehind();
      if (!this.#liveLog) await followCheckpoint(this.options, this.#fold);
    });
  }

  /** Runs one piece of work at a time. After an error the state in memory is dropped and read from the stores again. */
  #runExclusive<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#queue.then(async () => {
      try {
        return await work();
      } catch (error) {
        this.#liveLog = null;
        throw error;
      }
    });
    this.#queue = turn.catch(() => undefined);
    return turn;
  }

  async #commitGroups(
    liveLog: LiveLog,
    groups: readonly Group[],
    takenRun: TakenRun | undefined,
    publishAt: Date,
  ): Promise<CommitResult | null> {
    const { privateStore, writer, metrics } = this.options;
    const { entries, kept, refused } = await sealGroups(
      groups,
      liveLog.tree.size,
      this.#fold.nextSeq,
      publishAt.toISOString(),
    );
    for (const error of refused) this.options.logger.error({ err: error }, "a leaf was refused");
    metrics.count("touchstone_leaves_refused_total", {}, refused.length);
    if (entries.length === 0) return { leaves: 0, refused };
    const bytes = entries.map((entry) => entry.bytes);
    const growth = growTree(liveLog, bytes);
    const previous = liveLog.generation;
    const generation: Generation = {
      v: 1,
      n: (previous?.n ?? -1) + 1,
      old: encodeTreeHead(liveLog.tree),
      new: encodeTreeHead(growth.live.tree),
      staging: await stageLeaves(privateStore, bytes),
      run: takenRun ? Math.max(takenRun.run, previous?.run ?? 0) : (previous?.run ?? null),
      log: takenRun?.log ?? previous?.log ?? null,
      positions: takenRun ? mergePositions(previous?.positions ?? {}, takenRun.positions) : (previous?.positions ?? {}),
      writer,
      at: publishAt.toISOString(),
    };
    if (!(await winGeneration(privateStore, generation))) {
      this.#liveLog = null;
      return null;
    }
    this.#knownGeneration = generation.n;
    const leavesByKind: Record<string, number> = {};
    for (const { kind } of kept.flat()) {
      metrics.count("touchstone_leaves_published_total", { kind });
      leavesByKind[kind] = (leavesByKind[kind] ?? 0) + 1;
    }
    if (await finishGeneration(this.options, generation, growth)) {
      for (const entry of entries) this.#fold.apply(entry.leaf, entry.bytes);
      this.#liveLog = { ...growth.live, generation };
      await writeHints(this.options.publicStore, this.#fold, this.#hintedLeaves);
    } else {
      // Another publisher has finished this generation and extended the log: our leaves are in it.
      this.#liveLog = null;
    }
    this.#setGauges({ ...growth.live, generation });
    const logFields = { generation: generation.n, tree_size: growth.live.tree.size, leaves: leavesByKind };
    this.options.logger.info(logFields, "leaves were published");
    return { leaves: entries.length, refused };
  }

  async #loadState(): Promise<LiveLog> {
    if (!this.#liveLog) {
      this.#liveLog = await recover(this.options, {
        fold: this.#fold,
        hintedLeaves: this.#hintedLeaves,
        knownGeneration: this.#knownGeneration,
      });
      this.#knownGeneration = this.#liveLog.generation?.n ?? -1;
      this.#setGauges(this.#liveLog);
    }
    return this.#liveLog;
  }

  /** Sets the gauges of tree size and last publication, also right after a start. */
  #setGauges({ tree, generation }: LiveLog): void {
    const { metrics } = this.options;
    metrics.gauge("touchstone_tree_size", tree.size);
    if (generation) metrics.gauge("touchstone_publisher_last_publication_seconds", Date.parse(generation.at) / 1000);
  }
}
