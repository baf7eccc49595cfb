import { compress } from "zstd-napi";
import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import { eachAtOnce } from "../../infra/concurrency.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { Unproven } from "../published/errors.ts";
import { fetchNamed } from "../published/files.ts";
import { PublishedFold } from "../published/fold.ts";
import { entryOf, type IndexEntry, lineText, shardBits, shardOf, sortEntries } from "../published/index-lines.ts";
import { refuseUnsigned } from "../published/keys.ts";
import { shardKey } from "../published/objects.ts";
import { parseJson } from "../published/parse.ts";
import { fetchShard, IndexList, type ShardLine, unpackShard } from "../published/shards.ts";
import type { Source } from "../published/source.ts";
import type { IndexLeaf, Leaf } from "../record/leaf.ts";
import { Check, type Finding, problemOf } from "./findings.ts";
import type { Packing } from "./packing.ts";

/** An index leaf and the keys that vouch at its position. */
export interface NamedIndex {
  leaf: IndexLeaf;
  jwks: Jwks | null;
}

/** Leaves that are held until an index says how many of them it knows: it is published with what came after it. */
const MAX_HELD = 1 << 18;
/** Shards that are read at once. */
const SHARDS_AT_ONCE = 8;

/** Lines that were printed, by listing: both parts of an entry are replaced, never changed. */
type Printed = WeakMap<object, { headline: IndexEntry["headline"]; line: string }>;

function lineOf(entry: IndexEntry, printed: Printed): string {
  const known = printed.get(entry.listing);
  if (known && known.headline === entry.headline) return known.line;
  const line = `${lineText(entry)}\n`;
  printed.set(entry.listing, { headline: entry.headline, line });
  return line;
}

/** The market index of the leaves so far: what its list says. */
export function indexOf(fold: PublishedFold, printed: Printed = new WeakMap()) {
  const entries = [...fold.caps.values()].flatMap((cap) => entryOf(cap) ?? []);
  const bits = shardBits(entries.length);
  const members = Array.from({ length: 2 ** bits }, (): IndexEntry[] => []);
  for (const entry of entries) members[shardOf(entry.listing.url, bits)]!.push(entry);
  const shards = members.map((of): ShardLine => {
    const text = Buffer.from(
      sortEntries(of)
        .map((entry) => lineOf(entry, printed))
        .join(""),
    );
    return { sha256: sha256hex(text), lines: of.length, bytes: text.length };
  });
  return { bits, lines: entries.length, shards };
}

/**
 * Every index that was published, rebuilt byte for byte from the leaves below it while they go by, and each of its shards
 * read when it is first named. Memory is what the fold keeps of each endpoint and the leaves since the newest index.
 */
export class IndexAudit {
  readonly check: Check;
  readonly shards: Check;
  /** Indexes of sizes that had gone by: a second reading of the log has to rebuild them. */
  readonly late: NamedIndex[] = [];
  readonly #fold = new PublishedFold();
  readonly #printed: Printed = new WeakMap();
  #held: { leaf: Leaf; entry: Buffer }[] = [];
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
  }

  /** The next leaf, proven and parsed before. @param jwks keys that vouch at its position */
  async add(leaf: Leaf, jwks: Jwks | null, entry: Buffer): Promise<void> {
    if (leaf.kind === "index") await this.named({ leaf, jwks });
    this.hold(leaf, entry);
  }

  /** The next leaf, whatever index it names. */
  hold(leaf: Leaf, entry: Buffer): void {
    this.#held.push({ leaf, entry });
    if (this.#held.length >= this.maxHeld) this.#advance(this.#fold.size + Math.ceil(this.maxHeld / 2));
  }

  /** Look at an index whose size has not gone by. */
  async named(one: NamedIndex): Promise<void> {
    const { tree_size: size, index, key } = one.leaf;
    if (size < this.#fold.size) {
      this.late.push(one);
      return;
    }
    await this.check.look(async () => {
      if (size > index) throw new Unproven(key, `an index of leaves below ${index}`, `tree_size ${size}`);
      this.#advance(size);
      await this.#same(one);
    });
  }

  #advance(size: number): void {
    const count = size - this.#fold.size;
    for (const { leaf, entry } of this.#held.slice(0, count)) this.#fold.apply(leaf, entry);
    this.#held = this.#held.slice(count);
  }

  async #same({ leaf, jwks }: NamedIndex): Promise<void> {
    const { bits, lines, shards } = indexOf(this.#fold, this.#printed);
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
    const { size, newest } = this.#fold;
    const want = { schema: "svc.index.v1", tree_size: size, computed_at: newest, lines, bits, shards };
    const [expected, got] = [canonicalText(want), canonicalText(unsigned)];
    if (expected !== got) {
      throw new Unproven(leaf.key, `sha256 ${sha256hex(expected)} by the log`, sha256hex(got));
    }
    await readShards();
    refuseUnsigned(leaf.key, jwks, list, read.computed_at);
  }

  async #readShards(named: readonly ShardLine[]): Promise<void> {
    const fresh = new Map(named.map((line) => [line.sha256, line]));
    await eachAtOnce(fresh.values(), SHARDS_AT_ONCE, (line) =>
      this.shards.look(async () => {
        const packed = await fetchShard(this.source, line);
        const text = await unpackShard(packed, line);
        const ours = compress(text, { compressionLevel: 3 });
        this.packing.add("index shards", shardKey(line.sha256), packed, ours);
      }),
    );
  }

  get findings(): Finding[] {
    return [this.check.finding, this.shards.finding];
  }
}
