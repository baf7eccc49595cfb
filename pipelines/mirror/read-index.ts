import { sha256hex } from "../../infra/canonical.ts";
import type { Store } from "../../infra/store/store.ts";
import { TILE_WIDTH } from "../../infra/tree/path.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { shardKey } from "../4-publish/objects.ts";
import { RecordReader } from "../4-publish/read.ts";
import { IndexLine, Leaf } from "../record/leaf.ts";
import { MirrorUsage, Unproven } from "./errors.ts";
import { MAX } from "./limits.ts";
import { IndexList, type ShardLine } from "./objects.ts";
import { MirrorState, parseJson } from "./state.ts";
import { BadFrame, unpackFrame } from "./unpack.ts";

/** The newest index of a mirror: what it was made of, and its lines shard by shard. */
export interface ProvenIndex {
  origin: string;
  /** Leaves below which the index was made, and when (record time). */
  treeSize: number;
  computedAt: string;
  lines: number;
  read(): AsyncGenerator<IndexLine>;
}

/**
 * The newest index in a mirror's folder. The disk is not believed again: the leaf that names the list is proven under
 * the mirror's own head, the list by the leaf, each shard by the list.
 * @throws MirrorUsage when the folder holds no proven index; MissingObject, Tampered, Unproven
 */
export async function openIndex(publicStore: Store, stateStore: Store): Promise<ProvenIndex> {
  const trusted = await new MirrorState(stateStore).trusted();
  if (!trusted?.index) throw new MirrorUsage("the folder holds no proven index: run touchstone mirror first");
  const { head, index } = trusted;
  const reader = await RecordReader.open(publicStore, { size: head.size, root: Buffer.from(head.root, "hex") });
  const entry = (await reader.entries(Math.floor(index.leaf / TILE_WIDTH)))[index.leaf % TILE_WIDTH];
  const leaf = entry && Leaf.parse(parseJson(entry));
  if (leaf?.kind !== "index")
    throw new Unproven(`leaf ${index.leaf}`, "a leaf that names an index", leaf?.kind ?? "none");
  const object = await publicStore.get(leaf.key, { maxBytes: MAX.named });
  if (!object) throw new MissingObject(leaf.key);
  const got = sha256hex(object.bytes);
  if (got !== leaf.sha256) throw new Unproven(leaf.key, leaf.sha256, got);
  const list = IndexList.parse(parseJson(object.bytes));
  return {
    origin: head.note.split("\n", 1)[0]!,
    treeSize: list.tree_size,
    computedAt: list.computed_at,
    lines: list.shards.reduce((sum, { lines }) => sum + lines, 0),
    async *read() {
      for (const shard of list.shards) yield* linesOf(publicStore, shard);
    },
  };
}

async function* linesOf(store: Store, shard: ShardLine): AsyncGenerator<IndexLine> {
  const key = shardKey(shard.sha256);
  const object = await store.get(key);
  if (!object) throw new MissingObject(key);
  let text: Buffer;
  try {
    text = await unpackFrame(object.bytes, shard.bytes);
  } catch (error) {
    if (error instanceof BadFrame) throw new Unproven(key, `${shard.bytes} bytes of zstd`, error.message);
    throw error;
  }
  const got = sha256hex(text);
  if (got !== shard.sha256) throw new Unproven(key, shard.sha256, got);
  for (const line of text.toString("utf8").split("\n")) if (line) yield IndexLine.parse(JSON.parse(line));
}
