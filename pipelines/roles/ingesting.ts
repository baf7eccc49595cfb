import type { Clock } from "../../infra/clock.ts";
import { type Lake, openLake } from "../../infra/lake/duckdb.ts";
import { originOf } from "../../infra/tree/checkpoint.ts";
import { createIngest, type Ingest } from "../2-ingest/ingest.ts";
import { INGEST_TABLES } from "../2-ingest/load.ts";
import { movedOut } from "../5-archive/follow.ts";
import { archiveFold, trustOf } from "../5-archive/place.ts";
import type { ArchiveFold } from "../published/fold.ts";
import { folders } from "./data-folder.ts";
import type { Parts } from "./parts.ts";

/** The lake and the way into it. */
export interface Ingesting {
  lake: Lake;
  ingest: Ingest;
  close(): Promise<void>;
}

/** Of every partition, for whoever holds the keys: what ingest, redrive, rebuild and gap need. Nothing is read yet. */
export function openIngest(parts: Parts, clock: Clock): Promise<Ingesting> {
  const trust = trustOf(originOf(parts.config.base_url), parts.keys);
  return openIngestOf({ ...parts, clock }, () => archiveFold(parts.publicStore, trust));
}

/**
 * The same for whoever follows the public log already.
 * @param archived what that log says of the archive; asked when partitions are loaded that were not here
 * @param partitions those to begin with; default: all
 */
export async function openIngestOf(
  {
    config,
    log,
    privateStore,
    clock,
    logger,
    metrics,
  }: Pick<Parts, "config" | "log" | "privateStore" | "clock" | "logger" | "metrics">,
  archived: () => Promise<ArchiveFold>,
  partitions?: readonly number[],
): Promise<Ingesting> {
  const { memory_limit: memoryLimit, threads } = config.lake;
  const lake = await openLake(folders(config.data_dir).lake, { memoryLimit, threads, init: INGEST_TABLES });
  const ownHosts = [new URL(config.base_url).host];
  const given = { ownHosts, moved: movedOut(archived), ...(partitions && { partitions }) };
  const ingest = createIngest({ log, privateStore, lake, clock, logger, metrics, ...given });
  return { lake, ingest, close: () => lake.close() };
}
