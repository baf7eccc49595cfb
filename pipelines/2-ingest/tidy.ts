import { readFile, rm, writeFile } from "node:fs/promises";
import { chainFolder, type SegmentRef } from "../../infra/chain/commit.ts";
import type { Chain } from "../../infra/chain/commits.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { type Log, type LogRecord, MAX_BATCH_BYTES, MAX_BATCH_RECORDS } from "../../infra/log/log.ts";
import { objectsBelow, type Store } from "../../infra/store/store.ts";
import { BATCH_BYTES, BATCH_ROWS, encodeRejected, parseRejected } from "./batch.ts";
import type { Partition } from "./partition.ts";
import { type Rejected, readRow, recordOf } from "./row.ts";

/** Least number of neighbouring segments that are joined. A running service writes one small segment in each pass. */
const MIN_FILES = 8;

export interface Compacted {
  /** Number of live files before and after the joining. */
  before: number;
  after: number;
}

/**
 * Joins small neighbouring segments of one partition, up to the size of a batch. Each group is replaced in one commit
 * (records.md, The commit chain), so after a kill either the old files or the new file are live. If another ingester
 * replaced one of the files meanwhile, its commit wins, and the next compaction tries again. The old files stay in
 * the store for a week (collectGarbage), for readers that still use an older commit.
 */
export async function compactPartition(partition: Partition, lake: Lake, minFiles = MIN_FILES): Promise<Compacted> {
  const { live } = await partition.chain.head();
  const groups = groupsOf(live).filter((group) => group.length >= minFiles);
  let won = false;
  for (const group of groups) won = (await compactGroup(partition, lake, group)) || won;
  // The lake has these rows already. This replaces only the names of the files in `loaded`.
  if (won) await partition.catchUp();
  return { before: live.length, after: (await partition.chain.head()).live.length };
}

/**
 * Groups neighbouring segments that have no gap between them and together fit into one batch, with their files of
 * rejected records.
 */
export function groupsOf(live: readonly SegmentRef[]): SegmentRef[][] {
  const groups: SegmentRef[][] = [];
  let size = { rows: 0, bytes: 0 };
  for (const ref of live) {
    const group = groups.at(-1);
    const rows = ref.rows + ref.rejected;
    const bytes = ref.bytes + (ref.rejects?.bytes ?? 0);
    const fits = size.rows + rows <= BATCH_ROWS && size.bytes + bytes <= BATCH_BYTES;
    if (group && fits && group.at(-1)!.last + 1 === ref.first) {
      group.push(ref);
      size = { rows: size.rows + rows, bytes: size.bytes + bytes };
    } else {
      groups.push([ref]);
      size = { rows, bytes };
    }
  }
  return groups;
}

async function compactGroup(partition: Partition, lake: Lake, group: readonly SegmentRef[]): Promise<boolean> {
  const files: string[] = [];
  const segment = partition.path("compacted.parquet");
  try {
    for (const ref of group) {
      const path = partition.path("part.parquet");
      files.push(path);
      await writeFile(path, await partition.chain.readSegment(ref));
    }
    await lake.run(sql("staging/segment:joined"), { files: JSON.stringify(files), segment });
    const rejected = [];
    for (const { rejects } of group)
      if (rejects) rejected.push(...parseRejected(await partition.chain.readSegment(rejects)));
    const rows = group.reduce((sum, ref) => sum + ref.rows, 0);
    const content = { rows, rejected: { records: rejected.length, bytes: encodeRejected(rejected) } };
    const { next, lastEventId } = await partition.chain.head();
    const [first, last] = [group[0]!.first, group.at(-1)!.last];
    const add = [await partition.chain.putSegment(await readFile(segment), first, last, content)];
    return await partition.commit({ first: next, next, lastEventId, add, remove: group.map((ref) => ref.file) });
  } finally {
    for (const path of [...files, segment]) await rm(path, { force: true });
  }
}

/**
 * Time for which a file that is not live is kept, ms: for readers that still use an older commit, and for ingesters
 * that have written the file and not committed it yet.
 */
const GARBAGE_LIFETIME_MS = 7 * 86_400_000;
/** Largest difference between the clocks of machines that write commits, ms. Commits older by this are read too. */
const CLOCK_MARGIN_MS = 86_400_000;

/**
 * Deletes data files of a chain that a commit removed a week ago, and files a week old that no commit added (their
 * writer died, or lost a race). If there is a file that is not live, it reads the commits of the last eight days.
 * @returns number of deleted files
 */
export async function collectGarbage(store: Store, chain: Chain, now: Date): Promise<number> {
  const { live } = await chain.head();
  const neededKeys = new Set(live.flatMap((ref) => [ref.file, ...(ref.rejects ? [ref.rejects.file] : [])]));
  const unusedFiles = new Map<string, number>();
  for await (const { key, modifiedAt } of objectsBelow(store, `${chainFolder(chain)}/data/`))
    if (!neededKeys.has(key)) unusedFiles.set(key, modifiedAt.getTime());
  if (unusedFiles.size === 0) return 0;
  const { added, removed } = await readRecentFiles(chain, now.getTime() - GARBAGE_LIFETIME_MS - CLOCK_MARGIN_MS);
  let deleted = 0;
  for (const [key, writtenAt] of unusedFiles) {
    const removedAt = removed.get(key) ?? (key.endsWith(".rejected") ? removed.get(rangeOf(key)) : undefined);
    // The file was committed after the head was read, and is live.
    if (removedAt === undefined && added.has(key)) continue;
    // A file that no recent commit names was removed earlier, or never committed.
    if (now.getTime() - (removedAt ?? writtenAt) < GARBAGE_LIFETIME_MS) continue;
    await store.delete(key);
    deleted++;
  }
  return deleted;
}

/** The files that recent commits of a chain name. */
interface RecentFiles {
  /** Keys of added data files, and of their files of rejected records. */
  added: ReadonlySet<string>;
  /**
   * When a data file was removed, Unix ms, by its key and by its {@link rangeOf range}. A commit names only the data
   * file that it removes; the file of rejected records has another key and the same range.
   */
  removed: ReadonlyMap<string, number>;
}

/** Returns the part of a data file's key that states its range: `<folder>/data/<first>-<last>`. */
const rangeOf = (key: string): string => key.slice(0, key.lastIndexOf("-"));

/** Reads the commits from the newest back to the first that is older than `sinceMs` (Unix ms). */
async function readRecentFiles(chain: Chain, sinceMs: number): Promise<RecentFiles> {
  const added = new Set<string>();
  const removed = new Map<string, number>();
  for await (const commit of chain.newestFirst()) {
    const at = Date.parse(commit.at);
    if (at < sinceMs) break;
    for (const { file, rejects } of commit.add) {
      added.add(file);
      if (rejects) added.add(rejects.file);
    }
    // The newest commit that removed a range is read first, and its time stays.
    for (const file of commit.remove)
      for (const name of [file, rangeOf(file)]) if (!removed.has(name)) removed.set(name, at);
  }
  return { added, removed };
}

export interface Redriven {
  /** Number of rejected records that the current version accepts; they are appended to the log again. */
  found: number;
  /** Number of records that stay rejected. */
  left: number;
}

/**
 * Number of lost races in a row after which a redrive gives up. A race is lost only if another ingester commits in
 * between, so there are few.
 */
const MAX_RACES = 8;

/**
 * Reads the rejected records of one partition again, and appends those that are valid now to the log once more, under
 * their event ids. They do not get their old offsets, since grading runs and the evidence files of closed days have
 * already read past these offsets, and would lack the records. The line of a rejected record stays and gets the new
 * offset. After a kill between append and commit the next redrive appends the records again, and loading drops the
 * copies. The caller ingests the appended records.
 */
export async function redrivePartition(partition: Partition, log: Log): Promise<Redriven> {
  const total: Redriven = { found: 0, left: 0 };
  const { live } = await partition.chain.head();
  for (const ref of live) {
    if (!ref.rejects) continue;
    const rejected = parseRejected(await partition.chain.readSegment(ref.rejects));
    const notMoved = rejected.filter((one) => one.moved_to === undefined);
    const passing = notMoved.filter((one) => readRow(recordOf(one)).ok);
    total.found += passing.length;
    total.left += notMoved.length - passing.length;
    if (passing.length > 0) await markMoved(partition, ref, rejected, await appendAgain(log, passing));
  }
  return total;
}

/** Appends the records again, in batches that the log takes. @returns their new offsets by the old ones */
async function appendAgain(log: Log, passing: readonly Rejected[]): Promise<Map<number, number>> {
  const newOffsets = new Map<number, number>();
  let [batch, bytes]: [LogRecord[], number] = [[], 0];
  const appendBatch = async () => {
    for (const [n, { offset }] of (await log.append(batch)).entries()) newOffsets.set(batch[n]!.offset, offset);
    [batch, bytes] = [[], 0];
  };
  for (const record of passing.map(recordOf)) {
    if (batch.length === MAX_BATCH_RECORDS || bytes + record.value.byteLength > MAX_BATCH_BYTES) await appendBatch();
    batch.push(record);
    bytes += record.value.byteLength;
  }
  await appendBatch();
  return newOffsets;
}

async function markMoved(
  partition: Partition,
  ref: SegmentRef,
  rejected: readonly Rejected[],
  newOffsets: ReadonlyMap<number, number>,
): Promise<void> {
  const lines = rejected.map((one) =>
    newOffsets.has(one.offset) ? { ...one, moved_to: newOffsets.get(one.offset)! } : one,
  );
  const bytes = await partition.chain.readSegment(ref);
  const content = { rows: ref.rows, rejected: { records: lines.length, bytes: encodeRejected(lines) } };
  for (let race = 0; race < MAX_RACES; race++) {
    const head = await partition.chain.head();
    // Another ingester replaced the file. At worst the next redrive appends these records again, as copies.
    if (!head.live.some(({ file }) => file === ref.file)) return;
    const { next, lastEventId } = head;
    const add = [await partition.chain.putSegment(bytes, ref.first, ref.last, content)];
    if (await partition.commit({ first: next, next, lastEventId, add, remove: [ref.file] })) return;
  }
  throw new Error(`redrive of ${ref.file}: lost ${MAX_RACES} races in a row`);
}
