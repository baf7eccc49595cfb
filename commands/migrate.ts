import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { LOG_FORMAT, logFileIn, migrateLogFile } from "../infra/log/log-file.ts";
import { originOf, trustOf } from "../infra/tree/checkpoint.ts";
import { archiveFold } from "../pipelines/5-archive/place.ts";
import { folders } from "../pipelines/roles/data-folder.ts";
import { FORMS } from "../pipelines/roles/forms.ts";
import { dropOtherLake, openIngestOf } from "../pipelines/roles/ingesting.ts";
import { openOwnerParts } from "../pipelines/roles/parts.ts";
import { needsData, withOpen } from "./files.ts";
import { print } from "./printer.ts";
import { rebuilt } from "./rebuilding.ts";
import { columns } from "./report.ts";

/** What became of one form. */
interface Migrated {
  what: string;
  did: string;
}

/**
 * `touchstone migrate`: brings what an older version left to the forms of this one (pipelines/roles/forms.ts). May be
 * killed at any point and run again: each step is one transaction, or makes something anew that is only a cache.
 * @throws LogRefused, Failure `record`, LakeForm for what a newer version wrote: nothing is changed then
 */
export async function migrate(config: Config, { json, table }: { json?: boolean; table?: boolean }): Promise<void> {
  if (table) return print({ json }, { forms: FORMS }, tableLines());
  needsData(config);
  const done: Migrated[] = [];
  if (config.log === null) {
    const from = migrateLogFile(logFileIn(folders(config.data_dir).log));
    const did =
      from === null ? "none here" : from === LOG_FORMAT ? "as it is" : `brought from format ${from} to ${LOG_FORMAT}`;
    done.push({ what: "log", did });
  }
  // The stores are looked at before the lake goes: what does not belong together is told first.
  await withOpen(openOwnerParts(config, systemClock), async (parts) => {
    done.push({ what: "private store", did: `of log ${parts.log.id}` });
    done.push({ what: "lake", did: await lakeOf(config, parts, json) });
  });
  print(
    { json },
    { migrated: done },
    done.map(({ what, did }) => `${what}: ${did}`),
  );
}

async function lakeOf(
  config: Config,
  parts: Awaited<ReturnType<typeof openOwnerParts>>,
  json: boolean | undefined,
): Promise<string> {
  const old = await dropOtherLake(config, false);
  if (old === null) return "as it is";
  // Of a cluster each owner and observer loads its share by itself.
  if (config.log !== null) return "removed: the role loads its share of the segments as it starts";
  const trust = trustOf(originOf(config.base_url), parts.ring, systemClock.now());
  const archived = () => archiveFold(parts.publicStore, trust);
  return withOpen(openIngestOf({ ...parts, config }, archived), async ({ ingest }) => {
    const rows = await rebuilt(ingest, json);
    return `made anew from the segments, ${rows} records`;
  });
}

const tableLines = (): string[] =>
  columns([
    ["form", "where", "number", "older", "newer"],
    ...FORMS.map(({ what, where, number, older, newer }) => [
      ...[what, where, `${number.member} ${number.now}`, older, newer],
    ]),
  ]);
