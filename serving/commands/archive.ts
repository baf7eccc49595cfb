import { systemClock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { makeArchive } from "../../pipelines/5-archive/archive.ts";
import { openArchive } from "../../pipelines/5-archive/open.ts";
import { type SupersedeParts, supersede } from "../../pipelines/5-archive/supersede.ts";
import { makeKeys, openParts } from "../../pipelines/parts.ts";
import { type RoleOptions, repeat, report } from "./roles.ts";

interface Opened {
  archive: SupersedeParts;
  pass(): Promise<unknown>;
}

/** Between two looks; a day comes of age once a day, and what comes late may wait as long. */
const EVERY_S = 3_600;

/** Open everything for one command and close it again, whatever happens. The lake has one owner at a time. */
async function withArchive(config: Config, work: (opened: Opened) => Promise<void>): Promise<void> {
  makeKeys(config.data_dir, systemClock.now());
  const parts = await openParts(config, systemClock);
  try {
    const opened = await openArchive(parts, systemClock);
    try {
      await work(opened);
    } finally {
      await opened.close();
    }
  } finally {
    await parts.close();
  }
}

const listAt = (config: Config): string => `${config.base_url.replace(/\/+$/, "")}/v1/archive`;

/** `touchstone archive`: days older than 110 days into signed files, and out of the lake. */
export const archive = (config: Config, options: RoleOptions): Promise<void> =>
  withArchive(config, ({ archive: parts, pass }) =>
    repeat(options, EVERY_S, async () => {
      await pass();
      report(options, { ...(await makeArchive(parts, systemClock.now())) }, listAt(config));
    }),
  );

/** `touchstone archive supersede`: a wrong file is replaced by one that is made again from the record. */
export const archiveSupersede = (
  config: Config,
  id: string,
  options: { reason: string; json?: boolean },
): Promise<void> =>
  withArchive(config, async ({ archive: parts }) => {
    const { id: by, rows, content_hash, file } = await supersede(parts, id, options.reason);
    const next = `${listAt(config)}/${by}`;
    report(options, { superseded: id, by, rows, content_hash, file, reason: options.reason }, next);
  });
