import { compress } from "zstd-napi";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import { createYielder, forEachConcurrent, forEachYielding, type YieldToOthers } from "../../infra/concurrency.ts";
import { type Signer, signObject } from "../../infra/keys/signer.ts";
import type { Store } from "../../infra/store/store.ts";
import type { PublishedCap } from "../published/caps.ts";
import type { PublishedFold } from "../published/fold.ts";
import { type IndexEntry, indexEntryOf, lineText, shardBits, shardOf, sortEntries } from "../published/index-lines.ts";
import { createIndexTable } from "../published/index-table.ts";
import { indexKey, indexTableKey, shardKey } from "../published/objects.ts";
import type { IndexLeaf } from "../record/leaf.ts";
import type { Draft } from "./leaves.ts";
import { contentHashOf, PublicConflict, putPublic } from "./writes.ts";

/**
 * Number of shards (files of index lines) that are written at the same time. It bounds the memory for an index of any
 * size.
 */
const SHARDS_AT_ONCE = 8;
/** Number of endpoints that are counted or assigned to shards before other work gets its turn: a few milliseconds. */
const ENDPOINTS_PER_TURN = 1_024;
/** Number of index lines that are formatted before other work of the process gets its turn: a few milliseconds. */
const LINES_PER_TURN = 256;

/** Entry of a shard in the signed list of the index; `sha256` and `bytes` are of the uncompressed lines. */
interface NamedShard {
  sha256: string;
  lines: number;
  bytes: number;
}

/**
 * Writes the market index of the present published state: new shards, then the signed list `index/<tree_size>.json`,
 * then the lines as one Parquet file. All bytes are determined by the leaves below `tree_size`. The work visits every
 * endpoint, so it is done hourly, in small pieces between which publications and answers of the same process go on.
 * @param giveTurn awaited before each piece of a few milliseconds
 * @returns the leaf that names the index, for the next publication; null when the newest index has this size already
 * @throws PublicConflict when a stored shard does not match its name
 */
export async function writeIndex(
  store: Store,
  fold: PublishedFold,
  cardSigner: Signer,
  giveTurn: YieldToOthers = createYielder(),
): Promise<Draft | null> {
  if (fold.size === 0 || fold.index?.tree_size === fold.size) return null;
  // Read before the first pause, since publications may change `fold` during pauses.
  const { size: tree_size, newest } = fold;
  const snapshot = new IndexSnapshot(fold);
  try {
    const { bits, lines, capsByShard } = await groupByShard(snapshot, giveTurn);
    const shards = await writeShards(store, snapshot, capsByShard, giveTurn);
    // `computed_at` is the time of the newest leaf: the signing key must have been valid then (publication.md, Exact
    // forms).
    const list = { schema: "svc.index.v1", tree_size, computed_at: newest, lines, bits, shards };
    const bytes = canonicalBytes(signObject(cardSigner, list), { published: true });
    const key = indexKey(tree_size);
    await putPublic(store, key, bytes);
    const table = await writeTable(store, snapshot, capsByShard, { tree_size, computed_at: newest }, giveTurn);
    return { kind: "index", key, sha256: sha256hex(bytes), bytes: bytes.length, tree_size, table };
  } finally {
    snapshot.end();
  }
}

/**
 * Groups the listed endpoints by shard. It counts the endpoints first, since the number of shards depends on the count.
 */
async function groupByShard(
  snapshot: IndexSnapshot,
  giveTurn: YieldToOthers,
): Promise<{ bits: number; lines: number; capsByShard: PublishedCap[][] }> {
  let lines = 0;
  const countIfListed = (cap: PublishedCap): void => {
    if (snapshot.entryOf(cap)) lines++;
  };
  await forEachYielding(snapshot.caps(), ENDPOINTS_PER_TURN, countIfListed, giveTurn);
  const bits = shardBits(lines);
  const capsByShard: PublishedCap[][] = Array.from({ length: 2 ** bits }, () => []);
  const assignToShard = (cap: PublishedCap): void => {
    const entry = snapshot.entryOf(cap);
    if (entry) capsByShard[shardOf(entry.listing.url, bits)]!.push(cap);
  };
  await forEachYielding(snapshot.caps(), ENDPOINTS_PER_TURN, assignToShard, giveTurn);
  return { bits, lines, capsByShard };
}

/** Writes the shards. After a failure no further shard is begun, and all writes have ended when this throws. */
async function writeShards(
  store: Store,
  snapshot: IndexSnapshot,
  capsByShard: readonly (readonly PublishedCap[])[],
  giveTurn: YieldToOthers,
): Promise<NamedShard[]> {
  const shards: NamedShard[] = [];
  const buffers: TextBuffer[] = [];
  await forEachConcurrent(capsByShard.entries(), SHARDS_AT_ONCE, async ([n, caps]) => {
    const buffer = buffers.pop() ?? new TextBuffer();
    shards[n] = await writeShard(store, snapshot, caps, buffer, giveTurn);
    buffers.push(buffer);
  });
  return shards;
}

/**
 * Writes the index lines as one Parquet file, in the order of the shards.
 * @returns key, hash and size for the index's leaf
 */
async function writeTable(
  store: Store,
  snapshot: IndexSnapshot,
  capsByShard: readonly (readonly PublishedCap[])[],
  index: { tree_size: number; computed_at: string },
  giveTurn: YieldToOthers,
): Promise<NonNullable<IndexLeaf["table"]>> {
  const entries = function* () {
    for (const caps of capsByShard) yield* sortEntries(caps.map((cap) => snapshot.entryOf(cap)!));
  };
  const bytes = await createIndexTable(entries(), index, giveTurn);
  const sha256 = sha256hex(bytes);
  const key = indexTableKey(index.tree_size, sha256);
  await putPublic(store, key, bytes);
  return { key, sha256, bytes: bytes.length };
}

async function writeShard(
  store: Store,
  snapshot: IndexSnapshot,
  caps: readonly PublishedCap[],
  buffer: TextBuffer,
  giveTurn: YieldToOthers,
): Promise<NamedShard> {
  const entries = sortEntries(caps.map((cap) => snapshot.entryOf(cap)!));
  buffer.clear();
  await forEachYielding(entries, LINES_PER_TURN, (entry) => buffer.add(`${lineText(entry)}\n`), giveTurn);
  const sha256 = sha256hex(buffer.bytes);
  const key = shardKey(sha256);
  // The key is the hash of the uncompressed bytes, since versions of zstd compress differently.
  const hasSameContent = async (storedBytes: Uint8Array): Promise<boolean> =>
    (await contentHashOf(storedBytes)) === sha256;
  const storedShard = await store.get(key);
  await giveTurn();
  if (!storedShard) await putPublic(store, key, compress(buffer.bytes, { compressionLevel: 3 }), hasSameContent);
  else if (!(await hasSameContent(storedShard.bytes))) throw new PublicConflict(key);
  return { sha256, lines: entries.length, bytes: buffer.bytes.length };
}

/**
 * The index entries as they were when the snapshot was made, while the published state goes on changing. An entry is
 * copied just before it changes for the first time, so nothing has to be copied at the beginning.
 */
class IndexSnapshot {
  readonly #entriesBeforeChange = new Map<string, IndexEntry | null>();
  /** Ends the snapshot; no other member may be used afterwards. */
  readonly end: () => void;

  constructor(private readonly fold: PublishedFold) {
    this.end = fold.onChange((name) => {
      if (this.#entriesBeforeChange.has(name)) return;
      const cap = fold.caps.get(name);
      this.#entriesBeforeChange.set(name, cap ? indexEntryOf(cap) : null);
    });
  }

  /** All endpoints of the fold. For those that were added after the snapshot, {@link entryOf} returns null. */
  caps(): Iterable<PublishedCap> {
    return this.fold.caps.values();
  }

  /** The entry of an endpoint in the snapshot; null when it was not listed then. */
  entryOf(cap: PublishedCap): IndexEntry | null {
    const savedEntry = this.#entriesBeforeChange.get(cap.cap);
    return savedEntry === undefined ? indexEntryOf(cap) : savedEntry;
  }
}

/** Initial size of a {@link TextBuffer}, bytes. */
const INITIAL_BYTES = 512 * 1024;

/**
 * A text buffer that is reused from one object to the next. Fresh buffers of hundreds of KiB for each shard of a large
 * index count as external memory and made V8 run a full garbage collection every few dozen shards, which stalled the
 * process for seconds.
 */
export class TextBuffer {
  #memory = Buffer.allocUnsafeSlow(INITIAL_BYTES);
  #length = 0;

  /** The text added since the last {@link clear}. The memory is reused, so it must be read before the next `clear`. */
  get bytes(): Buffer {
    return this.#memory.subarray(0, this.#length);
  }

  clear(): void {
    this.#length = 0;
  }

  add(text: string): void {
    // UTF-8 takes three bytes for a UTF-16 unit at most.
    const neededBytes = this.#length + 3 * text.length;
    if (neededBytes > this.#memory.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(neededBytes, 2 * this.#memory.length));
      this.#memory.copy(larger, 0, 0, this.#length);
      this.#memory = larger;
    }
    this.#length += this.#memory.write(text, this.#length);
  }
}
