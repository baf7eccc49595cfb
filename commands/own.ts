import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { openOwnership } from "../infra/log/open.ts";
import type { Ownership } from "../infra/log/ownership.ts";
import { FollowedRecord } from "../pipelines/4-publish/followed.ts";
import { OWNER_GROUP } from "../pipelines/record/topics.ts";
import { jobsOf, runJobs } from "../pipelines/roles/jobs.ts";
import { forgetLag, measureLag } from "../pipelines/roles/lag.ts";
import { openIngestOf } from "../pipelines/roles/open-ingest.ts";
import { createTrustReader, openOwnerParts } from "../pipelines/roles/parts.ts";
import { holdAssigned, Owner, type OwnerParts } from "../pipelines/roles/protocol/owner.ts";
import type { Status } from "../serving/status/listener.ts";
import { checkAtStart } from "./doctor.ts";
import { untilStopped } from "./exit.ts";
import { withOpen } from "./files.ts";
import { withStatus } from "./machine-status.ts";
import { printLines } from "./printer.ts";
import { type RoleOptions, report } from "./report.ts";
import type { OptionsOf } from "./table.ts";

type OwnerJobParts = OwnerParts & {
  log: Parameters<typeof measureLag>[0];
  owner: Owner;
  ownership: Ownership;
  options: RoleOptions;
  status: Status;
};

/**
 * Runs one turn of an owner: ingests and grades its partitions of the log, and reports how far it is behind the log.
 */
async function takeTurn({
  owner,
  log,
  ingest,
  ownership,
  metrics,
  clock,
  options,
  status,
}: OwnerJobParts): Promise<void> {
  const { held, caps, rows, lines, run } = await owner.grade(clock.now());
  const lag = await measureLag(log, await ingest.positions(), held, metrics);
  // An owner without partitions has not used the log in this turn. This request throws if the log is down.
  if (held.length === 0) await log.bounds("observations.paid", 0);
  const { generation } = ownership;
  status.pulse.setWaiting("being heard by the group of owners", !ownership.heard);
  status.pulse.setState(held.length > 0 ? "working" : "spare");
  status.pulse.setFacts({ partitions: held, generation, lag, ...(run === null ? {} : { last_run: run }) });
  if (options.json || options.once)
    report(options, { held, generation, caps, rows, lines, run, lag }, "touchstone publish");
}

const OWNER_JOBS = jobsOf<"owner", OwnerJobParts>("owner", {
  own: takeTurn,
  volatile: ({ owner }) => owner.writeVolatile(),
  history: ({ owner, clock }) => owner.writeHistory(clock.now()),
  evidence: ({ owner, clock }) => owner.makeEvidence(clock.now()),
  archive: ({ owner, clock }) => owner.makeArchive(clock.now()),
  tidy: ({ owner }) => owner.tidy(),
});

/**
 * `touchstone own`: ingests and grades the partitions of the log that are assigned to this process: all of them with
 * the embedded log, the share of this member of the consumer group with the log of a cluster. It has no private key.
 * Any number of owners may run, and each may be killed and replaced at any time.
 */
export async function own(config: Config, options: OptionsOf<"own">): Promise<void> {
  await checkAtStart(config, "own", options);
  await withOpen(openOwnerParts(config, systemClock), (parts) =>
    withStatus(config, parts, { role: "own", works: ["own", "volatile"], first: "own" }, options, (status) =>
      ownPartitions(config, options, parts, status),
    ),
  );
}

async function ownPartitions(
  config: Config,
  options: RoleOptions,
  parts: Awaited<ReturnType<typeof openOwnerParts>>,
  status: Status,
): Promise<void> {
  const { log, privateStore, publicStore, clock, logger, metrics } = parts;
  const followed = new FollowedRecord(publicStore, createTrustReader(config, clock));
  const readArchive = async () => (await followed.current()).archive;
  await withOpen(openIngestOf({ ...parts, config }, readArchive, []), ({ lake, ingest }) =>
    withOpen(openOwnership(config, log, OWNER_GROUP, logger), async (ownership) => {
      const common = { log, privateStore, lake, clock, logger, metrics };
      const ownerParts = { ...common, publicStore, ingest, followed, ownership };
      const jobParts: OwnerJobParts = { ...ownerParts, options, status, owner: new Owner(ownerParts) };
      ownership.onChange(async (_taken, lostPartitions) => {
        // The records of lost partitions are removed from the lake before another owner gets the partitions, unless
        // contact was lost. Records of new partitions are loaded in the next turn.
        if (lostPartitions.length > 0) await holdAssigned(ingest, ownership);
        forgetLag(lostPartitions, metrics);
      });
      await ownership.ready();
      await (options.once ? ownOnce(jobParts) : ownUntilStopped(jobParts));
    }),
  );
}

async function ownOnce(jobParts: OwnerJobParts): Promise<void> {
  const { owner, clock } = jobParts;
  await takeTurn(jobParts);
  await owner.writeVolatile();
  await owner.writeHistory(clock.now());
  await owner.makeEvidence(clock.now());
  await owner.makeArchive(clock.now());
}

async function ownUntilStopped(jobParts: OwnerJobParts): Promise<void> {
  if (!jobParts.options.json)
    printLines(`Owning partitions ${jobParts.ownership.held().join(", ")}; the group may assign others later.`);
  const { pulse } = jobParts.status;
  pulse.setRequired("volatile");
  const running = runJobs(jobParts, pulse.watch(OWNER_JOBS));
  await untilStopped();
  await running.stop();
}
