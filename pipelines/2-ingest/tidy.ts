import { readFile, rm, writeFile } from "node:fs/promises";
import { chainFolder, type SegmentRef } from "../../infra/chain/commit.ts";
import type { Chain } from "../../infra/chain/commits.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { type Log, MAX_BATCH } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import { BATCH_BYTES, BATCH_ROWS, readRejected, rejectedBytes } from "./batch.ts";
import type { Partition } from "./partition.ts";
import { type Rejected, readRow, recordOf } from "./row.ts";

/** Fewer neighbours are not worth a commit: a service that is up writes one small segment a pass. */
const MIN_FILES = 8;

export interface Compacted {
  /** Live files before and after. */
  before: number;
  after: number;
}

/**
 * Small neighbouring segments of one partition become one of at most the size of a batch, each in a commit of its own
 * that removes and adds (records.md, The commit chain). A kill in between leaves the old files live, or the new one; a
 * rival who replaced one of them meanwhile wins, and the next compaction looks again. The old files stay in the store
 * for a week (see collectGarbage), so whoever read the head before may still read them.
 */
export async function compactPartition(partition: Partition, lake: Lake, minFiles = MIN_FILES): Promise<Compacted> {
  const { live } = await partition.head();
  const groups = groupsOf(live).filter((group) => group.length >= minFiles);
  let won = false;
  for (const group of groups) won = (await compactGroup(partition, lake, group)) || won;
  // The lake forgets what is not live any more; what the new files hold it has already.
  if (won) await partition.catchUp();
  return { before: live.length, after: (await partition.head()).live.length };
}

/** Runs of neighbours without a hole between them that fit into one batch together. */
function groupsOf(live: readonly SegmentRef[]): SegmentRef[][] {
  const groups: SegmentRef[][] = [];
  let size = { rows: 0, bytes: 0 };
  for (const ref of live) {
    const group = groups.at(-1);
    const rows = ref.rows + ref.rejected;
    const fits = size.rows + rows <= BATCH_ROWS && size.bytes + ref.bytes <= BATCH_BYTES;
    if (group && fits && group.at(-1)!.last + 1 === ref.first) {
      group.push(ref);
      size = { rows: size.rows + rows, bytes: size.bytes + ref.bytes };
    } else {
      groups.push([ref]);
      size = { rows, bytes: ref.bytes };
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
      if (rejects) rejected.push(...readRejected(await partition.chain.readSegment(rejects)));
    const rows = group.reduce((sum, ref) => sum + ref.rows, 0);
    const content = { rows, rejected: { records: rejected.length, bytes: rejectedBytes(rejected) } };
    const { next, lastEventId } = await partition.head();
    const add = [
      await partition.chain.putSegment(await readFile(segment), group[0]!.first, group.at(-1)!.last, content),
    ];
    return await partition.commit({ first: next, next, lastEventId, add, remove: group.map((ref) => ref.file) });
  } finally {
    for (const path of [...files, segment]) await rm(path, { force: true });
  }
}

/** What is not live stays this long: a reader of an older head may be at it, and a rival may be about to commit it. */
const KEPT_MS = 7 * 86_400_000;
const PAGE = 1_000;

/**
 * Delete data files of a chain that nothing needs: those that a commit removed a week ago, and those that no commit ever
 * added and that are a week old (the writer died, or lost the race and died before it dropped them). The history is only
 * read when there is a file that is not live.
 * @returns how many files were deleted
 */
export async function collectGarbage(store: Store, chain: Chain, now: Date): Promise<number> {
  const { live } = await chain.head();
  const needed = new Set(live.flatMap((ref) => [ref.file, ...(ref.rejects ? [ref.rejects.file] : [])]));
  const loose = new Map<string, number>();
  const prefix = `${chainFolder(chain)}/data/`;
  for (let startAfter: string | undefined; ; ) {
    const page = await store.list(prefix, { limit: PAGE, ...(startAfter ? { startAfter } : {}) });
    for (const { key, modifiedAt } of page) if (!needed.has(key)) loose.set(key, modifiedAt.getTime());
    if (page.length < PAGE) break;
    startAfter = page.at(-1)!.key;
  }
  if (loose.size === 0) return 0;
  const moments = await removals(chain);
  let deleted = 0;
  for (const [key, written] of loose) {
    const since = moments.has(key) ? moments.get(key)! : written;
    // A file whose commit came after we read the head is live by now: its moment is unknown, so it stays.
    if (since === null || now.getTime() - since < KEPT_MS) continue;
    await store.delete(key);
    deleted++;
  }
  return deleted;
}

/** Every file that a commit added: when one removed it, or null while it is live. */
async function removals(chain: Chain): Promise<Map<string, number | null>> {
  const moments = new Map<string, number | null>();
  const sides = new Map<string, string>();
  for await (const { add, remove, at } of chain.history()) {
    for (const file of remove) {
      moments.set(file, Date.parse(at));
      const side = sides.get(file);
      if (side) moments.set(side, Date.parse(at));
    }
    for (const { file, rejects } of add) {
      moments.set(file, null);
      if (!rejects) continue;
      moments.set(rejects.file, null);
      sides.set(file, rejects.file);
    }
  }
  return moments;
}

export interface Redriven {
  /** Records that the readers of today take. */
  found: number;
  /** Records that stay rejected. */
  left: number;
}

/** Rivals move the chain while we work; each of them made progress, so this many in a row means something else is wrong. */
const MAX_RACES = 8;

/**
 * The rejected records of one partition, read again. What passes now is appended to the log once more, under its own
 * event id: at its old offset it would stand below positions that published cards and the evidence of closed days have
 * read past, and neither would ever say it. The rejected line stays, with the bytes and the offset they moved to. A
 * kill between the two appends them again at the next redrive, and readers drop the copy. The caller ingests what was appended.
 */
export async function redrivePartition(partition: Partition, log: Log): Promise<Redriven> {
  const total: Redriven = { found: 0, left: 0 };
  const { live } = await partition.head();
  for (const ref of live) {
    if (!ref.rejects) continue;
    const rejected = readRejected(await partition.chain.readSegment(ref.rejects));
    const passing = rejected.filter((one) => one.moved_to === undefined && readRow(recordOf(one)).ok);
    total.found += passing.length;
    total.left += rejected.filter((one) => one.moved_to === undefined).length - passing.length;
    if (passing.length > 0) await markMoved(partition, ref, rejected, await appendAgain(log, passing));
  }
  return total;
}

/** @returns old offset -> new offset */
async function appendAgain(log: Log, passing: readonly Rejected[]): Promise<Map<number, number>> {
  const moved = new Map<number, number>();
  for (let i = 0; i < passing.length; i += MAX_BATCH) {
    const batch = passing.slice(i, i + MAX_BATCH);
    const appended = await log.append(batch.map(recordOf));
    appended.forEach(({ offset }, n) => {
      moved.set(batch[n]!.offset, offset);
    });
  }
  return moved;
}

async function markMoved(
  partition: Partition,
  ref: SegmentRef,
  rejected: readonly Rejected[],
  moved: ReadonlyMap<number, number>,
): Promise<void> {
  const lines = rejected.map((one) => (moved.has(one.offset) ? { ...one, moved_to: moved.get(one.offset)! } : one));
  const bytes = await partition.chain.readSegment(ref);
  const content = { rows: ref.rows, rejected: { records: lines.length, bytes: rejectedBytes(lines) } };
  for (let race = 0; race < MAX_RACES; race++) {
    const head = await partition.head();
    // Somebody else replaced it meanwhile: at worst the next redrive appends these once more, as copies.
    if (!head.live.some(({ file }) => file === ref.file)) return;
    const { next, lastEventId } = head;
    const add = [await partition.chain.putSegment(bytes, ref.first, ref.last, content)];
    if (await partition.commit({ first: next, next, lastEventId, add, remove: [ref.file] })) return;
  }
  throw new Error(`redrive of ${ref.file}: lost ${MAX_RACES} races in a row`);
}
