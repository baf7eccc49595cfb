import { z } from "zod";
import { sha256 } from "../../infra/canonical.ts";
import { canonicalHalves, joinHalves } from "../../infra/canonical-text.ts";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { type HeadlineCard, headlineOf, type PublishedCap } from "./caps.ts";
import type { ListingFacts } from "./endpoint.ts";
import { Unproven } from "./errors.ts";
import { MAX_BYTES, packedBound } from "./limits.ts";
import { describeText, scanFrame } from "./lines.ts";
import { shardKey } from "./objects.ts";
import type { Source } from "./source.ts";

/**
 * The market index as a pure function of the log: the leaves below `tree_size` determine its bytes.
 * It has a line for every listed endpoint, with the card that GET /v1/check shows.
 */

/** Largest number of lines of a shard (file of the index) on average. */
const MAX_MEAN_SHARD_LINES = 256;

/** The text shown for an endpoint without a card (verification-method.md section 8). */
export const NO_CARD_TEXT = "UNRATED: 0 of 30 paid calls so far; unknown, not bad.";

/** The members of an endpoint's index line, without the signed card. */
export const indexMembers = ({ listing, headline }: IndexEntry) => ({
  url: listing.url,
  method: listing.method,
  tool: listing.tool,
  capability_id: listing.capability_id,
  band: headline?.band ?? "UNRATED",
  tier: headline?.measured ? headline.tier : null,
  sample_count: headline ? headline.sample_count : 0,
  defects: listing.defects,
  why: headline?.why ?? NO_CARD_TEXT,
  class: listing.class,
  description: listing.description,
  // Absent when the leaf has no offers, so that lines of older indexes do not change.
  offers: listing.offers,
  leaf: headline?.leaf ?? null,
});

/**
 * Number of leading bits of sha256(url) that select a url's shard: the fewest that keep shards at
 * MAX_MEAN_SHARD_LINES or less on average.
 */
export function shardBits(lines: number): number {
  let bits = 0;
  while (lines / 2 ** bits > MAX_MEAN_SHARD_LINES) bits++;
  return bits;
}

/** Returns the number of a url's shard among 2^bits. */
export const shardOf = (url: string, bits: number): number =>
  bits === 0 ? 0 : sha256(url).readUInt32BE(0) >>> (32 - bits);

type Headline = Pick<HeadlineCard, "leaf" | "band" | "tier" | "sample_count" | "measured" | "why" | "text">;

/** A listed endpoint at one size of the log. Both members are immutable: later leaves make new objects. */
export interface IndexEntry {
  listing: ListingFacts;
  /** The card that the index line shows. */
  headline: Headline | null;
}

/** The index entry of an endpoint; null when the endpoint is not listed. */
export const indexEntryOf = (cap: PublishedCap): IndexEntry | null =>
  cap.listing && cap.listed ? { listing: cap.listing, headline: headlineOf(cap) } : null;

/**
 * RFC 8785 text of an endpoint's line. The card's text, most of the line, is copied from the fold and not serialized
 * again.
 */
export function lineText(entry: IndexEntry): string {
  const halves = canonicalHalves(indexMembers(entry), "card", { published: true });
  return joinHalves(halves, `"card":${entry.headline?.text ?? "null"}`);
}

/** Compares by UTF-16 code units, as everywhere in the record. */
const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** Sorts the entries of one shard in place, by URL and then by endpoint. */
export const sortEntries = (entries: IndexEntry[]): IndexEntry[] =>
  entries.sort(
    ({ listing: a }, { listing: b }) => compareText(a.url, b.url) || compareText(a.capability_id, b.capability_id),
  );

/** A shard of the market index in the signed list: hash, lines and length of its unpacked bytes. */
export const ShardLine = z.looseObject({
  sha256: Sha256Hex,
  lines: z.int().min(0),
  bytes: z.int().min(0).max(MAX_BYTES.named),
});
export type ShardLine = z.infer<typeof ShardLine>;

export const IndexList = z.looseObject({ tree_size: z.int(), computed_at: z.string(), shards: z.array(ShardLine) });

/** Checks the parsed list of an index, the object with this key. @throws Unproven for anything else */
export function parseIndexList(key: string, value: unknown): z.infer<typeof IndexList> {
  const { data } = IndexList.safeParse(value);
  if (data) return data;
  throw new Unproven(key, "a list of shards", "something else");
}

/** Fetches the packed bytes of a shard, without proving them. @throws MissingObject, Oversized, SourceDown */
export async function fetchShard(source: Pick<Source, "get">, line: ShardLine): Promise<Uint8Array> {
  const key = shardKey(line.sha256);
  const packed = await source.get(key, packedBound(line.bytes));
  if (!packed) throw new MissingObject(key);
  return packed;
}

/** Unpacks a shard and checks its hash, length and number of lines. @throws Unproven */
export async function unpackShard(packed: Uint8Array, { sha256, bytes, lines }: ShardLine): Promise<Buffer> {
  const chunks: Buffer[] = [];
  const facts = await scanFrame(packed, bytes, { onChunk: (chunk) => chunks.push(Buffer.from(chunk)) });
  const expected = describeText({ size: bytes, lines, sha256 });
  if (describeText(facts) !== expected) throw new Unproven(shardKey(sha256), expected, describeText(facts));
  return Buffer.concat(chunks, bytes);
}
