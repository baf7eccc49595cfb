import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { PublishedFold } from "../4-publish/fold.ts";
import { shardsOf } from "../4-publish/index-lines.ts";
import { CHECKPOINT, HINT_INDEX, HINT_KEYS, shardKey } from "../4-publish/objects.ts";
import { Unproven } from "../mirror/errors.ts";
import { MAX, packedBound } from "../mirror/limits.ts";
import {
  chainOf,
  fetchNamed,
  type IndexLeaf,
  IndexList,
  type KeyChain,
  refuseUnsigned,
  type ShardLine,
  shardOf,
} from "../mirror/objects.ts";
import type { Source } from "../mirror/source.ts";
import { parseJson } from "../mirror/state.ts";
import { type EvidenceLeaf, Leaf } from "../record/leaf.ts";
import { Check, type Finding } from "./findings.ts";

/**
 * Reads the leaves in order and holds each to the rules of the log: dense places, times that never go back, RFC 8785
 * bytes, the chain of keys documents, and a card's signature under the keys that were valid at its place.
 */
export class LogAudit {
  readonly leaves = new Check("leaves");
  readonly keys = new Check("keys documents");
  readonly cards = new Check("card signatures");
  readonly fold = new PublishedFold();
  /** Index leaves by the size that they speak of, with the keys that vouch at their place. */
  readonly indexes: { leaf: IndexLeaf; chain: KeyChain | null }[] = [];
  readonly evidence: EvidenceLeaf[] = [];
  #chain: KeyChain | null = null;
  #next = 0;
  #at = "";

  constructor(private readonly source: Source) {}

  /** The next leaf. A leaf that breaks a rule is told, and the fold goes on without it as far as it can. */
  async add(bytes: Buffer): Promise<void> {
    const index = this.#next++;
    const leaf = this.#read(index, bytes);
    if (!leaf) return;
    if (leaf.kind === "keys") {
      await this.keys.look(async () => {
        this.#chain = chainOf(leaf, await fetchNamed(this.source, leaf, "keys"), this.#chain);
      });
    }
    if (leaf.kind === "grade") {
      await this.cards.look(async () =>
        refuseUnsigned(`card of leaf ${index}`, this.#chain?.jwks ?? null, leaf.card, leaf.card.computed_at),
      );
    }
    if (leaf.kind === "evidence") this.evidence.push(leaf);
    if (leaf.kind === "index") this.indexes.push({ leaf, chain: this.#chain });
  }

  #read(index: number, bytes: Buffer): Leaf | null {
    const key = `leaf ${index}`;
    const text = bytes.toString("utf8");
    const value = parseJson(bytes);
    const { data: leaf, error } = Leaf.safeParse(value);
    if (!leaf) {
      this.leaves.bad({ key, expected: "a leaf of a known kind", got: error?.issues[0]?.message ?? text.slice(0, 80) });
      return null;
    }
    if (canonicalText(value) !== text) {
      this.leaves.bad({ key, expected: "RFC 8785 bytes", got: text.slice(0, 80) });
    }
    if (leaf.at < this.#at) this.leaves.bad({ key, expected: `a time not before ${this.#at}`, got: leaf.at });
    this.#at = leaf.at;
    try {
      this.fold.apply(leaf);
      this.leaves.ok();
    } catch (failure) {
      this.leaves.bad({ key, expected: "the next place and number of its kind", got: (failure as Error).message });
      return null;
    }
    return leaf;
  }

  /** The newest keys document that was proven. */
  get jwks(): Jwks | null {
    return this.#chain?.jwks ?? null;
  }

  get findings(): Finding[] {
    return [this.leaves.finding, this.keys.finding, this.cards.finding];
  }
}

/** Every index that was published, rebuilt byte for byte from the leaves below it, and its shards read back. */
export class IndexAudit {
  readonly check = new Check("indexes, rebuilt from the log");
  readonly shards = new Check("index shards");
  readonly #fold = new PublishedFold();
  readonly #bySize = new Map<number, LogAudit["indexes"]>();
  readonly #named = new Map<string, ShardLine>();

  constructor(
    private readonly source: Source,
    indexes: LogAudit["indexes"],
  ) {
    for (const one of indexes) {
      const { tree_size: size } = one.leaf;
      this.#bySize.set(size, [...(this.#bySize.get(size) ?? []), one]);
    }
  }

  /** The next leaf, proven and parsed before. */
  async add(leaf: Leaf): Promise<void> {
    this.#fold.apply(leaf);
    for (const one of this.#bySize.get(this.#fold.size) ?? []) await this.check.look(() => this.#same(one));
  }

  async #same({ leaf, chain }: { leaf: IndexLeaf; chain: KeyChain | null }): Promise<void> {
    const bytes = await fetchNamed(this.source, leaf, "indexList");
    const list = parseJson(bytes) as Record<string, unknown> | undefined;
    const read = IndexList.safeParse(list).data;
    if (!list || !read) throw new Unproven(leaf.key, "a list of shards", "something else");
    const { signature: _, signing_key_id: __, canonicalization: ___, ...said } = list;
    const { bits, lines, shards } = shardsOf(this.#fold);
    const want = {
      schema: "svc.index.v1",
      tree_size: this.#fold.size,
      computed_at: this.#fold.newest,
      lines,
      bits,
      shards: shards.map((shard) => ({ sha256: shard.sha256, lines: shard.lines, bytes: shard.text.length })),
    };
    if (canonicalText(said) !== canonicalText(want)) {
      throw new Unproven(
        leaf.key,
        `sha256 ${sha256hex(canonicalText(want))} by the log`,
        `${sha256hex(canonicalText(said))}`,
      );
    }
    refuseUnsigned(leaf.key, chain?.jwks ?? null, list, read.computed_at);
    for (const shard of read.shards) this.#named.set(shard.sha256, shard);
  }

  /** Read every shard that some index names. */
  async readShards(): Promise<void> {
    for (const line of this.#named.values()) {
      await this.shards.look(async () => {
        const key = shardKey(line.sha256);
        const packed = await this.source.get(key, packedBound(line.bytes));
        if (!packed) throw new MissingObject(key);
        const shard = await shardOf(packed, line);
        if ("got" in shard)
          throw new Unproven(key, `${line.bytes} bytes in ${line.lines} lines of ${line.sha256}`, shard.got);
      });
    }
  }

  get findings(): Finding[] {
    return [this.check.finding, this.shards.finding];
  }
}

/** Leaves that the source's checkpoint claims now; it may have moved while we read. */
async function sizeNow(source: Source): Promise<number> {
  const note = await source.get(CHECKPOINT, MAX.note);
  return Number(
    Buffer.from(note ?? [])
      .toString("utf8")
      .split("\n")[1] ?? 0,
  );
}

/**
 * The unsigned hints have to name what the tree says at their leaf: the newest index and keys below this checkpoint, or
 * something newer when the source has published since.
 */
export async function auditHints(source: Source, fold: PublishedFold): Promise<Finding> {
  const check = new Check("hints");
  for (const [key, want] of [
    [HINT_INDEX, fold.index],
    [HINT_KEYS, fold.keys],
  ] as const) {
    await check.look(async () => {
      const bytes = await source.get(key, MAX.hint);
      if (!bytes && !want) return;
      if (!bytes) throw new MissingObject(key);
      const text = Buffer.from(bytes).toString("utf8");
      const hint = parseJson(bytes) as { leaf?: unknown } | null | undefined;
      const isNewer = typeof hint?.leaf === "number" && hint.leaf >= fold.size && hint.leaf < (await sizeNow(source));
      if (!isNewer && text !== canonicalText(want)) throw new Unproven(key, canonicalText(want), text.slice(0, 200));
    });
  }
  return check.finding;
}
