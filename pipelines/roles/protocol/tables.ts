import { z } from "zod";
import type { Clock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import type { Store } from "../../../infra/store/store.ts";
import type { Ingest } from "../../2-ingest/ingest.ts";
import { positionsOf } from "../../2-ingest/load.ts";
import { changedBuckets, historyOf } from "../../2-ingest/volatile.ts";
import type { PublishedRecord } from "../../4-publish/followed.ts";
import { mergePositions } from "../../4-publish/generation.ts";
import type { Publisher } from "../../4-publish/publisher.ts";
import { writeHistory, writeLiveTable } from "../../4-publish/view.ts";
import type { HistoryNames } from "../../record/history.ts";
import { encodeHistory } from "../../record/history-arrow.ts";
import { partitionOf, partitionOfBucket } from "../../record/ids.ts";
import type { Positions } from "../../record/volatile.ts";
import { LiveTables } from "./live-tables.ts";
import { PartitionObjects } from "./partition-objects.ts";

/**
 * The private object `owners/volatile/<partition>`, in which a partition's owner names the current files of its
 * volatile table (one row for each endpoint, with the facts that change more often than its card). `log`: id of the
 * event log; `positions`: {topic: next offset}, below which the table has the facts of all records.
 */
const LiveTableObject = z.object({
  v: z.literal(2),
  log: z.string(),
  positions: z.record(z.string(), z.int()),
  /** Keys of the files, oldest first. If several files have a row of an endpoint, the row in the last file counts. */
  keys: z.array(z.string()),
});
/**
 * The private object `owners/history/<partition>`, in which a partition's owner names the current files of the charts.
 * `files`: {number of the bucket: key of its file}.
 */
const HistoryTableObject = z.object({
  v: z.literal(1),
  log: z.string(),
  positions: z.record(z.string(), z.int()),
  files: z.record(z.string(), z.string()),
});

export class PartitionTables {
  readonly live: PartitionObjects<z.infer<typeof LiveTableObject>>;
  readonly history: PartitionObjects<z.infer<typeof HistoryTableObject>>;

  constructor(store: Store, log: { id: string; partitions: number }) {
    this.live = new PartitionObjects(store, "volatile", LiveTableObject, log);
    this.history = new PartitionObjects(store, "history", HistoryTableObject, log);
  }
}

export interface OwnTablesParts {
  lake: Lake;
  ingest: Ingest;
  publicStore: Store;
  clock: Clock;
  followed: PublishedRecord;
  tables: PartitionTables;
  log: { id: string; partitions: number };
}

/**
 * Writes the rows of changed endpoints into the volatile table of each of the owner's partitions. The files of a
 * partition's previous owner stay in use until all rows are written.
 * @param refuseRevoked throws when one of the partitions was taken from this process while it worked on them: rows
 * may have been removed from the lake before they were read
 * @returns number of partitions whose table changed
 */
export async function writeOwnVolatile(
  parts: OwnTablesParts,
  live: LiveTables,
  heldPartitions: readonly number[],
  refuseRevoked: () => void,
): Promise<number> {
  const { ingest, followed, tables, log } = parts;
  // The positions are read before the rows, so that a table has the facts of all records below its positions, and
  // perhaps of some later ones.
  const positions = await ingest.positions();
  await live.writeChanges(await followed.current(), heldPartitions);
  let changedTables = 0;
  const writtenTables = await tables.live.readOwn(heldPartitions);
  for (const partition of heldPartitions) {
    const ownPositions = positionsOf(positions, partition);
    const keys = live.keysOf(partition);
    const writtenPart = writtenTables.get(partition);
    const isUnchanged = writtenPart !== undefined && JSON.stringify(writtenPart.keys) === JSON.stringify(keys);
    if (isUnchanged && JSON.stringify(writtenPart.positions) === JSON.stringify(ownPositions)) continue;
    refuseRevoked();
    await tables.live.put(partition, { v: 2, log: log.id, positions: ownPositions, keys }, () => true);
    if (!isUnchanged) changedTables++;
  }
  live.markNamed();
  return changedTables;
}

/** Makes the writer of the volatile tables of an owner's partitions. It writes their files to the public store. */
export const openOwnLive = ({ lake, publicStore, clock, log }: OwnTablesParts): LiveTables =>
  new LiveTables({
    lake,
    now: () => clock.now(),
    tableOf: (cap) => partitionOf(cap, log.partitions),
    write: (partition, bytes) => writeLiveTable(publicStore, clock, partition, bytes),
  });

/**
 * Writes the files of the charts on endpoints' pages, for the buckets (fixed shares of the endpoints) in the owner's
 * partitions that changed.
 * @param refuseRevoked as in {@link writeOwnVolatile}
 * @returns number of files that were written
 */
export async function writeOwnHistory(
  parts: OwnTablesParts,
  heldPartitions: readonly number[],
  now: Date,
  refuseRevoked: () => void,
): Promise<number> {
  const { lake, ingest, publicStore, clock, tables, log } = parts;
  const positions = await ingest.positions();
  const writtenHistory = await tables.history.readOwn(heldPartitions);
  const previous = mergeParts(
    heldPartitions.flatMap((partition) =>
      writtenHistory.has(partition) ? [[partition, writtenHistory.get(partition)!]] : [],
    ),
  );
  const buckets = await changedBuckets(lake, previous.positions, positions);
  const files: Record<string, string> = {};
  for await (const { bucket, rows } of historyOf(lake, buckets, now))
    files[bucket] = await writeHistory(publicStore, clock, bucket, encodeHistory(rows));
  for (const partition of heldPartitions) {
    const ownFiles = Object.entries(files).filter(
      ([bucket]) => partitionOfBucket(Number(bucket), log.partitions) === partition,
    );
    const writtenPart = writtenHistory.get(partition);
    if (ownFiles.length === 0 && writtenPart) continue;
    const allFiles = { ...writtenPart?.files, ...Object.fromEntries(ownFiles) };
    const part = { v: 1 as const, log: log.id, positions: positionsOf(positions, partition), files: allFiles };
    refuseRevoked();
    await tables.history.put(partition, part, () => true);
  }
  return Object.keys(files).length;
}

type MergedParts = Pick<HistoryNames, "files" | "positions">;

/** Merges the files and positions in the objects of several partitions. */
function mergeParts(
  parts: readonly (readonly [number, { positions: Record<string, number>; files?: Record<string, string> }])[],
): MergedParts {
  let positions: Positions = {};
  const files: Record<string, string> = {};
  for (const [partition, part] of parts) {
    const ownPositions = Object.entries(part.positions).map(([topic, next]) => [topic, { [String(partition)]: next }]);
    positions = mergePositions(positions, Object.fromEntries(ownPositions));
    Object.assign(files, part.files);
  }
  return { files, positions };
}

/**
 * Names the newest files of the volatile tables and charts of all partitions in the view, the file by which the
 * processes that answer clients find them. The publisher calls this function. Returns the number of partitions with a
 * table.
 */
export async function nameTables(publisher: Publisher, tables: PartitionTables): Promise<number> {
  const live = [...(await tables.live.readAll())].sort(([a], [b]) => a - b);
  const history = [...(await tables.history.readAll())];
  await publisher.writeView({ live: live.flatMap(([, { keys }]) => keys), positions: mergeParts(live).positions });
  if (history.length > 0) await publisher.nameHistory(mergeParts(history));
  return live.length;
}

/** Returns the keys of the files that the owners' objects name, also of those that no view names yet. */
export async function listFilesInUse(tables: PartitionTables): Promise<string[]> {
  const live = [...(await tables.live.readAll()).values()].flatMap(({ keys }) => keys);
  return [...live, ...[...(await tables.history.readAll()).values()].flatMap(({ files }) => Object.values(files))];
}
