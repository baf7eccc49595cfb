import { readFile, rm, writeFile } from "node:fs/promises";
import type { SegmentRef } from "../../infra/chain/commit.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { readRejected, rejectedBytes } from "./batch.ts";
import type { Place } from "./place.ts";
import { type Rejected, readRow, recordOf } from "./row.ts";

export interface Redriven {
  /** Records that the readers of today take. */
  found: number;
  /** Records that stay rejected. */
  left: number;
}

/** Rivals move the chain while we work; each of them made progress, so this many in a row means something else is wrong. */
const MAX_RACES = 8;

/**
 * The rejected records of one partition, read again. A segment with some that pass now is replaced, in one commit, by one
 * that holds them at their own offsets: nothing is appended, so a kill in between leaves the old segment or the new one.
 */
export async function redrivePlace(place: Place, lake: Lake): Promise<Redriven> {
  const total: Redriven = { found: 0, left: 0 };
  const { live } = await place.head();
  for (const ref of live) {
    if (!ref.rejects) continue;
    const { lines, left } = judge(readRejected(await place.chain.readSegment(ref.rejects)));
    total.left += left.length;
    if (lines.length === 0) continue;
    total.found += lines.length;
    await replaceSegment(place, lake, ref, lines, left);
  }
  if (total.found > 0) await place.catchUp();
  return total;
}

function judge(rejected: readonly Rejected[]): { lines: string[]; left: Rejected[] } {
  const lines: string[] = [];
  const left: Rejected[] = [];
  for (const one of rejected) {
    const read = readRow(recordOf(one));
    if (read.ok) lines.push(read.line);
    else left.push(read.rejected);
  }
  return { lines, left };
}

async function replaceSegment(
  place: Place,
  lake: Lake,
  ref: SegmentRef,
  lines: string[],
  left: Rejected[],
): Promise<void> {
  const [text, found, old, segment] = ["redrive.ndjson", "found.parquet", "old.parquet", "new.parquet"].map((end) =>
    place.path(end),
  ) as [string, string, string, string];
  try {
    await writeFile(text, lines.map((line) => `${line}\n`).join(""));
    await place.write(text, found);
    await writeFile(old, await place.chain.readSegment(ref));
    await lake.all(sql("11_merged"), { old, found, segment });
    const bytes = await readFile(segment);
    const content = { rows: ref.rows + lines.length, rejected: { records: left.length, bytes: rejectedBytes(left) } };
    for (let race = 0; race < MAX_RACES; race++) {
      const head = await place.head();
      // Somebody else replaced it meanwhile: what he left rejected is read at the next redrive.
      if (!head.live.some(({ file }) => file === ref.file)) return;
      const { next, lastEventId } = head;
      const add = [await place.chain.putSegment(bytes, ref.first, ref.last, content)];
      if (await place.commit({ first: next, next, lastEventId, add, remove: [ref.file] })) return;
    }
    throw new Error(`redrive of ${ref.file}: lost ${MAX_RACES} races in a row`);
  } finally {
    for (const path of [text, found, old, segment]) await rm(path, { force: true });
  }
}
