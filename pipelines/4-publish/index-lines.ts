import { canonicalText, sha256, sha256hex } from "../../infra/canonical.ts";
import type { SignedCard } from "../record/card.ts";
import type { IndexLine } from "../record/leaf.ts";
import { headlineOf, type PublishedCap, type PublishedFold } from "./fold.ts";

/**
 * The market index as a pure function of the log: anybody who folds the leaves below `tree_size` makes the same bytes.
 * It holds every endpoint that is listed, with the card that a check shows.
 */

/** Lines that a shard should not exceed on average. */
export const SHARD_LINES = 256;

const NO_CARD_WHY = "UNRATED: 0 of 30 paid calls so far; unknown, not bad.";

/** The line of one endpoint, or null when it is not listed. */
export function indexLineOf(cap: PublishedCap): IndexLine | null {
  if (!cap.listing) return null;
  const { capability_id, url, method, tool, defects, description } = cap.listing;
  const headline = headlineOf(cap);
  const card = headline && (JSON.parse(headline.text) as SignedCard);
  return {
    url,
    method,
    tool,
    capability_id,
    band: card?.band ?? "UNRATED",
    // A card without components stands on nothing that was measured (publication.md, Leaves).
    tier: card?.components ? card.tier : null,
    sample_count: card?.sample_count ?? 0,
    defects,
    why: headline?.why ?? NO_CARD_WHY,
    class: cap.listing.class,
    description,
    leaf: headline?.leaf ?? null,
    card,
  };
}

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

/** Bytewise, as every order in the record. */
const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** All shards of the index, in order of their number; an empty one is there too. */
export function shardsOf(fold: PublishedFold): { bits: number; lines: number; shards: Shard[] } {
  const lines: IndexLine[] = [];
  for (const cap of fold.caps.values()) {
    const line = indexLineOf(cap);
    if (line) lines.push(line);
  }
  lines.sort((a, b) => byText(a.url, b.url) || byText(a.capability_id, b.capability_id));
  const bits = shardBits(lines.length);
  const texts: string[][] = Array.from({ length: 2 ** bits }, () => []);
  for (const line of lines) texts[shardOf(line.url, bits)]!.push(`${canonicalText(line, { published: true })}\n`);
  const shards = texts.map((shard) => {
    const text = Buffer.from(shard.join(""));
    return { sha256: sha256hex(text), lines: shard.length, text };
  });
  return { bits, lines: lines.length, shards };
}
