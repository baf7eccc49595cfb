import { compress, decompress } from "zstd-napi";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import { signObject } from "../../infra/keys/sign.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { Store } from "../../infra/store/store.ts";
import type { PublishedFold } from "./fold.ts";
import { type Shard, shardsOf } from "./index-lines.ts";
import type { Draft } from "./leaves.ts";
import { indexKey, shardKey } from "./objects.ts";
import { PublicConflict, putPublic } from "./writes.ts";

/** The signed list of shards, `index/<tree_size>.json`. Everything in it follows from the log below `tree_size`. */
export function indexList(fold: PublishedFold, cards: Signer): { list: object; shards: Shard[] } {
  const { bits, lines, shards } = shardsOf(fold);
  const list = {
    schema: "svc.index.v1",
    tree_size: fold.size,
    // The newest leaf below: a signature is judged at this time (publication.md, Exact forms).
    computed_at: fold.newest,
    lines,
    bits,
    shards: shards.map(({ sha256, lines, text }) => ({ sha256, lines, bytes: text.length })),
  };
  return { list: signObject(cards, list), shards };
}

/** Shards on their way at once. */
const SHARDS_AT_ONCE = 8;

/**
 * Write the index of the fold as it is now: shards that are new, then the signed list.
 * @returns the leaf that names it, to ride along with the next publication; null when the newest index has this size.
 */
export async function writeIndex(store: Store, fold: PublishedFold, cards: Signer): Promise<Draft | null> {
  if (fold.size === 0 || fold.index?.tree_size === fold.size) return null;
  const { list, shards } = indexList(fold, cards);
  for (let at = 0; at < shards.length; at += SHARDS_AT_ONCE) {
    await Promise.all(shards.slice(at, at + SHARDS_AT_ONCE).map((shard) => writeShard(store, shard)));
  }
  const bytes = canonicalBytes(list, { published: true });
  const key = indexKey(fold.size);
  await putPublic(store, key, bytes);
  return { kind: "index", key, sha256: sha256hex(bytes), bytes: bytes.length, tree_size: fold.size };
}

async function writeShard(store: Store, { sha256, text }: Shard): Promise<void> {
  const key = shardKey(sha256);
  // The name speaks of the unpacked bytes: compressors differ between versions.
  const same = (theirs: Uint8Array): boolean => sha256hex(decompress(theirs)) === sha256;
  const theirs = await store.get(key);
  if (!theirs) await putPublic(store, key, compress(text, { compressionLevel: 3 }), same);
  else if (!same(theirs.bytes)) throw new PublicConflict(key);
}
