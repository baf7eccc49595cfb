import type { Store } from "../../infra/store/store.ts";
import { leafHash } from "../../infra/tree/hash.ts";
import { edgeOf, TILE_WIDTH } from "../../infra/tree/path.ts";
import { TreeState } from "../../infra/tree/tiles.ts";
import { createObjectFetch, RecordReader } from "../published/reader.ts";

/**
 * The log as its writer keeps it in memory: the right edge of the Merkle tree, and the entries after the last full
 * bundle (the file of 256 entries).
 */
export interface LiveTree {
  tree: TreeState;
  tail: readonly Buffer[];
}

/** A log without leaves. */
export const EMPTY_TREE: LiveTree = { tree: TreeState.empty, tail: [] };

/** Appends entries in memory. @returns the new log, with the tiles and bundles that have to be written */
export function growTree(liveTree: LiveTree, entries: readonly Buffer[]) {
  const { state, tiles } = liveTree.tree.append(entries.map(leafHash));
  const bundles: { n: number; entries: Buffer[] }[] = [];
  const allEntries = [...liveTree.tail, ...entries];
  const firstBundle = Math.floor(liveTree.tree.size / TILE_WIDTH);
  for (let i = 0; i * TILE_WIDTH < allEntries.length; i++) {
    bundles.push({ n: firstBundle + i, entries: allEntries.slice(i * TILE_WIDTH, (i + 1) * TILE_WIDTH) });
  }
  const lastEntries = bundles.at(-1)?.entries ?? [];
  const tail = lastEntries.length < TILE_WIDTH ? lastEntries : [];
  return { live: { tree: state, tail } satisfies LiveTree, tiles, bundles, oldSize: liveTree.tree.size };
}
export type Growth = ReturnType<typeof growTree>;

/** Loads the published log of this size, so that a writer can extend it. */
export async function loadLiveTree(store: Store, head: { size: number; root: Buffer }): Promise<LiveTree> {
  const tree = await TreeState.load(head.size, head.root, createObjectFetch(store));
  const { full, width } = edgeOf(head.size, 0);
  const tail = width ? await (await RecordReader.open(store, head)).entries(full) : [];
  return { tree, tail };
}
