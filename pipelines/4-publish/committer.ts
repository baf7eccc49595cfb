import { PublishedFold } from "../published/fold.ts";
import { checkAgainstChain, publicationTime } from "./clocks.ts";
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

/**
 * A run (the result of one grading) of which every line was handled. A generation (the private object that records
 * one extension of the log) stores these members beside the new root.
 */
export interface TakenRun {
  /** Number of the run. */
  run: number;
  /** Id of the event log that the run has read. */
  log: string;
  positions: Generation["positions"];
}
/**
 * All that a planner may base its decision on: everything published, the newest generation, and the time of the
 * publication. When another publisher extends the log first, the planner is called again with the new state.
 */
export interface PublishedState {
  fold: PublishedFold;
  generation: Generation | null;
  at: Date;
}
/** The leaves that a planner decided to publish: in groups, of which each is published whole or not at all. */
export interface CommitPlan {
  groups: readonly Group[];
  /** The run that is recorded as taken together with these groups. */
  taken?: TakenRun;
}
/**
 * Decides which leaves (entries of the log) to publish. This process publishes nothing else until the planner has
 * returned.
 */
export type Planner = (before: PublishedState) => CommitPlan | Promise<CommitPlan>;
export interface CommitResult {
  /** Leaves that were published by this call. */
  leaves: number;
  /** Errors of invalid drafts. The group of such a draft was left out whole and can never be published. */
  refused: BadLeaf[];
}

/**
 * The only code that extends the log, in the order of publication.md: store the new leaves in the private store, win
 * the generation (create its numbered private object before another publisher does), write tiles, checkpoint and
 * hints (unsigned objects that name the newest index and keys document). After any error it drops the tree in memory,
 * and the next call starts from the highest generation in the store, as after a crash.
 */
export class Committer {
  #fold = new PublishedFold();
  /** The log's tree in memory, with its newest generation; null when the next call has to read it from the stores. */
  #liveLog: LiveLog | null = null;
  /** Number of the newest generation that this process knows of; -1 for none. */
  #knownGeneration = -1;
  readonly #hintedLeaves: HintedLeaves = new Map();
  #queue: Promise<unknown> = Promise.resolve();

  constructor(private readonly options: CommitterOptions) {}

  /** The state computed from all published leaves. Other methods change this object, so use it only between calls. */
  get fold(): PublishedFold {
    return this.#fold;
  }

  /** Reads everything that any publisher has published. If the highest generation is unfinished, finishes it first. */
  readState(): Promise<PublishedState> {
    return this.#runExclusive(async () => {
      await this.#forgetIfBehind();
      const { generation } = await this.#loadState();
      return { fold: this.#fold, generation, at: this.options.clock.now() };
    });
  }

  /**
   * Publishes the leaves that `plan` returns, in one generation. When another publisher wins that generation, `plan`
   * is called again with the new state.
   */
  commit(plan: Planner): Promise<CommitResult> {
    return this.#runExclusive(async () => {
      for (let lostRaces = 0; lostRaces < MAX_LOST_GENERATIONS; lostRaces++) {
        const liveLog = await this.#loadState();
        const publishAt = publicationTime(this.options, liveLog.generation);
        const { groups, taken } = await plan({ fold: this.#fold, generation: liveLog.generation, at: publishAt });
        if (groups.length === 0) return { leaves: 0, refused: [] };
        await checkAgainstChain(this.options, publishAt);
        const committed = await this.#commitGroups(liveLog, groups, taken, publishAt);
        if (committed) return committed;
        this.options.metrics.count("touchstone_generations_lost_total");
      }
      throw new Error(`lost ${MAX_LOST_GENERATIONS} generations in a row to other publishers`);
    });
  }

  /**
   * Signs the newest checkpoint again with the present time, so that readers see that the log is alive. Does nothing
   * for an empty log.
   */
  refresh(): Promise<void> {
    return this.#runExclusive(async () => {
      const wasBehind = await this.#forgetIfBehind();
      const { generation } = await this.#loadState();
      // Another publisher had extended the log. Its checkpoint was signed just now, by that publisher or in #loadState.
      if (wasBehind || !generation) return;
      const publishAt = publicationTime(this.options, generation);
      await checkAgainstChain(this.options, publishAt);
      const { publicStore, keys, witnesses } = this.options;
      const head = treeHeadOf(this.options, generation.new);
      if (!(await publishCheckpoint(publicStore, head, keys, publishAt, { refresh: true, witnesses })))
        this.#liveLog = null;
    });
  }

  /**
   * Drops the tree in memory when another publisher has extended the log since it was read.
   * @returns true if it was dropped
   */
  async #forgetIfBehind(): Promise<boolean> {
    if (!this.#liveLog) return false;
    const knownGeneration = this.#liveLog.generation?.n ?? -1;
    if ((await highestGeneration(this.options.privateStore, knownGeneration)) <= knownGeneration) return false;
    this.#liveLog = null;
    return true;
  }

  /**
   * Applies the leaves that other publishers have published to the fold, and writes nothing, so that a standby
   * publisher has little left to read when it takes over. Only at the takeover is the tree checked for consistency.
   */
  follow(): Promise<void> {
    return this.#runExclusive(async () => {
      await this.#forgetIfBehind();
      if (!this.#liveLog) await followCheckpoint(this.options, this.#fold);
    });
  }

  /**
   * Runs `work` after all earlier work has ended. If it fails, drops the tree in memory; the next work reads it from
   * the stores.
   */
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
      // Another publisher has finished this generation and extended the log further. Our leaves are published.
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

  /**
   * Sets the metrics of tree size and last publication. Called after a start too, before this process has published.
   */
  #setGauges({ tree, generation }: LiveLog): void {
    const { metrics } = this.options;
    metrics.gauge("touchstone_tree_size", tree.size);
    if (generation) metrics.gauge("touchstone_publisher_last_publication_seconds", Date.parse(generation.at) / 1000);
  }
}
