import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { openLake } from "../infra/lake/duckdb.ts";
import { sql } from "../infra/lake/sql.ts";
import { configuredNetworks, railOn } from "../infra/rails/networks.ts";
import { originOf } from "../infra/tree/checkpoint.ts";
import { createChainTimeReader } from "../pipelines/4-publish/clocks.ts";
import { createPublisher } from "../pipelines/4-publish/publisher.ts";
import { witnessesOf } from "../pipelines/4-publish/witnesses.ts";
import { archiveTrust, createArchivePlace } from "../pipelines/5-archive/place.ts";
import { Notifier } from "../pipelines/6-notify/notifier.ts";
import { PublishedTree } from "../pipelines/published/reader.ts";
import { rfc3339 } from "../pipelines/record/time.ts";
import { foldFolderOf } from "../pipelines/roles/data-folder.ts";
import { jobsOf, runJobs } from "../pipelines/roles/jobs.ts";
import { openPublisherParts, type Parts } from "../pipelines/roles/parts.ts";
import { type ArchivingParts, Publishing, type PublishingParts } from "../pipelines/roles/protocol/publishing.ts";
import { Standby } from "../pipelines/roles/protocol/standby.ts";
import { ensureKeysFor } from "../pipelines/roles/record-identity.ts";
import type { Status } from "../serving/status/listener.ts";
import { checkAtStart } from "./doctor.ts";
import { untilStopped } from "./exit.ts";
import { withOpen } from "./files.ts";
import { withStatus } from "./machine-status.ts";
import { printLines } from "./printer.ts";
import { type RoleOptions, report } from "./report.ts";
import type { OptionsOf } from "./table.ts";

interface PublisherJobParts extends PublishingParts {
  keys: Pick<Parts["keys"], "ring">;
  publishing: Publishing;
  standby: Standby;
  filing: ArchivingParts;
  notifier: Notifier;
  metrics: Parts["metrics"];
  options: RoleOptions;
  /** The status listener, and the size of the public log (number of leaves) that /health showed last. */
  status: Status & { treeSize: number };
}

/** Jobs, besides `publish`, that must succeed for /health to report an active publisher as healthy. */
const ACTIVE_WORKS = ["checkpoint", "tables"];

/**
 * Runs one turn: decides whether this publisher is the active one, and if so, publishes the results of finished grade
 * runs.
 */
async function takeTurn(jobParts: PublisherJobParts): Promise<void> {
  const { publishing, publisher, standby, options, logger, metrics, status } = jobParts;
  const wasActive = standby.isActive;
  const isActive = await standby.mayPublish();
  metrics.gauge("touchstone_publisher_active", isActive ? 1 : 0);
  status.pulse.setState(isActive ? "publishing" : "waiting");
  status.pulse.setRequired(...(isActive ? ACTIVE_WORKS : []));
  if (wasActive !== isActive)
    logger.warn({ active: isActive }, isActive ? "this publisher is active now" : "another publisher is active now");
  // A waiting publisher keeps reading the public log, so that it can take over at once.
  if (!isActive) return publisher.follow();
  // The leaves that the log has by now were not published by this process, so they are not reported as growth.
  if (!wasActive) status.treeSize = publisher.fold.size;
  const result = await publishing.takeRuns();
  reportGrowth(jobParts);
  if (options.json && result.runs > 0) report(options, { ...result }, "");
}

/** Reports to /health how many leaves the log has, and when this publisher last found more of them than before. */
function reportGrowth({ publisher, clock, status }: PublisherJobParts): void {
  const { size } = publisher.fold;
  status.pulse.setFacts({ tree_size: size });
  if (size === status.treeSize) return;
  status.treeSize = size;
  status.pulse.setFacts({ last_publication: rfc3339(clock.now()) });
}

/** Wraps a job, so that it does nothing while another publisher is active. */
const whenActive = (work: (jobParts: PublisherJobParts) => Promise<unknown>) => async (jobParts: PublisherJobParts) =>
  jobParts.standby.isActive ? work(jobParts) : undefined;

const PUBLISHER_JOBS = jobsOf<"publisher", PublisherJobParts>("publisher", {
  publish: takeTurn,
  tables: whenActive(({ publishing }) => publishing.nameTables()),
  checkpoint: whenActive(({ publisher }) => publisher.refreshCheckpoint()),
  notify: whenActive(({ notifier }) => notifier.runOnce()),
  plans: whenActive(({ publishing }) => publishing.publishPlans()),
  evidence: whenActive(({ publishing }) => publishing.publishEvidence()),
  archive: whenActive(({ publishing, filing }) => publishing.publishArchive(filing)),
  index: whenActive(({ publishing }) => publishing.buildIndex()),
  garbage: whenActive(({ publishing }) => publishing.collectGarbage()),
});

/**
 * `touchstone publish`: writes the public log, a Merkle tree. It publishes the grade runs of the owners, and lists the
 * tables, charts and evidence files that the owners wrote; it opens no lake. Any number of publishers may run: one is
 * active, the others wait, and one of them takes over when the checkpoint no longer changes.
 */
export async function publish(config: Config, options: OptionsOf<"publish">): Promise<void> {
  await checkAtStart(config, "publish", options);
  // Machines with a shared log need the same keys, which an operator copies to them, so no role creates keys there.
  if (config.log === null) await ensureKeysFor(config, systemClock.now());
  const role = { role: "publish" as const, works: ["publish", ...ACTIVE_WORKS], first: "publish" };
  await withOpen(openPublisherParts(config, systemClock), (parts) =>
    withStatus(config, parts, role, options, async (status) => {
      const jobParts = publisherOf(config, parts, options, status);
      try {
        if (options.once) return await publishOnce(jobParts);
        if (!options.json) printLines("Publishing while this process is the active publisher, until stopped.");
        const running = runJobs(jobParts, status.pulse.watch(PUBLISHER_JOBS));
        await untilStopped();
        await running.stop();
      } finally {
        await jobParts.notifier.stop();
      }
    }),
  );
}

function publisherOf(
  config: Config,
  parts: Awaited<ReturnType<typeof openPublisherParts>>,
  options: RoleOptions,
  status: Status,
): PublisherJobParts {
  const { log, privateStore, publicStore, keys, clock, logger, metrics, egress } = parts;
  const writer = randomBytes(8).toString("hex");
  const origin = originOf(config.base_url);
  const networks = configuredNetworks(config).filter(({ rpcUrls }) => rpcUrls.length > 0);
  const publisher = createPublisher({
    ...{ privateStore, publicStore, signers: keys, clock, logger, metrics, writer },
    ...{ origin, partitions: log.partitions, witnesses: witnessesOf(config, { clock, logger, metrics }) },
    ...(networks.length > 0 ? { chainTime: createChainTimeReader(railOn(networks), logger) } : {}),
  });
  const tree = new PublishedTree(publicStore, archiveTrust(origin, keys));
  const notifier = new Notifier({
    ...{ log, tree, egress, signers: keys, clock, logger, metrics, folds: foldFolderOf(config, log, logger) },
    perDomainMinute: config.limits.notices_per_minute,
  });
  const common = { log, privateStore, publisher, keys, clock, logger };
  const publishing = new Publishing(common);
  const start = () => publishing.start(keys.ring);
  return {
    ...{ ...common, metrics, options, notifier, publishing, filing: filingOf(config, parts) },
    standby: new Standby({ privateStore, publicStore, monotonic: () => clock.monotonic(), writer, start }),
    status: { ...status, treeSize: 0 },
  };
}

/**
 * Returns the parts with which archive files are made: the store, the signing key, the clock, and a temporary DuckDB.
 */
function filingOf(
  config: Config,
  { publicStore, keys, clock }: Pick<Parts, "publicStore" | "keys" | "clock">,
): ArchivingParts {
  const { memory_limit: memoryLimit, threads } = config.lake;
  const settings = { memoryLimit, threads, init: ["tables/settings", "tables/rules"].map(sql), readers: 1 };
  return {
    ...createArchivePlace(publicStore, keys, originOf(config.base_url), config.base_url),
    now: () => clock.now(),
    openPrinter: () => openLake(join(config.data_dir, "archive", "scratch.duckdb"), settings),
  };
}

/**
 * Runs every job once (--once), even while another publisher is active. Both may try to write the next version of the
 * tree; only one of them succeeds.
 */
async function publishOnce({
  publishing,
  publisher,
  filing,
  notifier,
  options,
  keys,
}: PublisherJobParts): Promise<void> {
  await publishing.start(keys.ring);
  const { runs, cards } = await publishing.takeRuns();
  await publishing.publishPlans();
  const { days } = await publishing.publishEvidence();
  const { files } = await publishing.publishArchive(filing);
  await publishing.buildIndex();
  const tables = await publishing.nameTables();
  await publisher.refreshCheckpoint();
  await notifier.runOnce();
  await notifier.waitUntilIdle();
  const { size: tree_size } = await publisher.current();
  report(options, { runs, cards, days: days.length, archived: files, tables, tree_size }, "touchstone serve");
}
