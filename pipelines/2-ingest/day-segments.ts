import { randomBytes } from "node:crypto";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SegmentRef } from "../../infra/chain/commit.ts";
import { openChain } from "../../infra/chain/commits.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";

export interface DaySegmentsParts {
  lake: Pick<Lake, "all" | "workDir">;
  privateStore: Store;
  logId: string;
}

/** Which records: of one partition of these topics, observed on the UTC day, below each topic's position (next offset). */
export interface DayRecords {
  partition: number;
  day: string;
  below: Readonly<Record<string, number>>;
}

/** The files of {@link openSegments}, until they are closed. */
export interface DaySegments {
  /** A folder that is removed with them. */
  folder: string;
  /** Glob for `read_parquet`, or null when there is no segment. */
  files: string | null;
  close(): Promise<void>;
}

/** Segments of one partition of a topic. */
export interface SegmentsOf {
  topic: string;
  partition: number;
  wants: (ref: SegmentRef) => boolean;
}

/** Live segments as files on this machine. @throws DamagedChain, and what the store throws */
export async function openSegments(
  { workDir, privateStore, logId }: { workDir: string; privateStore: Store; logId: string },
  wanted: readonly SegmentsOf[],
): Promise<DaySegments> {
  const folder = join(workDir, `day-${randomBytes(8).toString("hex")}`);
  const close = () => rm(folder, { recursive: true, force: true });
  let count = 0;
  try {
    await mkdir(folder);
    for (const { topic, partition, wants } of wanted) {
      const chain = openChain(privateStore, { logId, topic, partition });
      for (const ref of (await chain.head()).live) {
        if (ref.rows === 0 || !wants(ref)) continue;
        await writeFile(join(folder, `${count++}.parquet`), await chain.readSegment(ref));
      }
    }
  } catch (error) {
    await close();
    throw error;
  }
  return { folder, files: count === 0 ? null : join(folder, "*.parquet"), close };
}

/**
 * The live segments of one partition that have records of a day below the given positions: what the lake does not keep,
 * the bodies of probes, is read from them. They have rows of other days and later positions too, and copies of an event:
 * the reader says which rows it means. Which files have the day is the lake's to say; one that the chain has and the lake
 * has not loaded (a rival joined some) is among them.
 * @throws DamagedChain, and what the store throws
 */
export async function openDaySegments(
  { lake, privateStore, logId }: DaySegmentsParts,
  { partition, day, below }: DayRecords,
): Promise<DaySegments> {
  const wanted: SegmentsOf[] = [];
  for (const [topic, next] of Object.entries(below)) {
    const others = await lake.all<{ file: string }>(sql("queries/loaded:other_days"), { topic, part: partition, day });
    const without = new Set(others.map(({ file }) => file));
    wanted.push({ topic, partition, wants: ({ first, file }) => first < next && !without.has(file) });
  }
  return openSegments({ workDir: lake.workDir, privateStore, logId }, wanted);
}
