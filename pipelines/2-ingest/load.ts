import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { holdBack } from "../5-archive/hold-back.ts";
import { addEndpoints } from "./endpoints.ts";

/** Statements that make the lake's tables of this floor, for `openLake`. They repeat safely. */
export const INGEST_TABLES: readonly string[] = [
  "00_settings",
  "01_bodies",
  "10_tables",
  "20_samples",
  "27_stale_tables",
  "45_asks_tables",
  "60_archive_tables",
].map(sql);

/** What follows the staging of a segment, by topic. */
export const STEPS: Record<string, readonly string[]> = {
  listings: ["15_listings"],
  "observations.free": ["13_knocks", "21_knock_samples", "24_seen", "23_withdrawn"],
  "observations.mcp": ["13_knocks", "21_knock_samples", "24_seen", "23_withdrawn"],
  "observations.paid": ["14_paid", "22_paid_samples", "24_seen", "23_withdrawn"],
  asks: ["46_asks"],
  corrections: ["16_corrections", "23_withdrawn"],
};
/** Topics that become segments and rows; the others have no types yet. */
export const INGESTED: readonly string[] = Object.keys(STEPS);

/** One live segment of a chain, with the bytes on this machine. */
export interface Loadable {
  topic: string;
  partition: number;
  /** Its key in the store. */
  file: string;
  /** Rows in the file. */
  rows: number;
  path: string;
  /** Positions below are loaded once this segment is. */
  next: number;
}

/**
 * A segment's new records into the lake, with its `loaded` row and the position: one transaction, all or nothing. Loading
 * it again, or a compacted one, adds nothing twice.
 * @param ownHosts hosts (with port) that are ours: never graded
 * @returns records that the lake did not have
 */
export async function loadSegment(lake: Lake, segment: Loadable, ownHosts: ReadonlySet<string>): Promise<number> {
  return lake.transaction(async (tx) => {
    const place = { topic: segment.topic, part: segment.partition, file: segment.file };
    const known = await tx.all("FROM loaded WHERE topic = $topic AND part = $part AND file = $file", place);
    const fresh = known.length > 0 ? 0 : await fold(tx, segment, ownHosts);
    if (known.length === 0)
      await tx.run("INSERT INTO loaded VALUES ($topic, $part, $file, $rows)", { ...place, rows: segment.rows });
    await advance(tx, segment, []);
    return fresh;
  });
}

/** Move a partition's position where there is nothing to load, and forget files that others replaced. */
export async function advanceLake(
  lake: Lake,
  place: { topic: string; partition: number; next: number },
  gone: readonly string[],
): Promise<void> {
  await lake.transaction((tx) => advance(tx, place, gone));
}

async function advance(
  tx: Statements,
  { topic, partition: part, next }: { topic: string; partition: number; next: number },
  gone: readonly string[],
): Promise<void> {
  await tx.run("SET VARIABLE place = $place", { place: JSON.stringify({ topic, part, next, gone }) });
  await tx.run(sql("19_loaded"));
}

async function fold(tx: Statements, segment: Loadable, ownHosts: ReadonlySet<string>): Promise<number> {
  await tx.run("SET VARIABLE segment = $path", { path: segment.path });
  await tx.run(sql("12_stage"));
  await holdBack(tx);
  for (const step of STEPS[segment.topic] ?? []) await tx.run(sql(step));
  await addEndpoints(tx, segment.topic, ownHosts);
  await tx.run(sql("25_site"));
  const [staged] = await tx.all<{ fresh: bigint }>("SELECT count(*) AS fresh FROM stage");
  return Number(staged?.fresh ?? 0n);
}

export type Positions = Record<string, Record<string, number>>;

/** How far the lake has loaded: {topic: {partition: next offset}}. */
export async function lakePositions(lake: Pick<Statements, "all">): Promise<Positions> {
  const rows = await lake.all<{ topic: string; part: number; next: bigint }>("FROM positions ORDER BY topic, part");
  const positions: Positions = {};
  for (const { topic, part, next } of rows) {
    positions[topic] ??= {};
    positions[topic][String(part)] = Number(next);
  }
  return positions;
}

/** What the lake has of a partition: keys of its files, and the position behind them, null before the first look. */
export async function lakeHas(
  lake: Lake,
  topic: string,
  partition: number,
): Promise<{ files: Set<string>; next: number | null }> {
  const rows = await lake.all<{ file: string | null; next: bigint | null }>(sql("19_has"), { topic, part: partition });
  const next = rows[0]?.next ?? null;
  const files = rows.flatMap(({ file }) => (file === null ? [] : [file]));
  return { files: new Set(files), next: next === null ? null : Number(next) };
}
