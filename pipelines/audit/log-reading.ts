import { compress } from "zstd-napi";
import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import { createYielder, forEachConcurrent } from "../../infra/concurrency.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { endpointOf } from "../published/endpoint.ts";
import { parseJson, Unproven } from "../published/errors.ts";
import { fetchNamed } from "../published/files.ts";
import { PublishedFold } from "../published/fold.ts";
import {
  fetchShard,
  type IndexEntry,
  indexEntryOf,
  lineText,
  parseIndexList,
  type ShardLine,
  shardBits,
  shardOf,
  sortEntries,
  unpackShard,
} from "../published/index-lines.ts";
import { createIndexTable } from "../published/index-table.ts";
import { verifySignature } from "../published/keys.ts";
import { readProvenLeaves } from "../published/leaves.ts";
import { shardKey } from "../published/objects.ts";
import type { Source } from "../published/source.ts";
import type { IndexLeaf, Leaf } from "../record/leaf.ts";
import { Check, canonicalTextIn, type Finding, type PackedBytesCheck, problemOf } from "./findings.ts";
import { type GatheredRecord, RecordGatherer } from "./gather.ts";
import { LogAudit } from "./log.ts";

/** Passes each leaf of the log to three checks: the rules of the log, the rebuilt indexes, and the recomputed cards. */
export class LogReading {
  readonly logAudit: LogAudit;
  readonly #indexes: IndexAudit;
  readonly #gatherer: RecordGatherer;
  /** True after a leaf that could not be used. Indexes and cards computed from later leaves could then be wrong. */
  #hasUnusableLeaf = false;
  /** True when leaves were skipped because they could not be proven. */
  hasHoles = false;
  #gatherError: { error: unknown } | null = null;

  constructor(
    private readonly source: Source,
    size: number,
    private readonly packing: PackedBytesCheck,
    private readonly maxHeldChanges?: number,
  ) {
    this.logAudit = new LogAudit(source);
    this.#indexes = new IndexAudit(source, packing, maxHeldChanges);
    this.#gatherer = new RecordGatherer(source, "all", size, false);
  }

  /** Checks the next entry, the bytes of a leaf. */
  async add(entry: Buffer): Promise<void> {
    const leaf = await this.logAudit.add(entry);
    if (!leaf) this.#hasUnusableLeaf = true;
    if (!leaf || this.#hasUnusableLeaf) return;
    // An index is computed from all leaves below its size, so none can be rebuilt after skipped leaves.
    if (!this.hasHoles) await this.#indexes.add(leaf, this.logAudit.jwks, this.logAudit.fold);
    else if (leaf.kind === "index") this.#indexes.check.countNotRun("leaves below them are unread");
    if (this.#gatherError) return;
    await this.#gatherer.add(leaf).catch((error: unknown) => {
      this.#gatherError = { error };
    });
  }

  /** Skips `count` leaves from `index` on, which cannot be read. */
  skip(index: number, count: number): void {
    this.hasHoles = true;
    this.logAudit.skip(count);
    this.#gatherer.skip(index);
  }

  /**
   * Called after the last leaf. The caller has found that the root over all entries is the signed one, or has skipped
   * leaves.
   */
  async end(head: { size: number; root: Buffer }, onProgress: (text: string) => void): Promise<void> {
    await this.logAudit.end();
    await this.#indexes.end();
    if (this.#indexes.lateIndexes.length > 0 && this.#isSound) await this.#readLateIndexes(head, onProgress);
  }

  /** Reads the log again to rebuild the late indexes ({@link IndexAudit.lateIndexes}), in the order of their sizes. */
  async #readLateIndexes(head: { size: number; root: Buffer }, onProgress: (text: string) => void): Promise<void> {
    const secondAudit = new IndexAudit(this.source, this.packing, this.maxHeldChanges, this.#indexes);
    const fold = new PublishedFold();
    const lateIndexes = this.#indexes.lateIndexes.sort((a, b) => a.leaf.tree_size - b.leaf.tree_size);
    try {
      for await (const { index, leaf, bytes } of readProvenLeaves(this.source, head)) {
        while (lateIndexes[0] && lateIndexes[0].leaf.tree_size <= index)
          await secondAudit.checkIndex(lateIndexes.shift()!);
        if (lateIndexes.length === 0) return;
        fold.apply(leaf, bytes);
        secondAudit.holdChange(leaf, fold);
        onProgress(`indexes, once more: ${index} of ${head.size} leaves`);
      }
    } catch (error) {
      // A tile or segment is broken. Another check has reported it.
      if (!problemOf(error)) throw error;
      this.#indexes.check.countNotRun("the leaves below them cannot be read once more", lateIndexes.length);
    }
  }

  get #isSound(): boolean {
    return !this.#hasUnusableLeaf && !this.hasHoles && this.logAudit.leaves.finding.result === "ok";
  }

  /** The endpoints with their cards and evidence. @throws Unproven for leaves that contradict each other */
  gatheredRecord(): GatheredRecord {
    if (this.#gatherError) throw this.#gatherError.error;
    return this.#gatherer.finish();
  }

  /**
   * The findings of all checks. Those of indexes are left out after an unusable leaf; after skipped leaves they are
   * `not run`.
   */
  get findings(): Finding[] {
    return [...this.logAudit.findings, ...(this.#isSound || this.hasHoles ? this.#indexes.findings : [])];
  }
}

/** An index leaf and the keys that are valid at its position. */
interface NamedIndex {
  leaf: IndexLeaf;
  jwks: Jwks | null;
}

/**
 * The change that one leaf makes to the index: an endpoint and its new entry. `entry` is null for an endpoint that is
 * not listed, `cap` for a leaf that is about no endpoint.
 */
interface HeldChange {
  at: string;
  cap: string | null;
  entry: IndexEntry | null;
}

/**
 * Largest number of leaves whose changes are held back. An index leaf names a tree size up to its own position, and
 * changes of the leaves from that size on are not in its index.
 */
const MAX_HELD_CHANGES = 1 << 18;
/** Number of shards that are read at once. */
const SHARDS_AT_ONCE = 8;

/** Index entry -> text of its line, kept since entries never change. */
type LineCache = WeakMap<IndexEntry, string>;

function lineOf(entry: IndexEntry, cache: LineCache): string {
  const line = cache.get(entry) ?? `${lineText(entry)}\n`;
  cache.set(entry, line);
  return line;
}

/** Groups the entries by shard. Each group is sorted like the lines of its shard. */
function groupByShard(entries: readonly IndexEntry[]): IndexEntry[][] {
  const bits = shardBits(entries.length);
  const entriesByShard = Array.from({ length: 2 ** bits }, (): IndexEntry[] => []);
  for (const entry of entries) entriesByShard[shardOf(entry.listing.url, bits)]!.push(entry);
  return entriesByShard.map(sortEntries);
}

/** Computes the list of shards of the market index with these entries. */
export const computeIndexList = (entries: readonly IndexEntry[], cache: LineCache = new WeakMap()) =>
  indexListOf(groupByShard(entries), cache);

/** @param entriesByShard entries of each shard, in the order of its lines */
function indexListOf(entriesByShard: readonly IndexEntry[][], cache: LineCache) {
  const shards = entriesByShard.map((entries): ShardLine => {
    const text = Buffer.from(entries.map((entry) => lineOf(entry, cache)).join(""));
    return { sha256: sha256hex(text), lines: entries.length, bytes: text.length };
  });
  return { bits: Math.log2(entriesByShard.length), lines: shards.reduce((sum, { lines }) => sum + lines, 0), shards };
}

/**
 * Rebuilds every published index byte for byte from the leaves below its size, and reads each shard (file of lines)
 * unless the previous index has it too. An index leaf may follow leaves that are not in its index, so the changes of
 * the newest leaves are held back.
 */
class IndexAudit {
  readonly check: Check;
  readonly shards: Check;
  readonly tables: Check;
  /** Set when the Parquet file of the newest index is missing. The files of older indexes may be missing. */
  #missingTable: MissingObject | null = null;
  /**
   * Indexes that a second reading has to rebuild: when their leaf was read, changes of leaves at or above their size
   * had been applied.
   */
  readonly lateIndexes: NamedIndex[] = [];
  /** State after the leaves whose changes were applied: their number, the time of the last of them, and the entries. */
  #size = 0;
  #newestAt = "";
  readonly #entries = new Map<string, IndexEntry>();
  readonly #lineCache: LineCache = new WeakMap();
  #heldChanges: HeldChange[] = [];
  /** Hashes of the shards of the previous index, which were read with it. */
  #readShardHashes = new Set<string>();

  constructor(
    private readonly source: Source,
    private readonly packing: PackedBytesCheck,
    private readonly maxHeldChanges = MAX_HELD_CHANGES,
    /** For a second reading: the audit of the first reading, whose checks continue. */
    firstAudit?: IndexAudit,
  ) {
    this.check = firstAudit?.check ?? new Check("indexes, rebuilt from the log");
    this.shards = firstAudit?.shards ?? new Check("index shards");
    this.tables = firstAudit?.tables ?? new Check("index tables (Parquet)");
  }

  /** Adds the next leaf. @param jwks keys valid at its position @param fold state after this leaf */
  async add(leaf: Leaf, jwks: Jwks | null, fold: PublishedFold): Promise<void> {
    if (leaf.kind === "index") await this.checkIndex({ leaf, jwks });
    this.holdChange(leaf, fold);
  }

  /** Holds back the change of the next leaf. */
  holdChange(leaf: Leaf, fold: PublishedFold): void {
    const cap = endpointOf(leaf);
    this.#heldChanges.push({ at: leaf.at, cap, entry: cap === null ? null : indexEntryOf(fold.caps.get(cap)!) });
    if (this.#heldChanges.length >= this.maxHeldChanges) this.#advance(this.#size + Math.ceil(this.maxHeldChanges / 2));
  }

  /** Checks the index that a leaf names, or adds it to `lateIndexes`. */
  async checkIndex(namedIndex: NamedIndex): Promise<void> {
    const { tree_size: size, index, key } = namedIndex.leaf;
    if (size < this.#size) {
      this.lateIndexes.push(namedIndex);
      return;
    }
    await this.check.runStep(async () => {
      if (size > index) throw new Unproven(key, `an index of leaves below ${index}`, `tree_size ${size}`);
      this.#advance(size);
      // The rebuilt index is computed from the log alone, not from the published list.
      const entriesByShard = groupByShard([...this.#entries.values()]);
      await this.#compareTable(namedIndex.leaf, entriesByShard);
      await this.#compareIndex(namedIndex, entriesByShard);
    });
  }

  /** Applies the held changes of the leaves below position `size`. */
  #advance(size: number): void {
    const count = size - this.#size;
    for (const { at, cap, entry } of this.#heldChanges.slice(0, count)) {
      this.#newestAt = at;
      if (cap === null) continue;
      if (entry) this.#entries.set(cap, entry);
      else this.#entries.delete(cap);
    }
    this.#heldChanges = this.#heldChanges.slice(count);
    this.#size = size;
  }

  async #compareIndex({ leaf, jwks }: NamedIndex, entriesByShard: readonly IndexEntry[][]): Promise<void> {
    const { bits, lines, shards } = indexListOf(entriesByShard, this.#lineCache);
    const readShards = async () => {
      await this.#readShards(shards.filter(({ sha256 }) => !this.#readShardHashes.has(sha256)));
      this.#readShardHashes = new Set(shards.map(({ sha256 }) => sha256));
    };
    const bytes = await fetchNamed(this.source, leaf, "indexList").catch(async (error: unknown) => {
      // If the published list is broken, the shards are known from the rebuilt index.
      if (problemOf(error)) await readShards();
      throw error;
    });
    const list = parseJson(bytes);
    const parsedList = parseIndexList(leaf.key, list);
    const { signature: _, signing_key_id: __, canonicalization: ___, ...unsigned } = list as Record<string, unknown>;
    const expectedList = {
      schema: "svc.index.v1",
      tree_size: this.#size,
      computed_at: this.#newestAt,
      lines,
      bits,
      shards,
    };
    const [expected, got] = [canonicalText(expectedList), canonicalTextIn(leaf.key, unsigned)];
    if (expected !== got) {
      throw new Unproven(leaf.key, `sha256 ${sha256hex(expected)} by the log`, sha256hex(got));
    }
    await readShards();
    verifySignature(leaf.key, jwks, list, parsedList.computed_at);
  }

  /**
   * Makes the Parquet file of an index again and compares the hashes. The publisher may have deleted the file of an
   * older index.
   */
  async #compareTable({ index, table }: IndexLeaf, entriesByShard: readonly IndexEntry[][]): Promise<void> {
    this.#missingTable = null;
    if (!table) return;
    const bytes = await fetchNamed(this.source, { ...table, index }, "indexTable").catch(
      (error: unknown) => error as Error,
    );
    if (bytes instanceof MissingObject) {
      this.#missingTable = bytes;
      return;
    }
    await this.tables.runStep(async () => {
      if (bytes instanceof Error) throw bytes;
      const rebuiltHash = sha256hex(
        await createIndexTable(
          entriesByShard.flat(),
          { tree_size: this.#size, computed_at: this.#newestAt },
          createYielder(),
        ),
      );
      if (rebuiltHash !== table.sha256) throw new Unproven(table.key, `sha256 ${rebuiltHash} by the log`, table.sha256);
    });
  }

  /** Called after the last leaf. A missing Parquet file of the newest index becomes a problem. */
  async end(): Promise<void> {
    const missingTable = this.#missingTable;
    if (missingTable) await this.tables.runStep(() => Promise.reject(missingTable));
  }

  async #readShards(shards: readonly ShardLine[]): Promise<void> {
    const shardsByHash = new Map(shards.map((line) => [line.sha256, line]));
    await forEachConcurrent(shardsByHash.values(), SHARDS_AT_ONCE, (line) =>
      this.shards.runStep(async () => {
        const packed = await fetchShard(this.source, line);
        const text = await unpackShard(packed, line);
        const repackedBytes = compress(text, { compressionLevel: 3 });
        this.packing.add("index shards", shardKey(line.sha256), packed, repackedBytes);
      }),
    );
  }

  get findings(): Finding[] {
    return [this.check.finding, this.shards.finding, this.tables.finding];
  }
}
