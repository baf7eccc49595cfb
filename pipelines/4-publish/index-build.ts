import { setImmediate as turn } from "node:timers/promises";
import { compress, decompress } from "zstd-napi";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import { signObject } from "../../infra/keys/sign.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { Store } from "../../infra/store/store.ts";
import type { PublishedFold } from "./fold.ts";
import { type IndexEntry, indexEntries, type Shard, shardBits, shardFrom, shardOf } from "./index-lines.ts";
import type { Draft } from "./leaves.ts";
import { indexKey, shardKey } from "./objects.ts";
import { PublicConflict, putPublic } from "./writes.ts";

/** Shards on their way at once: so many are in memory, however large the index. */
const SHARDS_AT_ONCE = 8;
/** Endpoints that are put in their shard between two turns of others: a few milliseconds. */
const PLACED_AT_ONCE = 2_048;

/**
 * Write the index of the fold as it is now: shards that are new, then the signed list, `index/<tree_size>.json`.
 * Everything in both follows from the log below `tree_size`. All endpoints are gone through, so it is made hourly, and in
 * turns, so that publications and answers of the same process go on meanwhile.
 * @returns the leaf that names it, to ride along with the next publication; null when the newest index has this size.
 * @throws PublicConflict when a shard that is there is not what its name says
 */
export async function writeIndex(store: Store, fold: PublishedFold, cards: Signer): Promise<Draft | null> {
  if (fold.size === 0 || fold.index?.tree_size === fold.size) return null;
  // Read before the first turn: the log may go on below.
  const { size: tree_size, newest } = fold;
  const entries = indexEntries(fold);
  const { bits, members } = await placed(entries);
  const shards: object[] = [];
  for (let at = 0; at < members.length; at += SHARDS_AT_ONCE) {
    const written = members.slice(at, at + SHARDS_AT_ONCE).map(async (of) => {
      await turn();
      const shard = shardFrom(of);
      await writeShard(store, shard);
      return { sha256: shard.sha256, lines: shard.lines, bytes: shard.text.length };
    });
    shards.push(...(await Promise.all(written)));
  }
  // A signature is judged at the time of the newest leaf below (publication.md, Exact forms).
  const list = { schema: "svc.index.v1", tree_size, computed_at: newest, lines: entries.length, bits, shards };
  const bytes = canonicalBytes(signObject(cards, list), { published: true });
  const key = indexKey(tree_size);
  await putPublic(store, key, bytes);
  return { kind: "index", key, sha256: sha256hex(bytes), bytes: bytes.length, tree_size };
}

async function placed(entries: readonly IndexEntry[]): Promise<{ bits: number; members: IndexEntry[][] }> {
  const bits = shardBits(entries.length);
  const members: IndexEntry[][] = Array.from({ length: 2 ** bits }, () => []);
  for (const [i, entry] of entries.entries()) {
    if (i % PLACED_AT_ONCE === PLACED_AT_ONCE - 1) await turn();
    members[shardOf(entry.listing.url, bits)]!.push(entry);
  }
  return { bits, members };
}

async function writeShard(store: Store, { sha256, text }: Shard): Promise<void> {
  const key = shardKey(sha256);
  // The name speaks of the unpacked bytes: compressors differ between versions.
  const same = (theirs: Uint8Array): boolean => sha256hex(decompress(theirs)) === sha256;
  const theirs = await store.get(key);
  if (!theirs) await putPublic(store, key, compress(text, { compressionLevel: 3 }), same);
  else if (!same(theirs.bytes)) throw new PublicConflict(key);
}
