import { type Clock, systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { keysDocument } from "../infra/keys/keys.ts";
import { fixedPartitions } from "../infra/log/ownership.ts";
import { originOf } from "../infra/tree/checkpoint.ts";
import { createPublisher } from "../pipelines/4-publish/publisher.ts";
import { witnessesOf } from "../pipelines/4-publish/witnesses.ts";
import { createArchivePlace } from "../pipelines/5-archive/place.ts";
import { type SupersedeParts, supersede } from "../pipelines/5-archive/supersede.ts";
import { type ArchiveReport, archiveDays, createPrinterOpener } from "../pipelines/roles/days.ts";
import type { OpenIngest } from "../pipelines/roles/open-ingest.ts";
import { openParts, type Parts } from "../pipelines/roles/parts.ts";
import { Owner } from "../pipelines/roles/protocol/owner.ts";
import { Publishing } from "../pipelines/roles/protocol/publishing.ts";
import { withIngest } from "./opening.ts";
import { repeat, report } from "./report.ts";
import type { OptionsOf } from "./table.ts";

/**
 * Seconds between two runs. Once an hour is enough: a further day becomes old enough to be archived only every 24
 * hours.
 */
const INTERVAL_S = 3_600;

/** What the two archive commands use: the parts for replacing a file, and the function that archives days. */
interface OpenArchive {
  parts: SupersedeParts;
  /** Archives the days that are old enough at `now` and are not archived yet. */
  archive(now: Date): Promise<ArchiveReport>;
}

/**
 * Loads all records of the log into the open lake (the DuckDB database of records), then starts the publisher, which
 * signs and publishes archive files.
 * @throws the errors of ingest and publisher
 */
async function openArchive(parts: Parts, clock: Clock, { lake, ingest }: OpenIngest): Promise<OpenArchive> {
  const { config, log, privateStore, publicStore, keys, logger, metrics } = parts;
  await ingest.pass();
  const origin = originOf(config.base_url);
  const { partitions } = log;
  const stores = { privateStore, publicStore };
  const witnesses = witnessesOf(config, { clock, logger, metrics });
  const common = { clock, logger, metrics };
  const publisher = createPublisher({ ...stores, ...common, signers: keys, origin, partitions, witnesses });
  await publisher.start();
  await publisher.publishKeys(keysDocument(keys.ring));
  const place = { ...createArchivePlace(publicStore, keys, origin, config.base_url), now: () => clock.now() };
  const ownership = fixedPartitions(Array.from({ length: partitions }, (_, partition) => partition));
  const protocolParts = { ...stores, log, clock, logger, metrics };
  const owner = new Owner({ ...protocolParts, lake, ingest, ownership, followed: publisher });
  const publishing = new Publishing({ ...protocolParts, publisher });
  const archivingParts = { ...place, openPrinter: createPrinterOpener(lake) };
  return {
    parts: { ...place, lake, privateStore, publisher, logId: log.id },
    archive: (now) => archiveDays({ owner, publishing, archivingParts }, now),
  };
}

/** Opens the archive, runs `work` with it, and closes it. @throws LakeBusy while a running service has the lake open */
const withArchive = (config: Config, work: (opened: OpenArchive) => Promise<void>): Promise<void> =>
  withIngest(
    config,
    async (opened, parts) => work(await openArchive(parts, systemClock, opened)),
    // It opens the private keys and a writable public store, since archive files are signed and published.
    openParts,
  );

const archiveUrl = (config: Config): string => `${config.base_url.replace(/\/+$/, "")}/v1/archive`;

/** `touchstone archive`: moves the records of days older than 110 days out of the lake into signed, public files. */
export const archive = (config: Config, options: OptionsOf<"archive">): Promise<void> =>
  withArchive(config, (opened) =>
    repeat(options, INTERVAL_S, async () => {
      report(options, { ...(await opened.archive(systemClock.now())) }, archiveUrl(config));
    }),
  );

/**
 * `touchstone archive supersede`: replaces a wrong archive file by one that is made again from the segment files or
 * the public log.
 */
export const archiveSupersede = (config: Config, id: string, options: OptionsOf<"archive supersede">): Promise<void> =>
  withArchive(config, async ({ parts }) => {
    const { id: replacementId, rows, content_hash, file } = await supersede(parts, id, options.reason);
    const next = `${archiveUrl(config)}/${replacementId}`;
    report(options, { superseded: id, by: replacementId, rows, content_hash, file, reason: options.reason }, next);
  });
