import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { BadFrame, unpackFrame } from "../../infra/zstd.ts";
import { Unproven } from "./errors.ts";
import { MAX, packedBound } from "./limits.ts";
import { TextFacts } from "./lines.ts";
import { shardKey } from "./objects.ts";
import type { Source } from "./source.ts";

/** A shard of the market index as the signed list names it: by what it unpacks to. */
export const ShardLine = z.looseObject({
  sha256: Sha256Hex,
  lines: z.int().min(0),
  bytes: z.int().min(0).max(MAX.named),
});
export type ShardLine = z.infer<typeof ShardLine>;

export const IndexList = z.looseObject({ tree_size: z.int(), computed_at: z.string(), shards: z.array(ShardLine) });

/** Packed bytes of a shard that nobody has proven yet. @throws MissingObject, Oversized, SourceDown */
export async function fetchShard(source: Pick<Source, "get">, line: ShardLine): Promise<Uint8Array> {
  const key = shardKey(line.sha256);
  const packed = await source.get(key, packedBound(line.bytes));
  if (!packed) throw new MissingObject(key);
  return packed;
}

/** Lines of a shard, proven by its hash, length and number of lines. @throws Unproven */
export async function unpackShard(packed: Uint8Array, line: ShardLine): Promise<Buffer> {
  let text: Buffer;
  try {
    text = await unpackFrame(packed, line.bytes);
  } catch (error) {
    if (error instanceof BadFrame) throw otherShard(line, error.message);
    throw error;
  }
  const facts = new TextFacts(0);
  facts.add(text);
  const { size, lines, sha256 } = facts.end();
  if (sha256 === line.sha256 && size === line.bytes && lines === line.lines) return text;
  throw otherShard(line, `${size} bytes in ${lines} lines of ${sha256}`);
}

const otherShard = ({ sha256, bytes, lines }: ShardLine, got: string): Unproven =>
  new Unproven(shardKey(sha256), `${bytes} bytes in ${lines} lines of that hash`, got);
