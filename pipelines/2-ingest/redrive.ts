import type { SegmentRef } from "../../infra/chain/commit.ts";
import { type Log, MAX_BATCH } from "../../infra/log/log.ts";
import { readRejected, rejectedBytes } from "./batch.ts";
import type { Partition } from "./partition.ts";
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
 * The rejected records of one partition, read again. What passes now is appended to the log once more, under its own
 * event id: at its old offset it would stand below positions that published cards and the evidence of closed days have read past,
 * and neither would ever say it. The rejected line stays, with the bytes and the offset they moved to. A kill between
 * the two appends them again at the next redrive, and readers drop the copy. The caller ingests what was appended.
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
