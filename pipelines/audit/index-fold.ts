import { canonicalText, sha256, sha256hex } from "../../infra/canonical.ts";
import { type ListingFacts, listingFacts, type PublishedCap } from "../4-publish/fold.ts";
import { indexLineOf, shardBits } from "../4-publish/index-lines.ts";
import type { ShardLine } from "../mirror/objects.ts";
import type { GradeLeaf, Leaf } from "../record/leaf.ts";
import type { Band } from "../record/vocabulary.ts";

/** The card that an index line shows. */
interface Headline {
  leaf: number;
  band: Band;
  tier: string | null;
  sample_count: number;
  why: string;
  /** RFC 8785. */
  text: string;
}

interface Entry {
  listing: ListingFacts | null;
  /** First four bytes of sha256(url): the leading bits name the shard. */
  place: number;
  /** Of the newest group of cards, whose last leaf and moment these are. */
  headline: Headline | null;
  lastLeaf: number;
  computedAt: string;
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

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
      entry = { listing: null, place: 0, headline: null, lastLeaf: -1, computedAt: "" };
      this.#caps.set(cap, entry);
    }
    return entry;
  }

  #list(cap: string, listing: ListingFacts | null): void {
    const entry = this.#of(cap);
    if (entry.listing) this.#leave(cap, entry);
    entry.listing = listing;
    if (!listing) return;
    entry.place = sha256(listing.url).readUInt32BE(0);
    this.#listed++;
    this.#join(cap, entry);
  }

  #leave(cap: string, { place }: Entry): void {
    const shard = shardAt(place, this.#bits);
    this.#members[shard]!.delete(cap);
    this.#dirty.add(shard);
    this.#listed--;
  }

  #join(cap: string, { place }: Entry): void {
    const shard = shardAt(place, this.#bits);
    this.#members[shard]!.add(cap);
    this.#dirty.add(shard);
  }

  #grade({ index, card, headline, why }: GradeLeaf, cardText?: string): void {
    const entry = this.#of(card.capability_id);
    // Cards of one endpoint in one run are neighbours; anything else begins a new group.
    if (entry.lastLeaf !== index - 1 || entry.computedAt !== card.computed_at) entry.headline = null;
    entry.lastLeaf = index;
    entry.computedAt = card.computed_at;
    if (headline && !entry.headline) {
      const { band, sample_count } = card;
      const tier = card.components ? card.tier : null;
      entry.headline = { leaf: index, band, tier, sample_count, why, text: cardText ?? canonicalText(card) };
    }
    if (entry.listing) this.#dirty.add(shardAt(entry.place, this.#bits));
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
    for (const [cap, entry] of this.#caps) if (entry.listing) this.#members[shardAt(entry.place, bits)]!.add(cap);
  }

  #shard(shard: number): ShardLine {
    const members = [...this.#members[shard]!].map((cap) => ({ cap, entry: this.#caps.get(cap)! }));
    members.sort((a, b) => byText(a.entry.listing!.url, b.entry.listing!.url) || byText(a.cap, b.cap));
    const text = Buffer.from(members.map(({ cap, entry }) => `${lineOf(cap, entry)}\n`).join(""));
    return { sha256: sha256hex(text), lines: members.length, bytes: text.length };
  }
}

const shardAt = (place: number, bits: number): number => (bits === 0 ? 0 : place >>> (32 - bits));

/** RFC 8785 text of one line; the card's own text is set in as it stands, since its members are in order already. */
function lineOf(cap: string, { listing, headline }: Entry): string {
  if (!headline) return canonicalText(indexLineOf({ cap, listing, cards: [] } as unknown as PublishedCap));
  const { band, text, leaf, sample_count, tier, why } = headline;
  const { url, method, tool, defects, class: of, description, capability_id } = listing!;
  const rest = { class: of, defects, description, leaf, method, sample_count, tier, tool, url, why };
  const before = `{"band":${JSON.stringify(band)},"capability_id":${JSON.stringify(capability_id)},"card":${text},`;
  return before + canonicalText(rest).slice(1);
}
