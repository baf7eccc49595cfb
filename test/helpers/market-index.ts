import { headlineOf, type PublishedCap } from "../../pipelines/published/caps.ts";
import type { PublishedFold } from "../../pipelines/published/fold.ts";
import type { GradeLeaf, IndexLine, Leaf, ListingLeaf } from "../../pipelines/record/leaf.ts";
import { canonical, sha256, sha256hex } from "./signatures.ts";

/**
 * The market index written down plainly and at once (publication.md, Index), for tests to hold against what is printed
 * in turns and piece by piece. Neither lines nor shards are made by the code under test.
 */

type Listing = Pick<
  ListingLeaf,
  "url" | "method" | "tool" | "capability_id" | "class" | "description" | "defects" | "seller_controlled" | "offers"
>;
type Headline = Pick<GradeLeaf, "why" | "card"> & { leaf: number };

const lineOf = (listing: Listing, headline: Headline | null): IndexLine => ({
  url: listing.url,
  method: listing.method,
  tool: listing.tool,
  capability_id: listing.capability_id,
  band: headline?.card.band ?? "UNRATED",
  // A card without components stands on nothing that was measured.
  tier: headline?.card.components ? headline.card.tier : null,
  sample_count: headline ? (headline.card.sample_count ?? null) : 0,
  defects: listing.defects,
  why: headline?.why ?? "UNRATED: 0 of 30 paid calls so far; unknown, not bad.",
  class: listing.class,
  description: listing.description,
  ...(listing.offers && { offers: listing.offers }),
  leaf: headline?.leaf ?? null,
  card: headline?.card ?? null,
});

/** The line of one endpoint of our own fold, or null when it is not listed. */
export function indexLineOf(cap: PublishedCap): IndexLine | null {
  const { listing, listed } = cap;
  if (!listing || !listed) return null;
  const headline = headlineOf(cap);
  const shown = headline && { why: headline.why, leaf: headline.leaf, card: JSON.parse(headline.text) };
  return lineOf(listing, shown);
}

export interface Shard {
  /** sha256 of `text`: its name. */
  sha256: string;
  lines: number;
  /** NDJSON, unpacked. */
  text: Buffer;
}

/** Leading bits of sha256(url): the fewest with which shards hold 256 lines on average. */
function shardsOfLines(lines: readonly IndexLine[]): { bits: number; lines: number; shards: Shard[] } {
  const bits = Math.max(0, Math.ceil(Math.log2(lines.length / 256)));
  const members: IndexLine[][] = Array.from({ length: 2 ** bits }, () => []);
  for (const line of lines) members[Math.floor(sha256(line.url).readUInt32BE(0) / 2 ** (32 - bits))]!.push(line);
  const shards = members.map((of) => {
    // A space sorts below every byte of a url.
    const place = ({ url, capability_id }: IndexLine) => `${url} ${capability_id}`;
    of.sort((a, b) => (place(a) < place(b) ? -1 : 1));
    const text = Buffer.from(of.map((line) => `${canonical(line)}\n`).join(""));
    return { sha256: sha256hex(text), lines: of.length, text };
  });
  return { bits, lines: lines.length, shards };
}

const isThere = (line: IndexLine | null): line is IndexLine => line !== null;

/** All shards of the index of our own fold, in order of their number. An empty one is a shard too. */
export const shardsOf = (fold: PublishedFold) =>
  shardsOfLines([...fold.caps.values()].map(indexLineOf).filter(isThere));

/** The index of the leaves that were added, without any fold of ours. */
export class PlainIndex {
  readonly #listings = new Map<string, ListingLeaf>();
  /** The newest run's card that speaks for an endpoint, null where it has none, and the last leaf of that run. */
  readonly #cards = new Map<string, { headline: Headline | null; at: string; last: number }>();

  add(leaf: Leaf): void {
    if (leaf.kind === "listing") this.#listings.set(leaf.capability_id, leaf);
    if (leaf.kind === "delisting") this.#listings.delete(leaf.capability_id);
    if (leaf.kind !== "grade") return;
    const { card, why, index } = leaf;
    const at = card.computed_at ?? leaf.at;
    const before = this.#cards.get(card.capability_id);
    const isSameRun = before?.at === at && before.last === index - 1;
    const kept = isSameRun ? before.headline : null;
    const headline = kept ?? (leaf.headline ? { why, card, leaf: index } : null);
    this.#cards.set(card.capability_id, { headline, at, last: index });
  }

  get shards(): Shard[] {
    const lines = [...this.#listings].map(([cap, listing]) => lineOf(listing, this.#cards.get(cap)?.headline ?? null));
    return shardsOfLines(lines).shards;
  }
}
