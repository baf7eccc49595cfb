import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { openOwnership } from "../infra/log/open.ts";
import type { Ownership } from "../infra/log/ownership.ts";
import { FollowedRecord } from "../pipelines/4-publish/followed.ts";
import { dayOf, dayStart } from "../pipelines/record/time.ts";
import { OBSERVER_GROUP } from "../pipelines/record/topics.ts";
import type { Job } from "../pipelines/roles/jobs.ts";
import { measureLag } from "../pipelines/roles/lag.ts";
import { type ObservingParts, startObserving, waitForCommittedPlan } from "../pipelines/roles/observing.ts";
import { createTrustReader, type Parts } from "../pipelines/roles/parts.ts";
import { MACHINE_WORK_KINDS, startMachine } from "../pipelines/roles/schedule.ts";
import { openStatus, type Status } from "../serving/status/listener.ts";
import { checkAtStart } from "./doctor.ts";
import { onStopSignal, untilStopped } from "./exit.ts";
import { logStart, watchMachine, withStatus } from "./machine-status.ts";
import { printLines } from "./printer.ts";
import { printStatus, type RoleOptions, report } from "./report.ts";
import { observeOnce, type Roles, withRoles } from "./roles.ts";
import type { OptionsOf } from "./table.ts";

/**
 * `touchstone observe`: reads the catalogues, then makes the calls of today's plan that are due. With the log of a
 * cluster, it joins the group of observers and makes the calls to its share of the hosts.
 */
export async function observe(config: Config, { listings, ...options }: OptionsOf<"observe">): Promise<void> {
  if (listings !== undefined) {
    if (!options.once) throw new Failure("usage", "--listings needs --once");
    return (await import("./listings.ts")).probeListings(config, listings, options);
  }
  if (options.rejected !== undefined) throw new Failure("usage", "--rejected needs --listings");
  await checkAtStart(config, "observe", options);
  await (config.log === null ? observeAlone(config, options) : observeShare(config, options));
}

/**
 * Runs one observer for all hosts. This process also publishes the commitment to the day's plan (a hash, which proves
 * later that the plan was not changed).
 */
const observeAlone = (config: Config, options: RoleOptions): Promise<void> =>
  withRoles(
    config,
    async (openRoles) => {
      if (!options.once) return observeUntilStopped(config, options, openRoles);
      const { day, calls } = await observeOnce(config, openRoles.roles.pipeline);
      report(options, { day, ...calls }, "touchstone ingest --once");
    },
    undefined,
    { watched: !options.once },
  );

/** Runs all jobs of one machine except serving, until stopped. */
const observeUntilStopped = (config: Config, options: RoleOptions, { parts, roles }: Roles): Promise<void> =>
  withStatus(config, parts, { role: "observe", works: MACHINE_WORK_KINDS, first: "grade" }, options, async (status) => {
    const pulse = watchMachine(status.pulse, { ...parts, ...roles });
    const schedule = startMachine({ ...parts, ...roles, pulse, catalogues: config.catalogues });
    await untilStopped();
    await schedule.stop();
  });

/** Reports to /health which partitions this observer has, and by how many records its lake is behind the log. */
async function reportShare({ pulse }: Status, { parts, roles }: Roles, ownership: Ownership): Promise<void> {
  const { log, metrics } = parts;
  const heldPartitions = ownership.held();
  const everyPartition = Array.from({ length: log.partitions }, (_, partition) => partition);
  const lag = await measureLag(log, await roles.ingest.positions(), everyPartition, metrics);
  pulse.setWaiting("being heard by the group of observers", !ownership.heard);
  pulse.setState(heldPartitions.length > 0 ? "working" : "spare");
  pulse.setFacts({ partitions: heldPartitions, generation: ownership.generation, lag });
}

/**
 * Returns what the jobs of an observer in a group need. After each run of the job `follow`, which loads new records,
 * the observer reports its share to /health.
 */
function observingParts(config: Config, openRoles: Roles, status: Status, ownership: Ownership): ObservingParts {
  const { parts, roles } = openRoles;
  const followed = new FollowedRecord(parts.publicStore, createTrustReader(config, systemClock));
  const withShareReport = (job: Job<ObservingParts>): Job<ObservingParts> => ({
    ...job,
    run: async (jobParts) => {
      await job.run(jobParts);
      await reportShare(status, openRoles, ownership);
    },
  });
  return {
    ...{ ...parts, ...roles, followed, catalogues: config.catalogues, pulse: status.pulse },
    onPlan: (_day, known) => status.pulse.setWaiting("the commitment to the plan of the day", !known),
    watch: (jobs) => status.pulse.watch(jobs.map((job) => (job.name === "follow" ? withShareReport(job) : job))),
  };
}

/** Makes the calls to this observer's share of the hosts that are due by now. */
async function observeShareOnce(
  config: Config,
  { pipeline, observer }: Roles["roles"],
  observingJobParts: ObservingParts,
) {
  await pipeline.intake(config.catalogues);
  const now = systemClock.now();
  const stop = new AbortController();
  const removeHandlers = onStopSignal(() => stop.abort(new Error("stopped")));
  const plan = await waitForCommittedPlan(observingJobParts, dayOf(now), stop.signal);
  const calls = await observer.observeShare(plan, dayStart(plan.day), now, Promise.resolve());
  await observer.followUpCalls();
  await observer.waitForShowings();
  removeHandlers();
  return { day: plan.day, ...calls };
}

/**
 * Runs `touchstone observe` with the log of a cluster, as one of several observers. It has the secret of the wallets,
 * but only the public keys of the record, and reads the public store without credentials.
 */
async function observeShare(config: Config, options: RoleOptions): Promise<void> {
  const opened: { status: Status; ownership: Ownership }[] = [];
  const joinGroup = async ({ log, logger, clock, metrics }: Parts): Promise<Ownership> => {
    logStart(logger, config, "observe", ["follow", "observe"]);
    // The lake is loaded after this; until then /health reports that the role is starting.
    const statusOptions = { role: "observe" as const, clock, metrics, listen: !options.once };
    const status = await openStatus(config, statusOptions, "follow");
    try {
      printStatus(status, options);
      const ownership = await openOwnership(config, log, OBSERVER_GROUP, logger);
      opened.push({ status, ownership });
      return ownership;
    } catch (error) {
      await status.close();
      throw error;
    }
  };
  const work = async (openRoles: Roles): Promise<void> => {
    const { status, ownership } = opened[0]!;
    const parts = observingParts(config, openRoles, status, ownership);
    if (options.once)
      return report(options, await observeShareOnce(config, openRoles.roles, parts), "touchstone own --once");
    const observing = startObserving(parts);
    if (!options.json) printLines("Observing a share of the hosts, until stopped.");
    await untilStopped();
    await observing.stop();
  };
  try {
    await withRoles(config, work, joinGroup, { watched: !options.once });
  } finally {
    for (const { status } of opened) await status.close();
  }
}
