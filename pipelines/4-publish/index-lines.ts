import { sha256, sha256hex } from "../../infra/canonical.ts";
import { canonicalHalves, joinHalves } from "../../infra/canonical-print.ts";
import type { SignedCard } from "../record/card.ts";
import type { IndexLine } from "../record/leaf.ts";
import { headlineOf, type ListingFacts, type PublishedCap, type PublishedCard, type PublishedFold } from "./fold.ts";

/**
 * The market index as a pure function of the log: anybody who folds the leaves below `tree_size` makes the same bytes.
 * It holds every endpoint that is listed, with the card that a check shows.
 */

/** Lines that a shard should not exceed on average. */
export const SHARD_LINES = 256;

const NO_CARD_WHY = "UNRATED: 0 of 30 paid calls so far; unknown, not bad.";

/** The line of one endpoint, or null when it is not listed. */
export const indexLineOf = (cap: PublishedCap): IndexLine | null =>
  cap.listing && lineFrom(cap.listing, headlineOf(cap));

const lineFrom = (listing: ListingFacts, headline: PublishedCard | null): IndexLine => ({
  ...factsOf(listing, headline),
  card: headline && (JSON.parse(headline.text) as SignedCard),
});

/** Everything but the card. */
const factsOf = (listing: ListingFacts, headline: PublishedCard | null) => ({
  url: listing.url,
  method: listing.method,
  tool: listing.tool,
  capability_id: listing.capability_id,
  band: headline?.band ?? "UNRATED",
  tier: headline?.measured ? headline.tier : null,
  sample_count: headline?.sample_count ?? 0,
  defects: listing.defects,
  why: headline?.why ?? NO_CARD_WHY,
  class: listing.class,
  description: listing.description,
  leaf: headline?.leaf ?? null,
});

/** Leading bits of sha256(url) that name a shard: the fewest that keep shards at SHARD_LINES on average. */
export function shardBits(lines: number): number {
  let bits = 0;
  while (lines / 2 ** bits > SHARD_LINES) bits++;
  return bits;
}

/** Number of a url's shard among 2^bits. */
export const shardOf = (url: string, bits: number): number =>
  bits === 0 ? 0 : sha256(url).readUInt32BE(0) >>> (32 - bits);

export interface Shard {
  /** sha256 of `text`: its name. */
  sha256: string;
  lines: number;
  /** NDJSON, unpacked. */
  text: Buffer;
}

/** A listed endpoint as it is at one moment: both parts are replaced, never changed, when the log goes on. */
export interface IndexEntry {
  listing: ListingFacts;
  headline: PublishedCard | null;
}

/** What the index says of an endpoint now; null when it is not listed. */
export const entryOf = (cap: PublishedCap): IndexEntry | null =>
  cap.listing && { listing: cap.listing, headline: headlineOf(cap) };

/**
 * RFC 8785 text of {@link indexLineOf}. The card, most of it, stands in the fold in this form already.
 */
export function lineText({ listing, headline }: IndexEntry): string {
  const halves = canonicalHalves(factsOf(listing, headline), "card", { published: true });
  return joinHalves(halves, `"card":${headline?.text ?? "null"}`);
}

/** Bytewise, as every order in the record. */
const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** Sorts the entries of one shard in place, as its lines stand. */
export const sortEntries = (entries: IndexEntry[]): IndexEntry[] =>
  entries.sort(({ listing: a }, { listing: b }) => byText(a.url, b.url) || byText(a.capability_id, b.capability_id));

/** All shards of the index, in order of their number: what index-build.ts writes in turns. An empty one is a shard too. */
export function shardsOf(fold: PublishedFold): { bits: number; lines: number; shards: Shard[] } {
  const entries = [...fold.caps.values()].map(entryOf).filter((entry) => entry !== null);
  const bits = shardBits(entries.length);
  const members: IndexEntry[][] = Array.from({ length: 2 ** bits }, () => []);
  for (const entry of entries) members[shardOf(entry.listing.url, bits)]!.push(entry);
  const shards = members.map((of) => {
    const text = Buffer.from(
      sortEntries(of)
        .map((entry) => `${lineText(entry)}\n`)
        .join(""),
    );
    return { sha256: sha256hex(text), lines: of.length, text };
  });
  return { bits, lines: entries.length, shards };
}
