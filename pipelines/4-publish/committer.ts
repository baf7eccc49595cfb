import type { Clock } from "../../infra/clock.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { sameHash } from "../../infra/tree/hash.ts";
import type { TreeState } from "../../infra/tree/state.ts";
import type { Leaf } from "../record/leaf.ts";
import { writeTree } from "./apply.ts";
import { type ChainTime, compareWithChain, publicationTime } from "./clocks.ts";
import { PublishedFold } from "./fold.ts";
import {
  BadPrivate,
  type Generation,
  highestGeneration,
  mergePositions,
  readGeneration,
  stage,
  staged,
  winGeneration,
} from "./generation.ts";
import { type CheckpointKeys, Fork, ownTrust, publishCheckpoint } from "./head.ts";
import { type Hinted, writeHints } from "./hints.ts";
import { type BadLeaf, type Group, sealGroups } from "./leaves.ts";
import { EMPTY_LIVE, type Growth, grow, type LiveTree, loadLive } from "./live.ts";
import { RecordReader, readCheckpoint } from "./read.ts";

export interface CommitterOptions {
  privateStore: Store;
  publicStore: Store;
  keys: CheckpointKeys;
  origin: string;
  clock: Clock;
  logger: Logger;
  metrics: Metrics;
  /** Names this process in the generations it wins. */
  writer: string;
  /** Newest block of the chain we pay on; asked before each publication unless the clock lapses. */
  chainTime?: () => Promise<ChainTime | null>;
}

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

type Live = LiveTree & { generation: Generation | null };

/** Generations lost in a row before a publication gives up: others are publishing, so nothing stands still. */
const MAX_LOST = 16;

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
      if (!(await publishCheckpoint(publicStore, this.#headOf(generation.new), keys, at, true))) this.#live = null;
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
    const { entries, kept, refused } = sealGroups(groups, live.tree.size, this.#fold.nextSeq, at.toISOString());
    for (const error of refused) this.options.logger.error({ err: error }, "a leaf was refused");
    metrics.count("touchstone_leaves_refused_total", {}, refused.length);
    if (entries.length === 0) return { leaves: 0, refused };
    const growth = grow(live, entries);
    const previous = live.generation;
    const generation: Generation = {
      v: 1,
      n: (previous?.n ?? -1) + 1,
      old: headText(live.tree),
      new: headText(growth.live.tree),
      staging: await stage(privateStore, entries),
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
    for (const draft of kept.flat()) metrics.count("touchstone_leaves_published_total", { kind: draft.kind });
    if (await this.#finish(generation, growth)) {
      for (const entry of entries) this.#fold.apply(JSON.parse(entry.toString("utf8")) as Leaf);
      this.#live = { ...growth.live, generation };
      await writeHints(this.options.publicStore, this.#fold, this.#hinted);
    } else {
      // Somebody finished it for us and went on: their log holds our leaves.
      this.#live = null;
    }
    metrics.gauge("touchstone_tree_size", growth.live.tree.size);
    return { leaves: entries.length, refused };
  }

  /** Steps 3 and 4 for a generation that was won, by us just now or by a writer that died. */
  async #finish(generation: Generation, growth: Growth): Promise<boolean> {
    const { publicStore, keys, clock } = this.options;
    await writeTree(publicStore, growth);
    return publishCheckpoint(publicStore, this.#headOf(generation.new), keys, publicationTime({ clock }, generation));
  }

  async #current(): Promise<Live> {
    this.#live ??= await this.#recover();
    return this.#live;
  }

  async #recover(): Promise<Live> {
    const { privateStore, publicStore, keys } = this.options;
    for (let attempt = 0; attempt < MAX_LOST; attempt++) {
      const n = await highestGeneration(privateStore, this.#known);
      const published = await readCheckpoint(publicStore, ownTrust(keys));
      if (n < 0 && !published) return { ...EMPTY_LIVE, generation: null };
      if (n < 0) {
        // The very first generation may have been won, and published, between the two looks.
        if ((await highestGeneration(privateStore, -1)) >= 0) continue;
        throw new BadPrivate("generation/", "the public store holds a log that no generation knows");
      }
      const generation = await readGeneration(privateStore, n);
      this.#known = n;
      // A larger checkpoint belongs to a generation that was won since we looked.
      if (published && published.size > generation.new.size) continue;
      const head = this.#headOf(generation.new);
      if (published?.size !== head.size) await this.#complete(generation);
      else if (!sameHash(published.root, head.root)) throw new Fork(head.size, head.root, published.root);
      await this.#catchUp(head);
      await writeHints(publicStore, this.#fold, this.#hinted);
      return { ...(await loadLive(publicStore, head)), generation };
    }
    throw new BadPrivate("generation/", "the public checkpoint stays ahead of every generation");
  }

  async #complete(generation: Generation): Promise<void> {
    const { privateStore, publicStore, logger } = this.options;
    logger.warn({ generation: generation.n }, "finishing a generation that was not published whole");
    const entries = await staged(privateStore, generation.staging);
    const growth = grow(await loadLive(publicStore, this.#headOf(generation.old)), entries);
    const got = headText(growth.live.tree);
    if (got.size !== generation.new.size || got.root !== generation.new.root) {
      throw new BadPrivate(generation.staging, `leads to ${got.root} at ${got.size}, not to ${generation.new.root}`);
    }
    await this.#finish(generation, growth);
  }

  async #catchUp(head: { size: number; root: Buffer }): Promise<void> {
    const reader = await RecordReader.open(this.options.publicStore, head);
    for await (const { leaf } of reader.leaves(this.#fold.size)) this.#fold.apply(leaf);
  }

  #headOf({ size, root }: Generation["new"]) {
    return { origin: this.options.origin, size, root: Buffer.from(root, "hex") };
  }
}

const headText = (tree: TreeState): Generation["new"] => ({ size: tree.size, root: tree.root().toString("hex") });
