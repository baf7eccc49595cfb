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
  IndexList,
  indexEntryOf,
  lineText,
  type ShardLine,
  shardBits,
  shardOf,
  sortEntries,
  unpackShard,
} from "../published/index-lines.ts";
import { indexTable } from "../published/index-table.ts";
import { verifySignature } from "../published/keys.ts";
import { readProvenLeaves } from "../published/leaves.ts";
import { shardKey } from "../published/objects.ts";
import type { Source } from "../published/source.ts";
import type { IndexLeaf, Leaf } from "../record/leaf.ts";
import { Check, type Finding, type Packing, problemOf } from "./findings.ts";
import { type Gathered, Gathering } from "./gather.ts";
import { LogAudit } from "./log.ts";

/** What one reading of the log is good for: its rules, its indexes, and what the cards are recomputed from. */
export class LogReading {
  readonly rules: LogAudit;
  readonly #indexes: IndexAudit;
  readonly #gathering: Gathering;
  /** Set by the first leaf that nothing further can stand on. */
  #unreadable = false;
  /** Leaves were left out that nothing proves any more. */
  hasHoles = false;
  #fault: { error: unknown } | null = null;

  constructor(
    private readonly source: Source,
    size: number,
    private readonly packing: Packing,
    private readonly maxHeld?: number,
  ) {
    this.rules = new LogAudit(source);
    this.#indexes = new IndexAudit(source, packing, maxHeld);
    this.#gathering = new Gathering(source, "all", size, false);
  }

  /** The next entry. */
  async add(entry: Buffer): Promise<void> {
    const leaf = await this.rules.add(entry);
    if (!leaf) this.#unreadable = true;
    if (!leaf || this.#unreadable) return;
    // An index is made of every leaf below it.
    if (!this.hasHoles) await this.#indexes.add(leaf, this.rules.jwks, this.rules.fold);
    else if (leaf.kind === "index") this.#indexes.check.notRun("leaves below them are unread");
    if (this.#fault) return;
    await this.#gathering.add(leaf).catch((error: unknown) => {
      this.#fault = { error };
    });
  }

  /** So many leaves cannot be read. */
  skip(index: number, count: number): void {
    this.hasHoles = true;
    this.rules.skip(count);
    this.#gathering.skip(index);
  }

  /** The root over all entries was the signed one. */
  async end(head: { size: number; root: Buffer }, onProgress: (text: string) => void): Promise<void> {
    await this.rules.end();
    await this.#indexes.end();
    if (this.#indexes.late.length > 0 && this.#sound) await this.#again(head, onProgress);
  }

  /** Indexes that were published further behind their leaves than were held: read once more, now in order of their sizes. */
  async #again(head: { size: number; root: Buffer }, onProgress: (text: string) => void): Promise<void> {
    const again = new IndexAudit(this.source, this.packing, this.maxHeld, this.#indexes);
    const fold = new PublishedFold();
    const late = this.#indexes.late.sort((a, b) => a.leaf.tree_size - b.leaf.tree_size);
    try {
      for await (const { index, leaf, bytes } of readProvenLeaves(this.source, head)) {
        while (late[0] && late[0].leaf.tree_size <= index) await again.named(late.shift()!);
        if (late.length === 0) return;
        fold.apply(leaf, bytes);
        again.hold(leaf, fold);
        onProgress(`indexes, once more: ${index} of ${head.size} leaves`);
      }
    } catch (error) {
      // A tile or segment, and the check of those has told of it.
      if (!problemOf(error)) throw error;
      this.#indexes.check.notRun("the leaves below them cannot be read once more", late.length);
    }
  }

  get #sound(): boolean {
    return !this.#unreadable && !this.hasHoles && this.rules.leaves.finding.result === "ok";
  }

  /** Endpoints with their cards and evidence. @throws Unproven for leaves that do not go together */
  gathered(): Gathered {
    if (this.#fault) throw this.#fault.error;
    return this.#gathering.found();
  }

  /** A log with holes has no index to rebuild. */
  get findings(): Finding[] {
    return [...this.rules.findings, ...(this.#sound || this.hasHoles ? this.#indexes.findings : [])];
  }
}

/** An index leaf and the keys that vouch at its position. */
interface NamedIndex {
  leaf: IndexLeaf;
  jwks: Jwks | null;
}

/** What one leaf changed of the index: an endpoint, and its entry then, null when it is not listed. */
interface Held {
  at: string;
  cap: string | null;
  entry: IndexEntry | null;
}

/** Leaves whose changes are held until an index says how many of them it knows: it is published with what came after it. */
const MAX_HELD = 1 << 18;
/** Shards that are read at once. */
const SHARDS_AT_ONCE = 8;

/** Lines that were printed: an entry is replaced, never changed. */
type Printed = WeakMap<IndexEntry, string>;

function lineOf(entry: IndexEntry, printed: Printed): string {
  const line = printed.get(entry) ?? `${lineText(entry)}\n`;
  printed.set(entry, line);
  return line;
}

/** Endpoints by their shard, in the order of its lines. */
function shardMembers(entries: readonly IndexEntry[]): IndexEntry[][] {
  const bits = shardBits(entries.length);
  const members = Array.from({ length: 2 ** bits }, (): IndexEntry[] => []);
  for (const entry of entries) members[shardOf(entry.listing.url, bits)]!.push(entry);
  return members.map(sortEntries);
}

/** The market index of these endpoints: what its list says. */
export const indexOf = (entries: readonly IndexEntry[], printed: Printed = new WeakMap()) =>
  listOf(shardMembers(entries), printed);

/** @param members entries of each shard, in the order of its lines */
function listOf(members: readonly IndexEntry[][], printed: Printed) {
  const shards = members.map((of): ShardLine => {
    const text = Buffer.from(of.map((entry) => lineOf(entry, printed)).join(""));
    return { sha256: sha256hex(text), lines: of.length, bytes: text.length };
  });
  return { bits: Math.log2(members.length), lines: shards.reduce((sum, { lines }) => sum + lines, 0), shards };
}

/**
 * Every index that was published, rebuilt byte for byte from the leaves below it while they go by, and each of its shards
 * read when it is first named. The fold is ahead of the newest index: what the leaves between them changed is held back.
 */
class IndexAudit {
  readonly check: Check;
  readonly shards: Check;
  readonly tables: Check;
  /** Set where the Parquet file of the newest index is gone: those of older ones may be. */
  #goneTable: MissingObject | null = null;
  /** Indexes of sizes that had gone by: a second reading of the log has to rebuild them. */
  readonly late: NamedIndex[] = [];
  /** Leaves below the newest index, the moment of the last of them, and the endpoints that they list. */
  #size = 0;
  #newest = "";
  readonly #entries = new Map<string, IndexEntry>();
  readonly #printed: Printed = new WeakMap();
  #held: Held[] = [];
  /** Shards that were read, of the index before the one that is looked at. */
  #read = new Set<string>();

  constructor(
    private readonly source: Source,
    private readonly packing: Packing,
    private readonly maxHeld = MAX_HELD,
    /** The first reading of this log, whose checks go on. */
    first?: IndexAudit,
  ) {
    this.check = first?.check ?? new Check("indexes, rebuilt from the log");
    this.shards = first?.shards ?? new Check("index shards");
    this.tables = first?.tables ?? new Check("index tables (Parquet)");
  }

  /** The next leaf. @param jwks keys that vouch at its position @param fold the leaves up to it, itself included */
  async add(leaf: Leaf, jwks: Jwks | null, fold: PublishedFold): Promise<void> {
    if (leaf.kind === "index") await this.named({ leaf, jwks });
    this.hold(leaf, fold);
  }

  /** The next leaf, whatever index it names. */
  hold(leaf: Leaf, fold: PublishedFold): void {
    const cap = endpointOf(leaf);
    this.#held.push({ at: leaf.at, cap, entry: cap === null ? null : indexEntryOf(fold.caps.get(cap)!) });
    if (this.#held.length >= this.maxHeld) this.#advance(this.#size + Math.ceil(this.maxHeld / 2));
  }

  /** Look at an index whose size has not gone by. */
  async named(one: NamedIndex): Promise<void> {
    const { tree_size: size, index, key } = one.leaf;
    if (size < this.#size) {
      this.late.push(one);
      return;
    }
    await this.check.look(async () => {
      if (size > index) throw new Unproven(key, `an index of leaves below ${index}`, `tree_size ${size}`);
      this.#advance(size);
      // What follows from the log does not depend on the list.
      const members = shardMembers([...this.#entries.values()]);
      await this.#sameTable(one.leaf, members);
      await this.#same(one, members);
    });
  }

  #advance(size: number): void {
    const count = size - this.#size;
    for (const { at, cap, entry } of this.#held.slice(0, count)) {
      this.#newest = at;
      if (cap === null) continue;
      if (entry) this.#entries.set(cap, entry);
      else this.#entries.delete(cap);
    }
    this.#held = this.#held.slice(count);
    this.#size = size;
  }

  async #same({ leaf, jwks }: NamedIndex, members: readonly IndexEntry[][]): Promise<void> {
    const { bits, lines, shards } = listOf(members, this.#printed);
    const readShards = async () => {
      await this.#readShards(shards.filter(({ sha256 }) => !this.#read.has(sha256)));
      this.#read = new Set(shards.map(({ sha256 }) => sha256));
    };
    const bytes = await fetchNamed(this.source, leaf, "indexList").catch(async (error: unknown) => {
      // A list that is broken hides no shard: which ones it names follows from the log.
      if (problemOf(error)) await readShards();
      throw error;
    });
    const list = parseJson(bytes) as Record<string, unknown> | undefined;
    const read = IndexList.safeParse(list).data;
    if (!list || !read) throw new Unproven(leaf.key, "a list of shards", "something else");
    const { signature: _, signing_key_id: __, canonicalization: ___, ...unsigned } = list;
    const want = { schema: "svc.index.v1", tree_size: this.#size, computed_at: this.#newest, lines, bits, shards };
    const [expected, got] = [canonicalText(want), canonicalText(unsigned)];
    if (expected !== got) {
      throw new Unproven(leaf.key, `sha256 ${sha256hex(expected)} by the log`, sha256hex(got));
    }
    await readShards();
    verifySignature(leaf.key, jwks, list, read.computed_at);
  }

  /** The Parquet file of an index, made again from its entries; that of an older index may be gone by now. */
  async #sameTable({ index, table }: IndexLeaf, members: readonly IndexEntry[][]): Promise<void> {
    this.#goneTable = null;
    if (!table) return;
    const bytes = await fetchNamed(this.source, { ...table, index }, "indexTable").catch(
      (error: unknown) => error as Error,
    );
    if (bytes instanceof MissingObject) {
      this.#goneTable = bytes;
      return;
    }
    await this.tables.look(async () => {
      if (bytes instanceof Error) throw bytes;
      const ours = sha256hex(
        await indexTable(members.flat(), { tree_size: this.#size, computed_at: this.#newest }, createYielder()),
      );
      if (ours !== table.sha256) throw new Unproven(table.key, `sha256 ${ours} by the log`, table.sha256);
    });
  }

  /** After the last leaf. */
  async end(): Promise<void> {
    const gone = this.#goneTable;
    if (gone) await this.tables.look(() => Promise.reject(gone));
  }

  async #readShards(named: readonly ShardLine[]): Promise<void> {
    const fresh = new Map(named.map((line) => [line.sha256, line]));
    await forEachConcurrent(fresh.values(), SHARDS_AT_ONCE, (line) =>
      this.shards.look(async () => {
        const packed = await fetchShard(this.source, line);
        const text = await unpackShard(packed, line);
        const ours = compress(text, { compressionLevel: 3 });
        this.packing.add("index shards", shardKey(line.sha256), packed, ours);
      }),
    );
  }

  get findings(): Finding[] {
    return [this.check.finding, this.shards.finding, this.tables.finding];
  }
}
