import { rename, rm } from "node:fs/promises";
import parquet from "parquetjs-lite";
import type { Store } from "../../infra/store/store.ts";
import { TILE_WIDTH } from "../../infra/tree/path.ts";
import { MirrorUsage, Unproven } from "../published/errors.ts";
import { fetchNamed } from "../published/files.ts";
import { parseJson } from "../published/parse.ts";
import { RecordReader } from "../published/reader.ts";
import { fetchShard, IndexList, type ShardLine, unpackShard } from "../published/shards.ts";
import type { SignedCard } from "../record/card.ts";
import { IndexLine, Leaf } from "../record/leaf.ts";
import { COMPONENTS } from "../record/vocabulary.ts";
import { MirrorState } from "./state.ts";

/** The newest index of a mirror: what it was made of, and its lines shard by shard. */
export interface ProvenIndex {
  origin: string;
  /** Leaves below which the index was made, and when (record time). */
  treeSize: number;
  computedAt: string;
  lines: number;
  read(): AsyncGenerator<IndexLine>;
}

/**
 * The newest index in a mirror's folder. The disk is not believed again: the leaf that names the list is proven under
 * the mirror's own head, the list by the leaf, each shard by the list.
 * @throws MirrorUsage when the folder holds no proven index; MissingObject, Tampered, Unproven
 */
export async function openIndex(publicStore: Store, stateStore: Store): Promise<ProvenIndex> {
  const trusted = await new MirrorState(stateStore).trusted();
  if (!trusted?.index) throw new MirrorUsage("the folder holds no proven index: run touchstone mirror first");
  const { head, index } = trusted;
  const reader = await RecordReader.open(publicStore, { size: head.size, root: Buffer.from(head.root, "hex") });
  const entry = (await reader.entries(Math.floor(index.leaf / TILE_WIDTH)))[index.leaf % TILE_WIDTH];
  const leaf = entry && Leaf.parse(parseJson(entry));
  if (leaf?.kind !== "index")
    throw new Unproven(`leaf ${index.leaf}`, "a leaf that names an index", leaf?.kind ?? "none");
  const list = IndexList.parse(parseJson(await fetchNamed(sourceOf(publicStore), leaf, "indexList")));
  return {
    origin: head.note.split("\n", 1)[0]!,
    treeSize: list.tree_size,
    computedAt: list.computed_at,
    lines: list.shards.reduce((sum, { lines }) => sum + lines, 0),
    async *read() {
      for (const shard of list.shards) yield* linesOf(publicStore, shard);
    },
  };
}

/** The folder as it is read like any other source. */
const sourceOf = (store: Store) => ({
  get: async (key: string, maxBytes: number) => (await store.get(key, { maxBytes }))?.bytes ?? null,
});

async function* linesOf(store: Store, shard: ShardLine): AsyncGenerator<IndexLine> {
  const text = await unpackShard(await fetchShard(sourceOf(store), shard), shard);
  for (const line of text.toString("utf8").split("\n")) if (line) yield IndexLine.parse(JSON.parse(line));
}

const { ParquetSchema, ParquetWriter } = parquet;

/** Rows in memory at once. */
const ROW_GROUP = 4096;

const packed = { compression: "GZIP", optional: true } as const;
const text = { type: "UTF8", ...packed } as const;
const number = { type: "DOUBLE", ...packed } as const;

/**
 * One row an endpoint. Plain types only: readers disagree about INTERVAL and UUID columns (publication.md). Times are
 * RFC 3339 texts, as in the card; the signed card itself is there whole, so that a row can be verified.
 */
const SCHEMA = new ParquetSchema({
  url: text,
  method: text,
  tool: text,
  capability_id: text,
  class: text,
  description: text,
  band: text,
  tier: text,
  why: text,
  composite: number,
  sample_count: { type: "INT64", ...packed },
  computed_at: text,
  flags: { type: "UTF8", compression: "GZIP", repeated: true },
  defects: { type: "UTF8", compression: "GZIP", repeated: true },
  ...Object.fromEntries(
    COMPONENTS.flatMap((name) => ["point", "lower", "upper", "n_eff"].map((part) => [`${name}_${part}`, number])),
  ),
  leaf: { type: "INT64", ...packed },
  card: text,
});

/** Members without a value are left out: that is null in the file. */
const present = (row: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null && value !== undefined));

function componentsOf(card: SignedCard | null): Record<string, number | null | undefined> {
  const columns = COMPONENTS.flatMap((name) => {
    const one = card?.components?.[name];
    if (!one) return [];
    return (["point", "lower", "upper", "n_eff"] as const).map((part) => [`${name}_${part}`, one[part]]);
  });
  return Object.fromEntries(columns);
}

/** One line of the index as a row of the file. */
export const rowOf = ({ card, defects, ...line }: IndexLine): Record<string, unknown> =>
  present({
    url: line.url,
    method: line.method,
    tool: line.tool,
    capability_id: line.capability_id,
    class: line.class,
    description: line.description,
    band: line.band,
    tier: line.tier,
    why: line.why,
    composite: card?.composite,
    sample_count: line.sample_count,
    computed_at: card?.computed_at,
    flags: card?.flags ?? [],
    defects: defects.map(({ defect }) => defect),
    ...componentsOf(card),
    leaf: line.leaf,
    card: card && JSON.stringify(card),
  });

/**
 * Write an index as Parquet (gzip, parquetjs-lite: no native code, so a mirror without DuckDB can do it). The file has
 * its name only once it is whole.
 * @returns rows written
 */
export async function exportIndex(
  index: ProvenIndex,
  path: string,
  onProgress: (rows: number) => void = () => undefined,
): Promise<number> {
  const partial = `${path}.partial`;
  const writer = await ParquetWriter.openFile(SCHEMA, partial, { rowGroupSize: ROW_GROUP });
  let rows = 0;
  try {
    writer.setMetadata("origin", index.origin);
    writer.setMetadata("tree_size", String(index.treeSize));
    writer.setMetadata("computed_at", index.computedAt);
    for await (const line of index.read()) {
      await writer.appendRow(rowOf(line));
      if (++rows % ROW_GROUP === 0) onProgress(rows);
    }
    await writer.close();
    await rename(partial, path);
  } catch (error) {
    await writer.close().catch(() => undefined);
    await rm(partial, { force: true });
    throw error;
  }
  return rows;
}
