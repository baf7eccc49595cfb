import { PublishedFold } from "../published/fold.ts";
import { compareWithChain, publicationTime } from "./clocks.ts";
import { type Generation, highestGeneration, mergePositions, stage, winGeneration } from "./generation.ts";
import { type BadLeaf, type Group, sealGroups } from "./leaves.ts";
import { grow } from "./live.ts";
import {
  type CommitterOptions,
  finish,
  follow,
  type Hinted,
  type Live,
  MAX_LOST,
  recover,
  treeHeadOf,
  treeHeadText,
  writeHints,
} from "./recover.ts";
import { publishCheckpoint } from "./tree-head.ts";

/** A run that was taken whole: recorded in the generation with the root that it led to. */
export interface Taken {
  run: number;
  log: string;
  positions: Generation["positions"];
}
/** What a planner sees. Nothing else may decide what is published, since it is asked again after every lost race. */
export interface Before {
  fold: PublishedFold;
  generation: Generation | null;
  at: Date;
}
export interface Plan {
  groups: readonly Group[];
  taken?: Taken;
}
/** Asked inside the publisher's turn: nothing is published by this process until it has answered. */
export type Planner = (before: Before) => Plan | Promise<Plan>;
export interface Committed {
  /** Leaves that were published by this call. */
  leaves: number;
  /** Groups that can never be published, with the reason. */
  refused: BadLeaf[];
}

/**
 * The one place that extends the log, in the order of publication.md: stage, win the generation, tiles, checkpoint,
 * hints. After any error it forgets what it held, and the next call starts from the highest generation in the store:
 * the same as a start after a crash.
 */
export class Committer {
  #fold = new PublishedFold();
  #live: Live | null = null;
  #known = -1;
  readonly #hinted: Hinted = new Map();
  #queue: Promise<unknown> = Promise.resolve();

  constructor(private readonly options: CommitterOptions) {}

  /** What is published. Read it between calls; it changes in place. */
  get fold(): PublishedFold {
    return this.#fold;
  }

  /** What is published now, by whomever; recovers first when it has to: finishes what the highest generation began. */
  before(): Promise<Before> {
    return this.#alone(async () => {
      await this.#forgetIfBehind();
      const { generation } = await this.#current();
      return { fold: this.#fold, generation, at: this.options.clock.now() };
    });
  }

  /** Publish what `plan` wants, in one generation; `plan` is asked again, with the new state, after a lost race. */
  commit(plan: Planner): Promise<Committed> {
    return this.#alone(async () => {
      for (let lost = 0; lost < MAX_LOST; lost++) {
        const live = await this.#current();
        const at = publicationTime(this.options, live.generation);
        const { groups, taken } = await plan({ fold: this.#fold, generation: live.generation, at });
        if (groups.length === 0) return { leaves: 0, refused: [] };
        await compareWithChain(this.options, at);
        const committed = await this.#step(live, groups, taken, at);
        if (committed) return committed;
        this.options.metrics.count("touchstone_generations_lost_total");
      }
      throw new Error(`lost ${MAX_LOST} generations in a row to other publishers`);
    });
  }

  /** Sign the same head again, so that everybody sees that the log is alive. Nothing when the log is empty. */
  refresh(): Promise<void> {
    return this.#alone(async () => {
      const behind = await this.#forgetIfBehind();
      const { generation } = await this.#current();
      // Whoever won that generation has just signed its checkpoint, or we have by recovering.
      if (behind || !generation) return;
      const at = publicationTime(this.options, generation);
      await compareWithChain(this.options, at);
      const { publicStore, keys } = this.options;
      if (!(await publishCheckpoint(publicStore, treeHeadOf(this.options, generation.new), keys, at, true)))
        this.#live = null;
    });
  }

  /** Has another publisher gone on since we looked? Then the next look starts from what it left. */
  async #forgetIfBehind(): Promise<boolean> {
    if (!this.#live) return false;
    const known = this.#live.generation?.n ?? -1;
    if ((await highestGeneration(this.options.privateStore, known)) <= known) return false;
    this.#live = null;
    return true;
  }

  /**
   * Fold what others have published, and write nothing: for a publisher that waits, so that it has little left to read when
   * its turn comes. The proof that all of it goes together is asked when it goes on from there.
   */
  follow(): Promise<void> {
    return this.#alone(async () => {
      await this.#forgetIfBehind();
      if (!this.#live) await follow(this.options, this.#fold);
    });
  }

  /** One at a time; whatever throws leaves nothing in memory that the stores do not say. */
  #alone<T>(work: () => Promise<T>): Promise<T> {
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

  async #step(live: Live, groups: readonly Group[], taken: Taken | undefined, at: Date): Promise<Committed | null> {
    const { privateStore, writer, metrics } = this.options;
    const { entries, kept, refused } = await sealGroups(groups, live.tree.size, this.#fold.nextSeq, at.toISOString());
    for (const error of refused) this.options.logger.error({ err: error }, "a leaf was refused");
    metrics.count("touchstone_leaves_refused_total", {}, refused.length);
    if (entries.length === 0) return { leaves: 0, refused };
    const bytes = entries.map((entry) => entry.bytes);
    const growth = grow(live, bytes);
    const previous = live.generation;
    const generation: Generation = {
      v: 1,
      n: (previous?.n ?? -1) + 1,
      old: treeHeadText(live.tree),
      new: treeHeadText(growth.live.tree),
      staging: await stage(privateStore, bytes),
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
    if (await finish(this.options, generation, growth)) {
      for (const entry of entries) this.#fold.apply(entry.leaf, entry.bytes);
      this.#live = { ...growth.live, generation };
      await writeHints(this.options.publicStore, this.#fold, this.#hinted);
    } else {
      // Somebody finished it for us and went on: their log holds our leaves.
      this.#live = null;
    }
    this.#tell({ ...growth.live, generation });
    const told = { generation: generation.n, tree_size: growth.live.tree.size, leaves: kinds };
    this.options.logger.info(told, "leaves were published");
    return { leaves: entries.length, refused };
  }

  async #current(): Promise<Live> {
    if (!this.#live) {
      this.#live = await recover(this.options, { fold: this.#fold, hinted: this.#hinted, known: this.#known });
      this.#known = this.#live.generation?.n ?? -1;
      this.#tell(this.#live);
    }
    return this.#live;
  }

  /** How large the tree is and when it grew last, by whomever: a process that was started anew knows it too. */
  #tell({ tree, generation }: Live): void {
    const { metrics } = this.options;
    metrics.gauge("touchstone_tree_size", tree.size);
    if (generation) metrics.gauge("touchstone_publisher_last_publication_seconds", Date.parse(generation.at) / 1000);
  }
}
