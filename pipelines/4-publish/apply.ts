import { canonicalBytes } from "../../infra/canonical.ts";
import type { Store } from "../../infra/store/store.ts";
import { packBundle, unpackBundle } from "../../infra/tree/bundle.ts";
import { type CheckpointTrust, openCheckpoint, signCheckpoint, type TreeHead } from "../../infra/tree/checkpoint.ts";
import { leafHash, sameHash } from "../../infra/tree/hash.ts";
import type { NoteSigner } from "../../infra/tree/note.ts";
import { entriesPath, SEGMENT_LEAVES, TILE_WIDTH, tilePath } from "../../infra/tree/path.ts";
import type { TreeState } from "../../infra/tree/state.ts";
import type { PublishedFold } from "./fold.ts";
import { CHECKPOINT, HINT_INDEX, HINT_KEYS, segmentKey } from "./objects.ts";
import { packSegment } from "./segment.ts";
import { putPublic, swapPublic } from "./writes.ts";

/** The log as its writer holds it: the tree, and the entries after the last full bundle. */
export interface LiveTree {
  tree: TreeState;
  tail: readonly Buffer[];
}

export const EMPTY_ENTRIES: readonly Buffer[] = [];

/** Add entries in memory, and name what has to be written. Nothing is written yet. */
export function grow(live: LiveTree, entries: readonly Buffer[]) {
  const { state, tiles } = live.tree.append(entries.map(leafHash));
  const bundles: { n: number; entries: Buffer[] }[] = [];
  const all = [...live.tail, ...entries];
  const first = Math.floor(live.tree.size / TILE_WIDTH);
  for (let i = 0; i * TILE_WIDTH < all.length; i++) {
    bundles.push({ n: first + i, entries: all.slice(i * TILE_WIDTH, (i + 1) * TILE_WIDTH) });
  }
  const rest = bundles.at(-1)?.entries ?? [];
  const tail = rest.length < TILE_WIDTH ? rest : [];
  return { live: { tree: state, tail } satisfies LiveTree, tiles, bundles, from: live.tree.size };
}
export type Growth = ReturnType<typeof grow>;

/**
 * Everything that a checkpoint of the new size commits to: tiles, bundles, and each segment that was completed. All
 * create-only, so doing it again, or after another writer died half way, changes nothing.
 */
export async function writeTree(store: Store, { live, tiles, bundles, from }: Growth): Promise<void> {
  const writes = tiles.map((tile) => () => putPublic(store, tilePath(tile.level, tile.n, tile.width), tile.bytes));
  for (const { n, entries } of bundles) writes.push(() => writeBundle(store, n, entries));
  await inTurns(writes);
  const [first, end] = [from, live.tree.size].map((size) => Math.floor(size / SEGMENT_LEAVES)) as [number, number];
  for (let n = first; n < end; n++) {
    // Two compressors may pack one segment differently; the tile above says what is inside, so either will do.
    await putPublic(store, segmentKey(n), await packSegment(store, n), () => true);
  }
}

/** Writes under way at once: a large batch must not hold every file handle of the machine. */
const WRITES_AT_ONCE = 16;

async function inTurns(writes: readonly (() => Promise<void>)[]): Promise<void> {
  for (let at = 0; at < writes.length; at += WRITES_AT_ONCE) {
    await Promise.all(writes.slice(at, at + WRITES_AT_ONCE).map((write) => write()));
  }
}

async function writeBundle(store: Store, n: number, entries: readonly Buffer[]): Promise<void> {
  const packed = await packBundle(entries);
  await putPublic(store, entriesPath(n, entries.length), packed, async (theirs) => {
    const other = await unpackBundle(theirs, entries.length);
    return other.every((entry, i) => entry.equals(entries[i]!));
  });
}

/** Two roots for one size, both signed by our key. Whoever sees it must stop and say so: it can never be mended. */
export class Fork extends Error {
  constructor(size: number, ours: Uint8Array, theirs: Uint8Array) {
    const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
    super(`fork: the checkpoint of ${size} leaves has root ${hex(theirs)}, ours has ${hex(ours)}`);
    this.name = "Fork";
  }
}

export interface CheckpointKeys {
  log: NoteSigner;
  witness: NoteSigner;
}

/**
 * Publish the checkpoint of this head, or a fresher one of the same head when `refresh`. A larger one stays: a
 * publisher that slept never takes the checkpoint back.
 * @returns false when a larger one is there.
 * @throws Fork
 */
export async function publishCheckpoint(
  store: Store,
  head: TreeHead,
  keys: CheckpointKeys,
  at: Date,
  refresh = false,
): Promise<boolean> {
  const trust: CheckpointTrust = keys;
  let superseded = false;
  await swapPublic(store, CHECKPOINT, (object) => {
    const theirs = object && openCheckpoint(object.bytes, trust);
    if (theirs && theirs.size === head.size && !sameHash(theirs.root, head.root)) {
      throw new Fork(head.size, head.root, theirs.root);
    }
    superseded = theirs !== null && theirs.size > head.size;
    if (superseded) return null;
    const older = theirs && theirs.size === head.size && (!refresh || theirs.cosignedAt! >= wholeSecond(at));
    return older ? null : signCheckpoint(head, keys.log, keys.witness, at);
  });
  return !superseded;
}

const wholeSecond = (at: Date): Date => new Date(Math.floor(at.getTime() / 1000) * 1000);

/** Which leaf each hint names, as far as this process knows. */
export type Hinted = Map<string, number>;

/**
 * Name the newest index and keys. Unsigned: a reader proves them by inclusion. Written only when the one that is there
 * is older, so a publication without a new index or new keys writes nothing, and asks nothing.
 */
export async function writeHints(store: Store, fold: PublishedFold, hinted: Hinted): Promise<void> {
  const hint = async (key: string, content: { leaf: number }) => {
    if (hinted.get(key) === content.leaf) return;
    await swapPublic(store, key, (theirs) => (namedBy(theirs) >= content.leaf ? null : canonicalBytes(content)));
    hinted.set(key, content.leaf);
  };
  if (fold.index) await hint(HINT_INDEX, fold.index);
  if (fold.keys) await hint(HINT_KEYS, fold.keys);
}

const namedBy = (hint: { bytes: Uint8Array } | null): number =>
  hint ? (JSON.parse(Buffer.from(hint.bytes).toString("utf8")) as { leaf: number }).leaf : -1;
