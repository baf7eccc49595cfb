import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { LOG_FORMAT, logFileIn, migrateLogFile } from "../infra/log/log-file.ts";
import { originOf, trustOf } from "../infra/tree/checkpoint.ts";
import { readArchiveFold } from "../pipelines/5-archive/place.ts";
import { foldersOf } from "../pipelines/roles/data-folder.ts";
import { PRIVATE_FORMATS } from "../pipelines/roles/forms.ts";
import { deleteLakeOfOtherForm, openIngestOf } from "../pipelines/roles/open-ingest.ts";
import { openOwnerParts } from "../pipelines/roles/parts.ts";
import { requireDataFolder, withOpen } from "./files.ts";
import { rebuildLake } from "./ingest.ts";
import { print } from "./printer.ts";
import { columns } from "./report.ts";
import type { OptionsOf } from "./table.ts";

/** The result for one kind of data: `what` was migrated, and what the migration `did`. */
interface Migrated {
  what: string;
  did: string;
}

/**
 * `touchstone migrate`: converts data of an older version to this version's formats (pipelines/roles/forms.ts). It may
 * be killed at any point and run again, since each step is one transaction or rebuilds a cache.
 * @throws LogRefused, Failure `record`, LakeForm when a newer version wrote the data; then nothing is changed
 */
export async function migrate(config: Config, options: OptionsOf<"migrate">): Promise<void> {
  if (options.table) return print(options, { forms: PRIVATE_FORMATS }, tableLines());
  requireDataFolder(config);
  const results: Migrated[] = [];
  if (config.log === null) {
    const oldFormat = migrateLogFile(logFileIn(foldersOf(config.data_dir).log));
    const outcome =
      oldFormat === null
        ? "none here"
        : oldFormat === LOG_FORMAT
          ? "unchanged"
          : `converted from format ${oldFormat} to ${LOG_FORMAT}`;
    results.push({ what: "log", did: outcome });
  }
  // The stores are opened before the lake is deleted: if they do not belong to the log, the command fails before it
  // deletes anything.
  await withOpen(openOwnerParts(config, systemClock), async (parts) => {
    results.push({ what: "private store", did: `of log ${parts.log.id}` });
    results.push({ what: "lake", did: await migrateLake(config, parts, options) });
  });
  const lines = results.map(({ what, did }) => `${what}: ${did}`);
  print(options, { migrated: results }, lines);
}

async function migrateLake(
  config: Config,
  parts: Awaited<ReturnType<typeof openOwnerParts>>,
  options: OptionsOf<"migrate">,
): Promise<string> {
  const oldFormat = await deleteLakeOfOtherForm(config, false);
  if (oldFormat === null) return "unchanged";
  // In a cluster each owner and each observer loads its share of the records into its own lake.
  if (config.log !== null) return "deleted: each role loads its share of the segments when it starts";
  const trust = trustOf(originOf(config.base_url), parts.ring, systemClock.now());
  const readArchive = () => readArchiveFold(parts.publicStore, trust);
  return withOpen(openIngestOf({ ...parts, config }, readArchive), async ({ ingest }) => {
    const rows = await rebuildLake(ingest, options);
    return `rebuilt from the segments, ${rows} records`;
  });
}

const tableLines = (): string[] =>
  columns([
    ["form", "where", "number", "older", "newer"],
    ...PRIVATE_FORMATS.map(({ what, where, number, older, newer }) => [
      ...[what, where, `${number.member} ${number.now}`, older, newer],
    ]),
  ]);
