import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { openLake } from "../infra/lake/duckdb.ts";
import { sql } from "../infra/lake/sql.ts";
import { configuredNetworks, railOn } from "../infra/rails/networks.ts";
import { originOf } from "../infra/tree/checkpoint.ts";
import { chainTimeOf } from "../pipelines/4-publish/clocks.ts";
import { createPublisher } from "../pipelines/4-publish/publisher.ts";
import { archivePlace, trustOf } from "../pipelines/5-archive/place.ts";
import { Notifier } from "../pipelines/6-notify/notifier.ts";
import { PublishedTree } from "../pipelines/published/reader.ts";
import { rfc3339 } from "../pipelines/record/time.ts";
import { foldsOf } from "../pipelines/roles/data-folder.ts";
import { jobsOf, runJobs } from "../pipelines/roles/jobs.ts";
import { openPublisherParts, type Parts } from "../pipelines/roles/parts.ts";
import { type Filing, Publishing, type PublishingParts } from "../pipelines/roles/protocol/publishing.ts";
import { Standby } from "../pipelines/roles/protocol/standby.ts";
import { keysFor } from "../pipelines/roles/record-identity.ts";
import { openStatus, type Status } from "../serving/status/listener.ts";
import { atStart } from "./doctor.ts";
import { untilStopped } from "./exit.ts";
import { sayStart } from "./machine-status.ts";
import { printLines } from "./printer.ts";
import { type RoleOptions, report, sayStatus } from "./report.ts";

interface Publishers extends PublishingParts {
  keys: Pick<Parts["keys"], "ring">;
  publishing: Publishing;
  standby: Standby;
  filing: Filing;
  notifier: Notifier;
  metrics: Parts["metrics"];
  options: RoleOptions;
  /** What the status page shows, with the leaves that the tree had when it was last read. */
  status: Status & { treeSize: number };
}

/** Works without which an active publisher does not do its work, beside its turns. */
const ACTIVE_WORKS = ["checkpoint", "tables"];

/** Whether this publisher waits or publishes, and the runs that wait when it does. */
async function turn(all: Publishers): Promise<void> {
  const { publishing, publisher, standby, options, logger, metrics, status } = all;
  const before = standby.active;
  const active = await standby.mine();
  metrics.gauge("touchstone_publisher_active", active ? 1 : 0);
  status.pulse.setState(active ? "publishing" : "waiting");
  status.pulse.setRequired(...(active ? ACTIVE_WORKS : []));
  if (before !== active) logger.warn({ active }, active ? "this publisher takes over" : "another publisher goes on");
  // Who waits reads on, so that it takes over at once.
  if (!active) return publisher.follow();
  if (!before) {
    await publishing.start(all.keys.ring);
    // What the tree had before is not ours to date.
    status.treeSize = publisher.fold.size;
  }
  const done = await publishing.runs();
  tellGrowth(all);
  if (options.json && done.runs > 0) report(options, { ...done }, "");
}

/** How many leaves there are, and when this publisher saw them grow last. */
function tellGrowth({ publisher, clock, status }: Publishers): void {
  const { size } = publisher.fold;
  status.pulse.setFacts({ tree_size: size });
  if (size === status.treeSize) return;
  status.treeSize = size;
  status.pulse.setFacts({ last_publication: rfc3339(clock.now()) });
}

/** What only the active publisher does. */
const whenActive = (work: (all: Publishers) => Promise<unknown>) => async (all: Publishers) =>
  all.standby.active ? work(all) : undefined;

const PUBLISHER_JOBS = jobsOf<"publisher", Publishers>("publisher", {
  publish: turn,
  tables: whenActive(({ publishing }) => publishing.tables()),
  checkpoint: whenActive(({ publisher }) => publisher.refreshCheckpoint()),
  notify: whenActive(({ notifier }) => notifier.turn()),
  plans: whenActive(({ publishing }) => publishing.plans()),
  evidence: whenActive(({ publishing }) => publishing.evidence()),
  archive: whenActive(({ publishing, filing }) => publishing.archive(filing)),
  index: whenActive(({ publishing }) => publishing.index()),
  garbage: whenActive(({ publishing }) => publishing.collectGarbage()),
});

/**
 * `touchstone publish`: the tree's maker. It takes the runs of the owners, and names their tables, charts and evidence;
 * it has no lake. Any number may be started: one publishes, the others wait and take over when its checkpoint stands
 * still.
 */
export async function publish(config: Config, options: RoleOptions): Promise<void> {
  await atStart(config, "publish", options);
  // Where machines share a log they share keys as well: an operator brings them, nobody draws other ones.
  if (config.log === null) await keysFor(config, systemClock.now());
  const parts = await openPublisherParts(config, systemClock);
  const writer = randomBytes(8).toString("hex");
  const { log, privateStore, publicStore, keys, clock, logger, metrics } = parts;
  const networks = configuredNetworks(config).filter(({ rpcUrls }) => rpcUrls.length > 0);
  const rail = networks.length === 0 ? null : railOn(networks);
  let status: Status | null = null;
  let notifier: Notifier | null = null;
  sayStart(logger, config, "publish", ["publish", ...ACTIVE_WORKS]);
  try {
    status = await openStatus(config, { role: "publish", clock, metrics, listen: !options.once }, "publish");
    sayStatus(status, options.json);
    const publisher = createPublisher({
      ...{ privateStore, publicStore, signers: keys, clock, logger, metrics, writer },
      ...{ origin: originOf(config.base_url), partitions: log.partitions },
      ...(rail ? { chainTime: chainTimeOf(rail, logger) } : {}),
    });
    const common = { log, privateStore, publisher, keys, clock, logger };
    const standby = new Standby({ privateStore, publicStore, monotonic: () => clock.monotonic(), writer });
    const filing = filingOf(config, parts);
    const { egress } = parts;
    const tree = new PublishedTree(publicStore, trustOf(originOf(config.base_url), keys));
    const perDomainMinute = config.limits.notices_per_minute;
    const folds = foldsOf(config, log, logger);
    notifier = new Notifier({ log, tree, egress, signers: keys, clock, logger, metrics, perDomainMinute, folds });
    const told = { options, status: { ...status, treeSize: 0 } };
    const all: Publishers = {
      ...common,
      publishing: new Publishing(common),
      standby,
      filing,
      notifier,
      metrics,
      ...told,
    };
    if (options.once) return await once(all);
    if (!options.json) printLines("Publishing when it is this process's turn, until stopped.");
    const running = runJobs(all, status.pulse.watch(PUBLISHER_JOBS));
    await untilStopped();
    await running.stop();
  } finally {
    await notifier?.stop();
    await status?.close();
    await parts.close();
  }
}

/** Where files of the archive lie, who signs for them, and the engine that they are made with: it keeps nothing. */
function filingOf(config: Config, { publicStore, keys, clock }: Pick<Parts, "publicStore" | "keys" | "clock">): Filing {
  const { memory_limit: memoryLimit, threads } = config.lake;
  const settings = { memoryLimit, threads, init: ["tables/settings", "tables/rules"].map(sql), readers: 1 };
  return {
    ...archivePlace(publicStore, keys, originOf(config.base_url), config.base_url),
    now: () => clock.now(),
    scratch: () => openLake(join(config.data_dir, "archive", "scratch.duckdb"), settings),
  };
}

/** One turn, whoever else publishes: the generation decides. */
async function once({ publishing, publisher, filing, notifier, options, keys }: Publishers): Promise<void> {
  await publishing.start(keys.ring);
  const { runs, cards } = await publishing.runs();
  await publishing.plans();
  const { days } = await publishing.evidence();
  const { files } = await publishing.archive(filing);
  await publishing.index();
  const tables = await publishing.tables();
  await publisher.refreshCheckpoint();
  await notifier.turn();
  await notifier.idle();
  const { size: tree_size } = await publisher.current();
  report(options, { runs, cards, days: days.length, archived: files, tables, tree_size }, "touchstone serve");
}
