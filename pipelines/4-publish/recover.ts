import { sameHash } from "../../infra/tree/hash.ts";
import type { TreeState } from "../../infra/tree/state.ts";
import { writeTree } from "./apply.ts";
import { publicationTime } from "./clocks.ts";
import type { CommitterOptions } from "./committer.ts";
import type { PublishedFold } from "./fold.ts";
import { BadPrivate, type Generation, highestGeneration, readGeneration, staged } from "./generation.ts";
import { Fork, ownTrust, publishCheckpoint } from "./head.ts";
import { type Hinted, writeHints } from "./hints.ts";
import { EMPTY_LIVE, type Growth, grow, type LiveTree, loadLive } from "./live.ts";
import { RecordReader, readCheckpoint } from "./read.ts";

/** The log as its writer goes on from it, and the generation that led there. */
export type Live = LiveTree & { generation: Generation | null };

/** What a process keeps of the log while it forgets the rest. */
export interface Kept {
  /** Brought up to the log by {@link recover}. */
  fold: PublishedFold;
  hinted: Hinted;
  /** Number of a generation that exists, -1 for none known. */
  known: number;
}

/** Generations lost in a row before a publication gives up: others are publishing, so nothing stands still. */
export const MAX_LOST = 16;

export const headText = (tree: TreeState): Generation["new"] => ({
  size: tree.size,
  root: tree.root().toString("hex"),
});

export const headOf = ({ origin }: Pick<CommitterOptions, "origin">, { size, root }: Generation["new"]) => ({
  origin,
  size,
  root: Buffer.from(root, "hex"),
});

/**
 * Steps 3 and 4 of the publication order for a generation that was won, by us just now or by a writer that died.
 * @returns false when somebody finished it for us and went on
 */
export async function finish(options: CommitterOptions, generation: Generation, growth: Growth): Promise<boolean> {
  const { publicStore, keys, clock } = options;
  await writeTree(publicStore, growth);
  const at = publicationTime({ clock }, generation);
  return publishCheckpoint(publicStore, headOf(options, generation.new), keys, at);
}

/**
 * The log by the highest generation, which is finished first when its writer did not: a start, a crash and a lost race
 * all come here.
 * @throws BadPrivate, Fork, ClockRefused, MissingObject, Tampered
 */
export async function recover(options: CommitterOptions, kept: Kept): Promise<Live> {
  const { privateStore, publicStore, keys } = options;
  for (let attempt = 0; attempt < MAX_LOST; attempt++) {
    const n = await highestGeneration(privateStore, kept.known);
    const published = await readCheckpoint(publicStore, ownTrust(keys));
    if (n < 0 && !published) return { ...EMPTY_LIVE, generation: null };
    if (n < 0) {
      // The very first generation may have been won, and published, between the two looks.
      if ((await highestGeneration(privateStore, -1)) >= 0) continue;
      throw new BadPrivate("generation/", "the public store holds a log that no generation knows");
    }
    const generation = await readGeneration(privateStore, n);
    // A larger checkpoint belongs to a generation that was won since we looked.
    if (published && published.size > generation.new.size) continue;
    const head = headOf(options, generation.new);
    if (published?.size !== head.size) await complete(options, generation);
    else if (!sameHash(published.root, head.root)) throw new Fork(head.size, head.root, published.root);
    await kept.fold.readOn(await RecordReader.open(publicStore, head));
    await writeHints(publicStore, kept.fold, kept.hinted);
    return { ...(await loadLive(publicStore, head)), generation };
  }
  throw new BadPrivate("generation/", "the public checkpoint stays ahead of every generation");
}

/** Fold what the public checkpoint has beyond this fold. @throws BadNote, MissingObject, Tampered */
export async function follow({ publicStore, keys }: CommitterOptions, fold: PublishedFold): Promise<void> {
  const head = await readCheckpoint(publicStore, ownTrust(keys));
  if (head && head.size > fold.size) await fold.readOn(await RecordReader.open(publicStore, head));
}

async function complete(options: CommitterOptions, generation: Generation): Promise<void> {
  const { privateStore, publicStore, logger } = options;
  logger.warn({ generation: generation.n }, "finishing a generation that was not published whole");
  const entries = await staged(privateStore, generation.staging);
  const growth = grow(await loadLive(publicStore, headOf(options, generation.old)), entries);
  const got = headText(growth.live.tree);
  if (got.size !== generation.new.size || got.root !== generation.new.root) {
    throw new BadPrivate(generation.staging, `leads to ${got.root} at ${got.size}, not to ${generation.new.root}`);
  }
  await finish(options, generation, growth);
}
