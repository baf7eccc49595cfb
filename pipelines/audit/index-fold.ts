import { canonicalText, sha256, sha256hex } from "../../infra/canonical.ts";
import { type ListingFacts, listingFacts } from "../published/caps.ts";
import { type IndexEntry, lineText, shardBits, sortEntries } from "../published/index-lines.ts";
import type { ShardLine } from "../published/shards.ts";
import { cardMoment, type GradeLeaf, type Leaf } from "../record/leaf.ts";

interface Entry {
  listing: ListingFacts | null;
  /** First four bytes of sha256(url): the leading bits name the shard. */
  prefix: number;
  /** Of the newest group of cards, whose last leaf and moment these are. */
  headline: IndexEntry["headline"];
  lastLeaf: number;
  computedAt: string;
}

/**
 * The market index as the log makes it, kept while the leaves go by: one entry an endpoint, and by shard the hash of its
 * lines. An index is then only the shards that changed since the last one.
 */
export class IndexFold {
  size = 0;
  newest = "";
  #listed = 0;
  #bits = 0;
  readonly #caps = new Map<string, Entry>();
  #members: Set<string>[] = [new Set()];
  #shards: ShardLine[] = [];
  readonly #dirty = new Set<number>([0]);

  /** The next leaf. @param cardText of a grade: the RFC 8785 text of its card, where the caller has it */
  apply(leaf: Leaf, cardText?: string): void {
    this.size++;
    this.newest = leaf.at;
    if (leaf.kind === "listing") this.#list(leaf.capability_id, listingFacts(leaf));
    else if (leaf.kind === "delisting") this.#list(leaf.capability_id, null);
    else if (leaf.kind === "grade") this.#grade(leaf, cardText);
  }

  #of(cap: string): Entry {
    let entry = this.#caps.get(cap);
    if (!entry) {
      entry = { listing: null, prefix: 0, headline: null, lastLeaf: -1, computedAt: "" };
      this.#caps.set(cap, entry);
    }
    return entry;
  }

  #list(cap: string, listing: ListingFacts | null): void {
    const entry = this.#of(cap);
    if (entry.listing) this.#leave(cap, entry);
    entry.listing = listing;
    if (!listing) return;
    entry.prefix = sha256(listing.url).readUInt32BE(0);
    this.#listed++;
    this.#join(cap, entry);
  }

  #leave(cap: string, { prefix }: Entry): void {
    const shard = shardAt(prefix, this.#bits);
    this.#members[shard]!.delete(cap);
    this.#dirty.add(shard);
    this.#listed--;
  }

  #join(cap: string, { prefix }: Entry): void {
    const shard = shardAt(prefix, this.#bits);
    this.#members[shard]!.add(cap);
    this.#dirty.add(shard);
  }

  #grade({ index, at, card, headline, why }: GradeLeaf, cardText?: string): void {
    const computedAt = cardMoment({ card, at });
    const entry = this.#of(card.capability_id);
    // Cards of one endpoint in one run are neighbours; anything else begins a new group.
    if (entry.lastLeaf !== index - 1 || entry.computedAt !== computedAt) entry.headline = null;
    entry.lastLeaf = index;
    entry.computedAt = computedAt;
    if (headline && !entry.headline) {
      const { band, tier, sample_count = null } = card;
      const text = cardText ?? canonicalText(card);
      entry.headline = { leaf: index, band, tier, sample_count, measured: card.components !== null, why, text };
    }
    if (entry.listing) this.#dirty.add(shardAt(entry.prefix, this.#bits));
  }

  /** The index of the leaves so far: what its list says, and which of its shards are new since the last call. */
  build(): { bits: number; lines: number; shards: readonly ShardLine[]; changed: ShardLine[] } {
    const bits = shardBits(this.#listed);
    if (bits !== this.#bits) this.#reshard(bits);
    const changed: ShardLine[] = [];
    for (const shard of this.#dirty) {
      const line = this.#shard(shard);
      if (this.#shards[shard]?.sha256 !== line.sha256) changed.push(line);
      this.#shards[shard] = line;
    }
    this.#dirty.clear();
    return { bits, lines: this.#listed, shards: this.#shards, changed };
  }

  #reshard(bits: number): void {
    this.#bits = bits;
    this.#members = Array.from({ length: 2 ** bits }, () => new Set());
    this.#shards = [];
    for (let shard = 0; shard < 2 ** bits; shard++) this.#dirty.add(shard);
    for (const shard of this.#dirty) if (shard >= 2 ** bits) this.#dirty.delete(shard);
    for (const [cap, entry] of this.#caps) if (entry.listing) this.#members[shardAt(entry.prefix, bits)]!.add(cap);
  }

  #shard(shard: number): ShardLine {
    const entries = [...this.#members[shard]!].map((cap) => {
      const { listing, headline } = this.#caps.get(cap)!;
      return { listing: listing!, headline };
    });
    const text = Buffer.from(
      sortEntries(entries)
        .map((entry) => `${lineText(entry)}\n`)
        .join(""),
    );
    return { sha256: sha256hex(text), lines: entries.length, bytes: text.length };
  }
}

const shardAt = (prefix: number, bits: number): number => (bits === 0 ? 0 : prefix >>> (32 - bits));
