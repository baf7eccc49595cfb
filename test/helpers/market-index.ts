import { sha256hex } from "../../infra/canonical.ts";
import { headlineOf, type PublishedCap } from "../../pipelines/published/caps.ts";
import type { PublishedFold } from "../../pipelines/published/fold.ts";
import {
  entryOf,
  type IndexEntry,
  lineText,
  shardBits,
  shardOf,
  sortEntries,
} from "../../pipelines/published/index-lines.ts";
import type { SignedCard } from "../../pipelines/record/card.ts";
import type { IndexLine } from "../../pipelines/record/leaf.ts";

/** The index written down plainly and at once, for tests to hold against what is printed in turns and piece by piece. */

/** The line of one endpoint, or null when it is not listed. */
export function indexLineOf(cap: PublishedCap): IndexLine | null {
  const { listing } = cap;
  if (!listing) return null;
  const headline = headlineOf(cap);
  return {
    url: listing.url,
    method: listing.method,
    tool: listing.tool,
    capability_id: listing.capability_id,
    band: headline?.band ?? "UNRATED",
    tier: headline?.measured ? headline.tier : null,
    sample_count: headline?.sample_count ?? 0,
    defects: listing.defects,
    why: headline?.why ?? "UNRATED: 0 of 30 paid calls so far; unknown, not bad.",
    class: listing.class,
    description: listing.description,
    leaf: headline?.leaf ?? null,
    card: headline && (JSON.parse(headline.text) as SignedCard),
  };
}

export interface Shard {
  /** sha256 of `text`: its name. */
  sha256: string;
  lines: number;
  /** NDJSON, unpacked. */
  text: Buffer;
}

/** All shards of the index, in order of their number: what the publisher writes in turns. An empty one is a shard too. */
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
