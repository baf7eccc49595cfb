import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { Moved } from "../2-ingest/ingest.ts";
import type { Followed } from "../4-publish/followed.ts";
import { settle } from "../5-archive/settle.ts";
import { isProbes, PROBES } from "../5-archive/subjects.ts";
import { dayOfManifest } from "../record/archive.ts";

export interface FollowedArchive {
  followed: Followed;
  publicStore: Store;
  /** Partitions of the event log. */
  partitions: number;
  logger: Logger;
}

/**
 * What an owner's ingest asks when partitions are loaded: the archive's leaves say which of their rows left. The days of
 * those wait aside, and are counted in the totals when the leaves were followed.
 */
export const followedArchive = (parts: FollowedArchive): Moved => ({
  async mark(lake) {
    const { archive } = await parts.followed.current();
    for (const { manifest } of archive.files.values()) {
      if (!isProbes(manifest.subject)) continue;
      const values = { type: PROBES[manifest.subject].type, day: dayOfManifest(manifest) };
      await lake.run(sql("67_archive_day"), values);
    }
  },
  settle: async (lake) => void (await settleWaiting(parts, lake)),
});

/**
 * Nothing is left aside: what a file holds is in the totals and gone, the rest are rows. A failure is logged, and the next
 * call goes on: grading must not stand still for totals.
 * @returns false while totals lack what waits
 */
export async function settleWaiting(parts: FollowedArchive, lake: Lake): Promise<boolean> {
  if ((await lake.all("SELECT 1 FROM late LIMIT 1")).length === 0) return true;
  const { followed, publicStore, partitions, logger } = parts;
  try {
    await settle({ lake, publicStore, partitions }, (await followed.current()).archive);
    return true;
  } catch (error) {
    logger.error({ err: error }, "partitions were loaded, their archived days could not be followed yet");
    return false;
  }
}
