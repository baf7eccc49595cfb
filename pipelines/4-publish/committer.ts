import { PublishedFold } from "../published/fold.ts";
import { compareWithChain, publicationTime } from "./clocks.ts";
import { type Generation, highestGeneration, mergePositions, stageLeaves, winGeneration } from "./generation.ts";
import { type BadLeaf, type Group, sealGroups } from "./leaves.ts";
import { growTree } from "./live.ts";
import {
  type CommitterOptions,
  finishGeneration,
  followCheckpoint,
  type HintedLeaves,
  type Live,
  MAX_LOST_GENERATIONS,
  recover,
  treeHeadOf,
  treeHeadText,
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
  #live: Live | null = null;
  #known = -1;
  readonly #hintedLeaves: HintedLeaves = new Map();
  #queue: Promise<unknown> = Promise.resolve();

  constructor(private readonly options: CommitterOptions) {}

  /** The state of everything published. Read it between calls; it changes in place. */
  get fold(): PublishedFold {
    return this.#fold;
  }

  /** Reads the state that all publishers have published. If the highest generation is unfinished, finishes it first. */
  before(): Promise<PublishedState> {
    return this.#runExclusive(async () => {
      await this.#forgetIfBehind();
      const { generation } = await this.#current();
      return { fold: this.#fold, generation, at: this.options.clock.now() };
    });
  }

  /**
   * Publishes the leaves that `plan` returns, in one generation. After a lost race `plan` is called again with the new
   * state.
   */
  commit(plan: Planner): Promise<CommitResult> {
    return this.#runExclusive(async () => {
      for (let lost = 0; lost < MAX_LOST_GENERATIONS; lost++) {
        const live = await this.#current();
        const at = publicationTime(this.options, live.generation);
        const { groups, taken } = await plan({ fold: this.#fold, generation: live.generation, at });
        if (groups.length === 0) return { leaves: 0, refused: [] };
        await compareWithChain(this.options, at);
        const committed = await this.#commitGroups(live, groups, taken, at);
        if (committed) return committed;
        this.options.metrics.count("touchstone_generations_lost_total");
      }
      throw new Error(`lost ${MAX_LOST_GENERATIONS} generations in a row to other publishers`);
    });
  }

  /** Signs the newest head again, so that readers see that the log is alive. Does nothing for an empty log. */
  refresh(): Promise<void> {
    return this.#runExclusive(async () => {
      const behind = await this.#forgetIfBehind();
      const { generation } = await this.#current();
      // The checkpoint is new already: the winner of that generation or our recovery has just signed it.
      if (behind || !generation) return;
      const at = publicationTime(this.options, generation);
      await compareWithChain(this.options, at);
      const { publicStore, keys, witnesses } = this.options;
      const head = treeHeadOf(this.options, generation.new);
      if (!(await publishCheckpoint(publicStore, head, keys, at, { refresh: true, witnesses }))) this.#live = null;
    });
  }

  /** Forgets the tree in memory when another publisher has extended the log since. @returns whether it has */
  async #forgetIfBehind(): Promise<boolean> {
    if (!this.#live) return false;
    const known = this.#live.generation?.n ?? -1;
    if ((await highestGeneration(this.options.privateStore, known)) <= known) return false;
    this.#live = null;
    return true;
  }

  /**
   * Folds what other publishers have published and writes nothing, so that a standby publisher has little left to read when
   * it takes over. The consistency of the tree is checked then.
   */
  follow(): Promise<void> {
    return this.#runExclusive(async () => {
      await this.#forgetIfBehind();
      if (!this.#live) await followCheckpoint(this.options, this.#fold);
    });
  }

  /** Runs one piece of work at a time. After an error the state in memory is dropped and read from the stores again. */
  #runExclusive<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#queue.then(async () => {
      try {
        return await work();
      } catch (error) {
        this.#live = null;
        throw error;
      }
    });
    this.#queue = turn.catch(() => undefined);
    return turn;
  }

  async #commitGroups(
    live: Live,
    groups: readonly Group[],
    taken: TakenRun | undefined,
    at: Date,
  ): Promise<CommitResult | null> {
    const { privateStore, writer, metrics } = this.options;
    const { entries, kept, refused } = await sealGroups(groups, live.tree.size, this.#fold.nextSeq, at.toISOString());
    for (const error of refused) this.options.logger.error({ err: error }, "a leaf was refused");
    metrics.count("touchstone_leaves_refused_total", {}, refused.length);
    if (entries.length === 0) return { leaves: 0, refused };
    const bytes = entries.map((entry) => entry.bytes);
    const growth = growTree(live, bytes);
    const previous = live.generation;
    const generation: Generation = {
      v: 1,
      n: (previous?.n ?? -1) + 1,
      old: treeHeadText(live.tree),
      new: treeHeadText(growth.live.tree),
      staging: await stageLeaves(privateStore, bytes),
      run: taken ? Math.max(taken.run, previous?.run ?? 0) : (previous?.run ?? null),
      log: taken?.log ?? previous?.log ?? null,
      positions: taken ? mergePositions(previous?.positions ?? {}, taken.positions) : (previous?.positions ?? {}),
      writer,
      at: at.toISOString(),
    };
    if (!(await winGeneration(privateStore, generation))) {
      this.#live = null;
      return null;
    }
    this.#known = generation.n;
    const kinds: Record<string, number> = {};
    for (const { kind } of kept.flat()) {
      metrics.count("touchstone_leaves_published_total", { kind });
      kinds[kind] = (kinds[kind] ?? 0) + 1;
    }
    if (await finishGeneration(this.options, generation, growth)) {
      for (const entry of entries) this.#fold.apply(entry.leaf, entry.bytes);
      this.#live = { ...growth.live, generation };
      await writeHints(this.options.publicStore, this.#fold, this.#hintedLeaves);
    } else {
      // Another publisher has finished this generation and extended the log: our leaves are in it.
      this.#live = null;
    }
    this.#setGauges({ ...growth.live, generation });
    const published = { generation: generation.n, tree_size: growth.live.tree.size, leaves: kinds };
    this.options.logger.info(published, "leaves were published");
    return { leaves: entries.length, refused };
  }

  async #current(): Promise<Live> {
    if (!this.#live) {
      this.#live = await recover(this.options, { fold: this.#fold, hinted: this.#hintedLeaves, known: this.#known });
      this.#known = this.#live.generation?.n ?? -1;
      this.#setGauges(this.#live);
    }
    return this.#live;
  }

  /** Sets the gauges of tree size and last publication, also right after a start. */
  #setGauges({ tree, generation }: Live): void {
    const { metrics } = this.options;
    metrics.gauge("touchstone_tree_size", tree.size);
    if (generation) metrics.gauge("touchstone_publisher_last_publication_seconds", Date.parse(generation.at) / 1000);
  }
}
