import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compress } from "zstd-napi";
import { canonicalBytes, canonicalText, sha256hex } from "../../infra/canonical.ts";
import { signObject } from "../../infra/keys/signer.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import type { Store } from "../../infra/store/store.ts";
import { signCheckpoint } from "../../infra/tree/checkpoint.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../infra/tree/note.ts";
import { SEGMENT_LEAVES } from "../../infra/tree/path.ts";
import { writeKeys } from "../../pipelines/4-publish/keys.ts";
import type { Draft } from "../../pipelines/4-publish/leaves.ts";
import { EMPTY_TREE, growTree } from "../../pipelines/4-publish/live.ts";
import { writeTree } from "../../pipelines/4-publish/recover.ts";
import { checkpointKeys } from "../../pipelines/4-publish/tree-head.ts";
import { headlineOf } from "../../pipelines/published/caps.ts";
import { PublishedFold } from "../../pipelines/published/fold.ts";
import { lineText, shardBits, shardOf } from "../../pipelines/published/index-lines.ts";
import { indexKey, shardKey } from "../../pipelines/published/objects.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";
import { JWKS, SIGNERS } from "../pipelines/4-publish/world.ts";
import { AT, endpointText, signedCard } from "./record-text.ts";

const ORIGIN = "bench.example/tree";
/** Where such a record comes from, and whose checkpoint it has. */
export const BENCH = { origin: ORIGIN, trust: checkpointKeys(ORIGIN, SIGNERS) };

/** A signed record in a folder: keys, a listing and a card of every endpoint, an index of them all. */
export interface BenchRecord {
  dir: string;
  keys: { log: string; witness: string };
  leaves: number;
  cards: number;
  remove: () => Promise<void>;
}

/** The log of a record in the making. */
class Growing {
  #live = EMPTY_TREE;
  #entries: Buffer[] = [];
  size = 0;

  constructor(readonly store: Store) {}

  async put(text: string): Promise<void> {
    this.size++;
    if (this.#entries.push(Buffer.from(text)) === SEGMENT_LEAVES) await this.flush();
  }

  async flush(): Promise<Buffer> {
    const growth = growTree(this.#live, this.#entries);
    await writeTree(this.store, growth);
    this.#live = growth.live;
    this.#entries = [];
    return this.#live.tree.root();
  }
}

/**
 * Cards differ in what real ones differ in, so that they pack as those do; every signature is a real one.
 * @param kept a folder in which the record stays, for {@link openRecord}; without it `remove` deletes the record
 */
export async function makeRecord(cards: number, kept?: string): Promise<BenchRecord> {
  compare();
  const dir = kept ?? (await mkdtemp(join(tmpdir(), "record-bench-")));
  const store = await openDirectoryStore(join(dir, "public"));
  const log = new Growing(store);
  const fold = new PublishedFold();
  const put = async (draft: Draft) => {
    const leaf = { ...draft, index: log.size, seq: 0, at: AT } as Leaf;
    await log.put(canonicalText(leaf));
    return leaf;
  };
  const keysLeaf = (await put((await writeKeys(store, fold, JWKS, SIGNERS, new Date(AT)))!)) as Leaf & KeysNamed;
  const bits = shardBits(cards);
  const shards: { url: string; text: string }[][] = Array.from({ length: 2 ** bits }, () => []);
  for (let i = 0; i < cards; i++) {
    const one = endpointText(i);
    await log.put(one.listing(log.size, i));
    const leaf = log.size;
    await log.put(one.grade(leaf, i));
    shards[shardOf(one.url, bits)]!.push({ url: one.url, text: one.line(leaf) });
  }
  const index = await writeIndexOf(store, shards, cards, log.size);
  const { index: indexLeaf } = await put(index);
  const root = await log.flush();
  const keys = checkpointKeys(ORIGIN, SIGNERS);
  await store.create(
    "checkpoint",
    signCheckpoint({ origin: ORIGIN, size: log.size, root }, keys.log, keys.witness, new Date(AT)),
  );
  const { n, key, sha256 } = keysLeaf;
  await store.create("hint/keys.json", canonicalBytes({ n, key, sha256, leaf: 0 }));
  await store.create(
    "hint/index.json",
    canonicalBytes({ tree_size: index.tree_size, key: index.key, leaf: indexLeaf }),
  );
  await store.close();
  const vkeys = { log: formatVkey(keys.log, ED25519), witness: formatVkey(keys.witness, COSIGNATURE) };
  const made = { dir, keys: vkeys, leaves: log.size, cards };
  await writeFile(join(dir, "record.json"), JSON.stringify(made));
  return { ...made, remove: async () => void (kept ?? (await rm(dir, { recursive: true, force: true }))) };
}

type KeysNamed = { n: number; key: string; sha256: string };

/** A record that {@link makeRecord} left in this folder, or null where there is none; it stays. */
export async function openRecord(dir: string): Promise<BenchRecord | null> {
  const text = await readFile(join(dir, "record.json"), "utf8").catch(() => null);
  return text === null ? null : { ...(JSON.parse(text) as BenchRecord), dir, remove: async () => undefined };
}

/** Shards and their signed list, as pipelines/4-publish/index-build.ts writes them from a fold. */
async function writeIndexOf(
  store: Store,
  members: { url: string; text: string }[][],
  lines: number,
  tree_size: number,
) {
  const bits = Math.log2(members.length);
  const shards: { sha256: string; lines: number; bytes: number }[] = [];
  for (const of of members) {
    const text = Buffer.from(
      of
        .sort((a, b) => (a.url < b.url ? -1 : 1))
        .map((one) => `${one.text}\n`)
        .join(""),
    );
    of.length = 0;
    const sha256 = sha256hex(text);
    shards.push({ sha256, lines: text.toString("latin1").split("\n").length - 1, bytes: text.length });
    await store.create(shardKey(sha256), compress(text, { compressionLevel: 3 }));
  }
  const list = { schema: "svc.index.v1", tree_size, computed_at: AT, lines, bits, shards };
  const bytes = canonicalBytes(signObject(SIGNERS.cards, list), { published: true });
  const key = indexKey(tree_size);
  await store.create(key, bytes);
  return { kind: "index" as const, key, sha256: sha256hex(bytes), bytes: bytes.length, tree_size };
}

/** Listing and card of endpoint i. */
export function endpoint(i: number): Draft[] {
  const one = endpointText(i);
  return [one.listing(0, 0), one.grade(0, 0)].map((text) => {
    const { index: _, seq: __, at: ___, ...draft } = JSON.parse(text) as Leaf;
    return draft as Draft;
  });
}

/** The quick texts are those that the record itself would print. */
function compare(): void {
  for (const i of [0, 1, 2, 9_973, 123_456]) {
    const one = endpointText(i);
    const fold = new PublishedFold();
    const texts = [one.listing(0, 0), one.grade(1, 0)];
    for (const text of texts) {
      if (canonicalText(JSON.parse(text)) !== text) throw new Error(`not RFC 8785: ${text}`);
      fold.apply(JSON.parse(text) as Leaf);
    }
    const { card } = JSON.parse(texts[1]!) as { card: object };
    if (canonicalText(card) !== canonicalText(signedCard(i))) throw new Error(`card ${i} is another`);
    const cap = fold.caps.get(one.capability_id)!;
    const line = lineText({ listing: cap.listing!, headline: headlineOf(cap) });
    if (line !== one.line(1)) throw new Error(`index line ${i}: ${one.line(1)} instead of ${line}`);
  }
}
