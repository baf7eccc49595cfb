import { edgeOf, entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { HINT_INDEX, kindOfKey, shardKey } from "../4-publish/objects.ts";
import { range } from "./lanes.ts";
import { MAX, packedBound } from "./limits.ts";
import { IndexList, type ShardLine } from "./objects.ts";
import type { Prefetch, Wish } from "./prefetch.ts";
import { NewestIndex, parseJson } from "./state.ts";

/** Longest list of shards that is read early: ten million endpoints have some six megabytes. */
const MAX_LIST_BYTES = 16 * 1024 * 1024;

/** Bundle n of a tree of `size` leaves, as far as the tree goes. */
export const bundleWish =
  (size: number) =>
  (n: number): Wish => {
    const { full, width } = edgeOf(size, 0);
    return { key: entriesPath(n, n < full ? TILE_WIDTH : width), maxBytes: MAX.bundle };
  };

export const shardWish = (line: ShardLine): Wish => ({ key: shardKey(line.sha256), maxBytes: packedBound(line.bytes) });

/**
 * While segments come, what will be asked for behind them: the bundles from leaf `from` on, and the index that the source
 * hints at, with its shards. The hint is believed for nothing else: the leaf that names the index decides later.
 * Never rejects: what goes wrong here goes wrong again in its turn, and is told of there.
 */
export async function wishEarly(prefetch: Prefetch, from: number, size: number): Promise<void> {
  if (!prefetch.distant) return;
  prefetch.want(range(Math.floor(from / TILE_WIDTH), Math.ceil(size / TILE_WIDTH)), bundleWish(size));
  const hint = await prefetch.look({ key: HINT_INDEX, maxBytes: MAX.hint });
  const { data: newest } = NewestIndex.safeParse(hint && parseJson(hint));
  if (!newest || kindOfKey(newest.key) !== "indexList") return;
  const bytes = await prefetch.look({ key: newest.key, maxBytes: MAX_LIST_BYTES });
  const { data: list } = IndexList.safeParse(bytes && parseJson(bytes));
  if (list) prefetch.want(list.shards, shardWish);
}
