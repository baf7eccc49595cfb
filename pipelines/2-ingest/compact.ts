import { readFile, rm, writeFile } from "node:fs/promises";
import type { SegmentRef } from "../../infra/chain/commit.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { BATCH_BYTES, BATCH_ROWS, readRejected, rejectedBytes } from "./batch.ts";
import type { Place } from "./place.ts";

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
 * for a week (see sweep.ts), so whoever read the head before may still read them.
 */
export async function compactPlace(place: Place, lake: Lake, minFiles = MIN_FILES): Promise<Compacted> {
  const { live } = await place.head();
  const groups = groupsOf(live).filter((group) => group.length >= minFiles);
  let won = false;
  for (const group of groups) won = (await compactGroup(place, lake, group)) || won;
  // The lake forgets what is not live any more; what the new files hold it has already.
  if (won) await place.catchUp();
  return { before: live.length, after: (await place.head()).live.length };
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

async function compactGroup(place: Place, lake: Lake, group: readonly SegmentRef[]): Promise<boolean> {
  const files: string[] = [];
  const segment = place.path("compacted.parquet");
  try {
    for (const ref of group) {
      const path = place.path("part.parquet");
      files.push(path);
      await writeFile(path, await place.chain.readSegment(ref));
    }
    await lake.transaction(async (tx) => {
      await tx.run(`SET VARIABLE files = from_json($files, '["VARCHAR"]')`, { files: JSON.stringify(files) });
      await tx.run(sql("11_compacted"), { segment });
    });
    const rejected = [];
    for (const { rejects } of group)
      if (rejects) rejected.push(...readRejected(await place.chain.readSegment(rejects)));
    const rows = group.reduce((sum, ref) => sum + ref.rows, 0);
    const content = { rows, rejected: { records: rejected.length, bytes: rejectedBytes(rejected) } };
    const { next, lastEventId } = await place.head();
    const add = [await place.chain.putSegment(await readFile(segment), group[0]!.first, group.at(-1)!.last, content)];
    return await place.commit({ first: next, next, lastEventId, add, remove: group.map((ref) => ref.file) });
  } finally {
    for (const path of [...files, segment]) await rm(path, { force: true });
  }
}
