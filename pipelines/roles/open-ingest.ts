import { existsSync, rmSync } from "node:fs";
import type { Clock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { type Lake, LakeForm, openLake } from "../../infra/lake/duckdb.ts";
import { originOf } from "../../infra/tree/checkpoint.ts";
import { createIngest, type Ingest } from "../2-ingest/ingest.ts";
import { INGEST_TABLES, LAKE_FORM } from "../2-ingest/load.ts";
import { createArchivedMarker } from "../5-archive/follow.ts";
import { archiveTrust, readArchiveFold } from "../5-archive/place.ts";
import type { ArchiveFold } from "../published/fold.ts";
import { foldersOf } from "./data-folder.ts";
import type { Parts } from "./parts.ts";

/** An open lake (the database of the log's rows), and the ingest that loads the log's records into it. */
export interface OpenIngest {
  lake: Lake;
  ingest: Ingest;
  close(): Promise<void>;
}

const lakeSettingsOf = ({ memory_limit: memoryLimit, threads }: Config["lake"]) => ({
  ...{ memoryLimit, threads, init: INGEST_TABLES, form: LAKE_FORM },
});

/**
 * Deletes a lake whose format is not that of this version. The next start makes a new lake from the segments (files
 * of the log's records in the private store).
 * @param alsoNewer true to delete a lake of a newer version too
 * @returns the error with the deleted lake's version; null if there was no lake, or a lake of this version
 * @throws LakeForm if a lake of a newer version was not deleted; LakeBusy
 */
export async function deleteLakeOfOtherForm(
  config: Pick<Config, "data_dir" | "lake">,
  alsoNewer: boolean,
): Promise<LakeForm | null> {
  const path = foldersOf(config.data_dir).lake;
  if (!existsSync(path)) return null;
  try {
    await (await openLake(path, lakeSettingsOf(config.lake))).close();
    return null;
  } catch (error) {
    if (!(error instanceof LakeForm) || ((error.foundForm ?? 0) > error.form && !alsoNewer)) throw error;
    for (const suffix of ["", ".wal"]) rmSync(`${path}${suffix}`, { force: true });
    return error;
  }
}

/**
 * Opens lake and ingest of all partitions, in a process that has the service's own keys. Reads nothing of the log yet.
 */
export function openIngest(parts: Parts, clock: Clock): Promise<OpenIngest> {
  const trust = archiveTrust(originOf(parts.config.base_url), parts.keys);
  return openIngestOf({ ...parts, clock }, () => readArchiveFold(parts.publicStore, trust));
}

/**
 * Opens lake and ingest in a process that already reads the public log.
 * @param readArchive returns the archive that the public log lists; called when partitions are loaded that the lake
 * did not have
 * @param partitions partitions to begin with (default: all)
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
  readArchive: () => Promise<ArchiveFold>,
  partitions?: readonly number[],
): Promise<OpenIngest> {
  const lake = await openLake(foldersOf(config.data_dir).lake, lakeSettingsOf(config.lake));
  const ownHosts = [new URL(config.base_url).host];
  const ingestOptions = { ownHosts, moved: createArchivedMarker(readArchive), ...(partitions && { partitions }) };
  const ingest = createIngest({ log, privateStore, lake, clock, logger, metrics, ...ingestOptions });
  return { lake, ingest, close: () => lake.close() };
}
