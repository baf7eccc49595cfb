import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import type { Moved } from "../2-ingest/ingest.ts";
import { ArchiveFold } from "../4-publish/archive-fold.ts";
import { RecordReader, readCheckpoint } from "../4-publish/read.ts";
import { dayOfManifest } from "../record/archive.ts";
import { settle } from "./settle.ts";
import { isProbes, PROBES } from "./subjects.ts";

export interface MovedParts {
  publicStore: Store;
  trust: CheckpointTrust;
  partitions: number;
  logger: Logger;
}

/**
 * What ingest asks when a lake is new: the archive's leaves say which days left it, so that a rebuild does not bring them
 * back. Read from the public store alone, before there is a publisher.
 */
export function movedOut({ publicStore, trust, partitions, logger }: MovedParts): Moved {
  return {
    async mark(lake) {
      const fold = await archiveFold(publicStore, trust);
      for (const { manifest } of fold.files.values()) {
        if (!isProbes(manifest.subject)) continue;
        const values = { type: PROBES[manifest.subject].type, day: dayOfManifest(manifest) };
        await lake.run(sql("67_archive_day"), values);
      }
    },
    async settle(lake) {
      try {
        await settle({ lake, publicStore, partitions }, await archiveFold(publicStore, trust));
      } catch (error) {
        // The rows wait where no reader sees them, and the archive's job looks again: observing must not stand still.
        logger.error({ err: error }, "the lake was loaded, its archived days could not be followed yet");
      }
    },
  };
}

/** What the public log says of the archive; empty before the first checkpoint. */
export async function archiveFold(store: Store, trust: CheckpointTrust): Promise<ArchiveFold> {
  const fold = new ArchiveFold();
  const head = await readCheckpoint(store, trust);
  if (!head) return fold;
  for await (const { leaf } of (await RecordReader.open(store, head)).leaves()) {
    if (leaf.kind === "archive") fold.archive(leaf);
  }
  return fold;
}
