import { canonicalBytes } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { forEachConcurrent } from "../../infra/concurrency.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { packBundle, unpackBundle } from "../../infra/tree/bundle.ts";
import type { TreeHead } from "../../infra/tree/checkpoint.ts";
import { sameHash } from "../../infra/tree/hash.ts";
import { entriesPath, SEGMENT_LEAVES, tilePath } from "../../infra/tree/path.ts";
import type { TreeState } from "../../infra/tree/tiles.ts";
import type { PublishedFold } from "../published/fold.ts";
import { packSegment } from "../published/leaves.ts";
import { INDEX_HINT, KEYS_HINT, segmentKey } from "../published/objects.ts";
import { RecordReader, readCheckpoint, SIMULATED_TIME } from "../published/reader.ts";
import { type ChainTime, publicationTime } from "./clocks.ts";
import {
  BadPrivateObject,
  type Generation,
  highestGeneration,
  readGeneration,
  readStagedLeaves,
} from "./generation.ts";
import { EMPTY_TREE, type Growth, growTree, type LiveTree, loadLiveTree } from "./live.ts";
import { type CheckpointKeys, Fork, ownTrust, publishCheckpoint } from "./tree-head.ts";
import type { Witnesses } from "./witnesses.ts";
import { putPacked, putPublic, swapPublic } from "./writes.ts";

export interface CommitterOptions {
  privateStore: Store;
  publicStore: Store;
  keys: CheckpointKeys;
  origin: string;
  clock: Clock;
  logger: Logger;
  metrics: Metrics;
  /** Names this process in the generations (extensions of the log) that it wins. */
  writer: string;
  /** Reads the newest block of the chain that we pay on; called before each publication unless time is simulated. */
  chainTime?: () => Promise<ChainTime | null>;
  /** True: the record's time is simulated, and the checkpoint states that. */
  simulatedTime?: boolean;
  /** Witnesses that others run, which cosign a checkpoint before it is published. */
  witnesses?: Witnesses | undefined;
}

/**
 * The log from which a writer continues, and its newest generation (the private object that records one extension of
 * the log).
 */
export type LiveLog = LiveTree & { generation: Generation | null };

/** What a process keeps after an error; everything else is read from the stores again. */
export interface RecoverState {
  /** State of the published leaves. {@link recover} applies the leaves that it lacks. */
  fold: PublishedFold;
  hintedLeaves: HintedLeaves;
  /** Number of a generation that exists, from which the search for the highest begins; -1 for none known. */
  knownGeneration: number;
}

/** Number of generations in a row that other publishers may win before a publication gives up. */
export const MAX_LOST_GENERATIONS = 16;

export const encodeTreeHead = (tree: TreeState): Generation["new"] => ({
  size: tree.size,
  root: tree.root().toString("hex"),
});

export const treeHeadOf = (
  { origin, simulatedTime }: Pick<CommitterOptions, "origin" | "simulatedTime">,
  { size, root }: Generation["new"],
): TreeHead => ({
  ...{ origin, size, root: Buffer.from(root, "hex") },
  ...(simulatedTime ? { extensions: [SIMULATED_TIME] } : {}),
});

/**
 * Writes the tree and the checkpoint of a generation (steps 3 and 4 of publication.md), which was won by this process
 * or by one that died before it wrote them.
 * @returns false when another publisher has finished it and extended the log
 */
export async function finishGeneration(
  options: CommitterOptions,
  generation: Generation,
  growth: Growth,
): Promise<boolean> {
  const { publicStore, keys, clock, witnesses } = options;
  await writeTree(publicStore, growth);
  const signAt = publicationTime({ clock }, generation);
  return publishCheckpoint(publicStore, treeHeadOf(options, generation.new), keys, signAt, { witnesses });
}

/**
 * Loads the log of the highest generation, after finishing that generation if its writer did not. Called at a start,
 * after an error, and after another publisher won a generation.
 * @throws BadPrivateObject, Fork, ClockRefused, MissingObject, Tampered
 */
export async function recover(options: CommitterOptions, state: RecoverState): Promise<LiveLog> {
  const { privateStore, publicStore, keys } = options;
  for (let attempt = 0; attempt < MAX_LOST_GENERATIONS; attempt++) {
    const n = await highestGeneration(privateStore, state.knownGeneration);
    const published = await readCheckpoint(publicStore, ownTrust(keys));
    if (n < 0 && !published) return { ...EMPTY_TREE, generation: null };
    if (n < 0) {
      // The very first generation may have been won, and published, between the first look for generations and now.
      if ((await highestGeneration(privateStore, -1)) >= 0) continue;
      throw new BadPrivateObject("generation/", "the public store holds a log that no generation knows");
    }
    const generation = await readGeneration(privateStore, n);
    // A larger checkpoint belongs to a generation that was won after we looked for generations.
    if (published && published.size > generation.new.size) continue;
    const head = treeHeadOf(options, generation.new);
    if (published?.size !== head.size) await completeGeneration(options, generation);
    else if (!sameHash(published.root, head.root)) throw new Fork(head.size, head.root, published.root);
    await state.fold.readNewLeaves(await RecordReader.open(publicStore, head));
    await writeHints(publicStore, state.fold, state.hintedLeaves);
    return { ...(await loadLiveTree(publicStore, head)), generation };
  }
  throw new BadPrivateObject("generation/", "the public checkpoint stays ahead of every generation");
}

/** Applies the published leaves that this fold lacks. @throws BadNote, MissingObject, Tampered */
export async function followCheckpoint({ publicStore, keys }: CommitterOptions, fold: PublishedFold): Promise<void> {
  const head = await readCheckpoint(publicStore, ownTrust(keys));
  if (head && head.size > fold.size) await fold.readNewLeaves(await RecordReader.open(publicStore, head));
}

async function completeGeneration(options: CommitterOptions, generation: Generation): Promise<void> {
  const { privateStore, publicStore, logger } = options;
  logger.warn({ generation: generation.n }, "finishing a generation that was not published whole");
  const entries = await readStagedLeaves(privateStore, generation.staging);
  const growth = growTree(await loadLiveTree(publicStore, treeHeadOf(options, generation.old)), entries);
  const computedHead = encodeTreeHead(growth.live.tree);
  if (computedHead.size !== generation.new.size || computedHead.root !== generation.new.root) {
    throw new BadPrivateObject(
      generation.staging,
      `leads to ${computedHead.root} at ${computedHead.size}, not to ${generation.new.root}`,
    );
  }
  await finishGeneration(options, generation, growth);
}

/**
 * Writes everything that a checkpoint of the new size commits to: tiles, bundles of entries, and each segment (file
 * of SEGMENT_LEAVES leaves) that is now full. Objects are only created, never replaced, so repeating this, or
 * continuing after another writer died, changes nothing.
 */
export async function writeTree(store: Store, { live, tiles, bundles, oldSize }: Growth): Promise<void> {
  const writes: (() => Promise<unknown>)[] = tiles.map(
    (tile) => () => putPublic(store, tilePath(tile.level, tile.n, tile.width), tile.bytes),
  );
  for (const { n, entries } of bundles) writes.push(() => writeBundle(store, n, entries));
  await forEachConcurrent(writes, WRITES_AT_ONCE, (write) => write());
  const [firstSegment, endSegment] = [oldSize, live.tree.size].map((size) => Math.floor(size / SEGMENT_LEAVES)) as [
    number,
    number,
  ];
  for (let n = firstSegment; n < endSegment; n++) {
    // Compared by unpacked content, since versions of zstd may compress a segment differently.
    await putPacked(store, segmentKey(n), await packSegment(store, n));
  }
}

/** Largest number of writes at the same time, so that a large batch does not use up the file handles. */
const WRITES_AT_ONCE = 16;

async function writeBundle(store: Store, n: number, entries: readonly Buffer[]): Promise<void> {
  const packed = await packBundle(entries);
  await putPublic(store, entriesPath(n, entries.length), packed, async (storedBytes) => {
    const storedEntries = await unpackBundle(storedBytes, entries.length);
    return storedEntries.every((entry, i) => entry.equals(entries[i]!));
  });
}

/**
 * For each hint, by its key: index of the leaf that this process last named in it. The stored hint names this leaf or a
 * newer one.
 */
export type HintedLeaves = Map<string, number>;

/**
 * Writes the hints, which name the leaves of the newest index and of the newest keys document. Hints are unsigned: a
 * reader verifies the leaf itself. A hint is written only if the stored one names an older leaf.
 */
export async function writeHints(store: Store, fold: PublishedFold, hintedLeaves: HintedLeaves): Promise<void> {
  const writeHint = async (key: string, content: { leaf: number }) => {
    if (hintedLeaves.get(key) === content.leaf) return;
    await swapPublic(store, key, (stored) => (leafOfHint(stored) >= content.leaf ? null : canonicalBytes(content)));
    hintedLeaves.set(key, content.leaf);
  };
  if (fold.index) await writeHint(INDEX_HINT, fold.index);
  if (fold.keys) await writeHint(KEYS_HINT, fold.keys);
}

const leafOfHint = (hint: { bytes: Uint8Array } | null): number =>
  hint ? (JSON.parse(Buffer.from(hint.bytes).toString("utf8")) as { leaf: number }).leaf : -1;
