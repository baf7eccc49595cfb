import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { HISTORY_DAYS, type HistoryDay, type HistoryNames } from "../record/history.ts";
import { addDays, dayOf, dayStart } from "../record/time.ts";
import type { Positions } from "./load.ts";

interface Row extends HistoryDay {
  bucket: number;
}

/** Did a position go back? Then the lake is another one, and what was written before says nothing of it. */
const wentBack = (before: Positions, now: Positions): boolean =>
  Object.entries(before).some(([topic, parts]) =>
    Object.entries(parts).some(([part, next]) => (now[topic]?.[part] ?? 0) < next),
  );

/**
 * Buckets with observations or corrections that the history in force does not know.
 * @param before positions of that history; null or ones that the lake is not up to: every bucket with a record.
 */
export async function changedBuckets(
  lake: Lake,
  before: HistoryNames["positions"] | null,
  now: Positions,
): Promise<number[]> {
  const known = before && !wentBack(before, now) ? before : {};
  const list = Object.entries(known).flatMap(([topic, parts]) =>
    Object.entries(parts).map(([part, next]) => ({ topic, part: Number(part), next })),
  );
  const rows = await lake.all<{ bucket: number }>(sql("queries/history:changed"), { before: JSON.stringify(list) });
  return rows.map(({ bucket }) => bucket);
}

/**
 * The last 90 days of these buckets, one bucket at a time, ascending; a bucket without a row is left out. At most one
 * bucket's rows are held.
 */
export async function* historyOf(
  lake: Lake,
  buckets: readonly number[],
  now: Date,
): AsyncGenerator<{ bucket: number; rows: HistoryDay[] }> {
  if (buckets.length === 0) return;
  const since = dayStart(addDays(dayOf(now), 1 - HISTORY_DAYS)).getTime();
  let held: { bucket: number; rows: HistoryDay[] } | null = null;
  for await (const batch of lake.stream<Row>(sql("queries/history:days"), {
    buckets: JSON.stringify(buckets),
    since,
  })) {
    for (const { bucket, ...day } of batch) {
      if (held && held.bucket !== bucket) {
        yield held;
        held = null;
      }
      held ??= { bucket, rows: [] };
      held.rows.push(day);
    }
  }
  if (held) yield held;
}
