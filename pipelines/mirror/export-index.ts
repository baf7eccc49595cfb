import { Failure } from "../../infra/errors.ts";
import type { ReadableStore } from "../../infra/store/directory.ts";
import { TILE_WIDTH } from "../../infra/tree/path.ts";
import { parseUrl } from "../../infra/url.ts";
import { parseEntry, parseJson, parseLeaf, Unproven } from "../published/errors.ts";
import { fetchNamed } from "../published/files.ts";
import { fetchShard, parseIndexList, type ShardLine, unpackShard } from "../published/index-lines.ts";
import { componentColumns, componentValuesOf, compositeOf } from "../published/index-table.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { INDEX_HINT, shardKey } from "../published/objects.ts";
import { COLUMN, type Columns, type Row, toDate, writeParquet } from "../published/parquet-table.ts";
import { RecordReader } from "../published/reader.ts";
import { createSourceFetch, type Source } from "../published/source.ts";
import { IndexLeaf, IndexLine } from "../record/leaf.ts";
import {
  type EndpointSummary,
  LETTERS,
  type LeafFacts,
  type RecordToRead,
  readLeaves,
  summarizeByEndpoint,
} from "./export-record.ts";
import { readMirrorCommit } from "./state.ts";

/** The newest index of a record, with its lines shard by shard. */
export interface ProvenIndex extends RecordToRead {
  /** The index was made from the leaves below this position; `computedAt` is the record time of the last of them. */
  treeSize: number;
  computedAt: string;
  lines: number;
  readLines(): AsyncGenerator<IndexLine>;
}

/**
 * Opens the record in a mirror's folder. The mirror's run that saved the tree head has proven the record.
 * @throws Failure `usage` when the folder has no saved tree head
 */
export async function openMirroredRecord(
  publicStore: Pick<ReadableStore, "get">,
  stateStore: Pick<ReadableStore, "get">,
): Promise<RecordToRead> {
  const trusted = await readMirrorCommit(stateStore);
  if (!trusted) throw new Failure("usage", "the folder holds no proven record: run touchstone mirror first");
  const { size, root, note, cosigned_at: asOf } = trusted.head;
  const source: Source = {
    name: "the mirror",
    get: async (key, maxBytes) => (await publicStore.get(key, { maxBytes }))?.bytes ?? null,
    close: async () => undefined,
  };
  return { source, head: { size, root: Buffer.from(root, "hex") }, origin: note.split("\n", 1)[0]!, asOf };
}

/**
 * Opens the newest index, which the record's hint (an unsigned object) names. The hint is not trusted: the head proves
 * the leaf that names the index's list, the leaf proves the list, and the list proves each shard.
 * @throws Failure `usage` without a hint of a leaf below the head; MissingObject, Tampered, Unproven
 */
export async function openHintedIndex(record: RecordToRead): Promise<ProvenIndex> {
  const bytes = await record.source.get(INDEX_HINT, MAX_BYTES.hint);
  const leaf = (bytes && (parseJson(bytes) as { leaf?: unknown } | null | undefined))?.leaf;
  if (typeof leaf !== "number" || !(leaf >= 0 && leaf < record.head.size)) {
    throw new Failure("usage", `${record.source.name} names no index below its checkpoint yet`);
  }
  return openIndexOfLeaf(record, leaf);
}

async function openIndexOfLeaf(record: RecordToRead, leafIndex: number): Promise<ProvenIndex> {
  const { source, head } = record;
  const reader = await RecordReader.openWithFetch(createSourceFetch(source), head);
  const entry = (await reader.entries(Math.floor(leafIndex / TILE_WIDTH)))[leafIndex % TILE_WIDTH];
  const named = entry && parseEntry(leafIndex, entry);
  if (named?.kind !== "index")
    throw new Unproven(`leaf ${leafIndex}`, "a leaf that names an index", named?.kind ?? "none");
  const leaf = parseLeaf(IndexLeaf, named);
  const list = parseIndexList(leaf.key, parseJson(await fetchNamed(source, leaf, "indexList")));
  return {
    ...record,
    treeSize: list.tree_size,
    computedAt: list.computed_at,
    lines: list.shards.reduce((sum, { lines }) => sum + lines, 0),
    async *readLines() {
      for (const shard of list.shards) yield* readShardLines(source, shard);
    },
  };
}

async function* readShardLines(source: Source, shard: ShardLine): AsyncGenerator<IndexLine> {
  const text = await unpackShard(await fetchShard(source, shard), shard);
  for (const line of text.toString("utf8").split("\n")) {
    if (!line) continue;
    const { data } = IndexLine.safeParse(parseJson(Buffer.from(line)));
    if (!data) throw new Unproven(shardKey(shard.sha256), "lines of an index", line.slice(0, 80));
    yield data;
  }
}

/** One row for each endpoint. Column `card` has the whole signed card, so that anybody can verify the row. */
const INDEX_COLUMNS: Columns = {
  capability_id: COLUMN.text,
  url: COLUMN.text,
  host: COLUMN.text,
  http_method: COLUMN.text,
  method_page: COLUMN.text,
  tool: COLUMN.text,
  class: COLUMN.text,
  description: COLUMN.text,
  band: COLUMN.text,
  raw_band: COLUMN.text,
  tier: COLUMN.text,
  why: COLUMN.text,
  composite: COLUMN.number,
  sample_count: COLUMN.count,
  paid_calls: COLUMN.count,
  price: COLUMN.number,
  asset: COLUMN.text,
  networks: COLUMN.texts,
  pay_to: COLUMN.text,
  first_seen: COLUMN.moment,
  last_seen: COLUMN.moment,
  computed_at: COLUMN.moment,
  as_of: COLUMN.moment,
  flags: COLUMN.texts,
  defects: COLUMN.texts,
  ...componentColumns(),
  leaf: COLUMN.count,
  card: COLUMN.text,
};

interface RowContext {
  asOf: Date | null;
  leaves: LeafFacts;
  summaries: ReadonlyMap<string, EndpointSummary>;
}

/** Makes a row of the Parquet file from a line of the index and the facts of its endpoint in evidence and leaves. */
function rowOf({ card, defects, ...line }: IndexLine, { asOf, leaves, summaries }: RowContext): Row {
  const summary = summaries.get(line.capability_id);
  const rawCode = line.leaf === null ? 0 : (leaves.rawLetters[line.leaf] ?? 0);
  return {
    ...{
      capability_id: line.capability_id,
      url: line.url,
      host: parseUrl(line.url ?? "")?.host,
      http_method: line.method,
    },
    ...{ method_page: card?.method, tool: line.tool, class: line.class, description: line.description },
    ...{ band: line.band, raw_band: rawCode > 0 ? LETTERS[rawCode - 1] : null, tier: line.tier, why: line.why },
    ...{ composite: compositeOf(card), sample_count: line.sample_count, paid_calls: summary?.paidCalls ?? 0 },
    ...{ price: summary?.price, asset: summary?.asset, networks: summary?.networks ?? [], pay_to: summary?.payTo },
    ...{ first_seen: toDate(summary?.first), last_seen: toDate(summary?.last) },
    ...{ computed_at: toDate(card?.computed_at), as_of: asOf, flags: card?.flags ?? [] },
    defects: defects.map(({ defect }) => defect),
    ...componentValuesOf(card),
    ...{ leaf: line.leaf, card: card && JSON.stringify(card) },
  };
}

/** Writes an index as a Parquet file, with the facts of each endpoint from the evidence. @returns number of rows */
export async function exportIndex(
  index: ProvenIndex,
  path: string,
  onProgress: (rows: number) => void = () => undefined,
): Promise<number> {
  const leaves = await readLeaves(index);
  const summaries = await summarizeByEndpoint(index, leaves.evidence);
  const context = { asOf: toDate(index.computedAt), leaves, summaries };
  const rows = async function* () {
    for await (const line of index.readLines()) yield rowOf(line, context);
  };
  const facts = { origin: index.origin, tree_size: String(index.treeSize), computed_at: index.computedAt };
  return writeParquet(path, INDEX_COLUMNS, facts, rows(), onProgress);
}
