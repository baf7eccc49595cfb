import { compress } from "zstd-napi";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import { createYielder, forEachConcurrent, forEachYielding, type YieldToOthers } from "../../infra/concurrency.ts";
import { type Signer, signObject } from "../../infra/keys/signer.ts";
import type { Store } from "../../infra/store/store.ts";
import type { PublishedCap } from "../published/caps.ts";
import type { PublishedFold } from "../published/fold.ts";
import { type IndexEntry, indexEntryOf, lineText, shardBits, shardOf, sortEntries } from "../published/index-lines.ts";
import { indexTable } from "../published/index-table.ts";
import { indexKey, indexTableKey, shardKey } from "../published/objects.ts";
import type { IndexLeaf } from "../record/leaf.ts";
import type { Draft } from "./leaves.ts";
import { contentOf, PublicConflict, putPublic } from "./writes.ts";

/** Shards on their way at once: so many are in memory, however large the index. */
const SHARDS_AT_ONCE = 8;
/** Endpoints that are counted, or put in their shard, between two turns of others: a few milliseconds. */
const COUNTED_AT_ONCE = 1_024;
/** Lines that are printed between two turns of others: a few milliseconds. */
const LINES_AT_ONCE = 256;

/** A shard as the list names it. */
interface Named {
  sha256: string;
  lines: number;
  bytes: number;
}

/**
 * Write the index of the fold as it is now: shards that are new, the signed list `index/<tree_size>.json`, then its lines as
 * one Parquet file.
 * Everything in both follows from the log below `tree_size`. All endpoints are gone through, so it is made hourly, and in
 * turns, so that publications and answers of the same process go on meanwhile.
 * @param giveTurn asked before each piece of work, which takes a few milliseconds however large the index
 * @returns the leaf that names it, to ride along with the next publication; null when the newest index has this size.
 * @throws PublicConflict when a shard that is there is not what its name says
 */
export async function writeIndex(
  store: Store,
  fold: PublishedFold,
  cards: Signer,
  giveTurn: YieldToOthers = createYielder(),
): Promise<Draft | null> {
  if (fold.size === 0 || fold.index?.tree_size === fold.size) return null;
  // Read before the first turn: the log may go on below.
  const { size: tree_size, newest } = fold;
  const moment = new IndexMoment(fold);
  try {
    const { bits, lines, members } = await membersOfShards(moment, giveTurn);
    const shards = await writeShards(store, moment, members, giveTurn);
    // A signature is verified at the time of the newest leaf below (publication.md, Exact forms).
    const list = { schema: "svc.index.v1", tree_size, computed_at: newest, lines, bits, shards };
    const bytes = canonicalBytes(signObject(cards, list), { published: true });
    const key = indexKey(tree_size);
    await putPublic(store, key, bytes);
    const table = await writeTable(store, moment, members, { tree_size, computed_at: newest }, giveTurn);
    return { kind: "index", key, sha256: sha256hex(bytes), bytes: bytes.length, tree_size, table };
  } finally {
    moment.end();
  }
}

/** Sorts endpoints by shard. They are counted first, since the number of shards follows from theirs. */
async function membersOfShards(
  moment: IndexMoment,
  giveTurn: YieldToOthers,
): Promise<{ bits: number; lines: number; members: PublishedCap[][] }> {
  let lines = 0;
  const count = (cap: PublishedCap): void => {
    if (moment.entryOf(cap)) lines++;
  };
  await forEachYielding(moment.caps(), COUNTED_AT_ONCE, count, giveTurn);
  const bits = shardBits(lines);
  const members: PublishedCap[][] = Array.from({ length: 2 ** bits }, () => []);
  const place = (cap: PublishedCap): void => {
    const entry = moment.entryOf(cap);
    if (entry) members[shardOf(entry.listing.url, bits)]!.push(cap);
  };
  await forEachYielding(moment.caps(), COUNTED_AT_ONCE, place, giveTurn);
  return { bits, lines, members };
}

/** After a failure no further shard is begun, and nothing is under way any more when this throws. */
async function writeShards(
  store: Store,
  moment: IndexMoment,
  members: readonly (readonly PublishedCap[])[],
  giveTurn: YieldToOthers,
): Promise<Named[]> {
  const shards: Named[] = [];
  const pages: Page[] = [];
  await forEachConcurrent(members.entries(), SHARDS_AT_ONCE, async ([n, caps]) => {
    const page = pages.pop() ?? new Page();
    shards[n] = await writeShard(store, moment, caps, page, giveTurn);
    pages.push(page);
  });
  return shards;
}

/** The lines as one Parquet file, in the order of the shards. @returns as the leaf of the index names it */
async function writeTable(
  store: Store,
  moment: IndexMoment,
  members: readonly (readonly PublishedCap[])[],
  index: { tree_size: number; computed_at: string },
  giveTurn: YieldToOthers,
): Promise<NonNullable<IndexLeaf["table"]>> {
  const entries = function* () {
    for (const caps of members) yield* sortEntries(caps.map((cap) => moment.entryOf(cap)!));
  };
  const bytes = await indexTable(entries(), index, giveTurn);
  const sha256 = sha256hex(bytes);
  const key = indexTableKey(index.tree_size, sha256);
  await putPublic(store, key, bytes);
  return { key, sha256, bytes: bytes.length };
}

async function writeShard(
  store: Store,
  moment: IndexMoment,
  caps: readonly PublishedCap[],
  page: Page,
  giveTurn: YieldToOthers,
): Promise<Named> {
  const entries = sortEntries(caps.map((cap) => moment.entryOf(cap)!));
  page.clear();
  await forEachYielding(entries, LINES_AT_ONCE, (entry) => page.add(`${lineText(entry)}\n`), giveTurn);
  const sha256 = sha256hex(page.bytes);
  const key = shardKey(sha256);
  // The key is the hash of the unpacked bytes: compressors differ between versions.
  const same = async (theirs: Uint8Array): Promise<boolean> => (await contentOf(theirs)) === sha256;
  const theirs = await store.get(key);
  await giveTurn();
  if (!theirs) await putPublic(store, key, compress(page.bytes, { compressionLevel: 3 }), same);
  else if (!(await same(theirs.bytes))) throw new PublicConflict(key);
  return { sha256, lines: entries.length, bytes: page.bytes.length };
}

/**
 * The entries of the index at one moment, while the fold goes on. Only entries that change meanwhile are kept as they
 * were, so nothing has to be copied at the beginning.
 */
class IndexMoment {
  readonly #changed = new Map<string, IndexEntry | null>();
  /** No longer keeps what changes; nothing may be asked after it. */
  readonly end: () => void;

  constructor(private readonly fold: PublishedFold) {
    this.end = fold.onChange((name) => {
      if (this.#changed.has(name)) return;
      const cap = fold.caps.get(name);
      this.#changed.set(name, cap ? indexEntryOf(cap) : null);
    });
  }

  /** Endpoints that may be listed, those that came later among them: they have no entry. */
  caps(): Iterable<PublishedCap> {
    return this.fold.caps.values();
  }

  /** The entry of an endpoint at the moment; null when it was not listed then. */
  entryOf(cap: PublishedCap): IndexEntry | null {
    const before = this.#changed.get(cap.cap);
    return before === undefined ? indexEntryOf(cap) : before;
  }
}

/** Text that a page has room for at first. */
const FIRST_BYTES = 512 * 1024;

/**
 * Text of one object after another in the same memory. V8 counts what lies outside its heap: fresh buffers of a large
 * index, hundreds of KiB each, made it mark the whole fold every few dozen shards, which stalled the process for seconds.
 */
export class Page {
  #memory = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #length = 0;

  /** What was added since the last {@link clear}; the same memory, so it is read before the next. */
  get bytes(): Buffer {
    return this.#memory.subarray(0, this.#length);
  }

  clear(): void {
    this.#length = 0;
  }

  add(text: string): void {
    // UTF-8 takes three bytes for a UTF-16 unit at most.
    const most = this.#length + 3 * text.length;
    if (most > this.#memory.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(most, 2 * this.#memory.length));
      this.#memory.copy(larger, 0, 0, this.#length);
      this.#memory = larger;
    }
    this.#length += this.#memory.write(text, this.#length);
  }
}
