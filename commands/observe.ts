import { systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { openOwnership } from "../infra/log/open.ts";
import type { Ownership } from "../infra/log/ownership.ts";
import { originOf, trustOf } from "../infra/tree/checkpoint.ts";
import { Followed } from "../pipelines/4-publish/followed.ts";
import { dayOf, dayStart } from "../pipelines/record/time.ts";
import { OBSERVERS } from "../pipelines/record/topics.ts";
import type { Job } from "../pipelines/roles/jobs.ts";
import { lagOf } from "../pipelines/roles/lag.ts";
import { committedPlan, type ObservingParts, startObserving } from "../pipelines/roles/observing.ts";
import type { Parts } from "../pipelines/roles/parts.ts";
import { MACHINE_WORKS, startMachine } from "../pipelines/roles/schedule.ts";
import { openStatus, type Status } from "../serving/status/listener.ts";
import { atStart } from "./doctor.ts";
import { onStopSignal, untilStopped } from "./exit.ts";
import { sayStart, watchMachine } from "./machine-status.ts";
import { printLines } from "./printer.ts";
import { type RoleOptions, report, sayStatus } from "./report.ts";
import { type Roles, withRoles } from "./roles.ts";

export interface ObserveOptions extends RoleOptions {
  /** With `once`: these are taken in and probed, without a plan. */
  listings?: string;
  rejected?: string;
}

/**
 * `touchstone observe`: catalogues, then the calls of today's plan that are due. Over a cluster's log it joins the
 * group of observers and makes the calls of its share of the hosts.
 */
export async function observe(config: Config, { listings, ...options }: ObserveOptions): Promise<void> {
  if (listings !== undefined) {
    if (!options.once) throw new Failure("usage", "--listings probes once: say --once too");
    return (await import("./listings.ts")).probeListings(config, listings, options);
  }
  await atStart(config, "observe", options);
  await (config.log === null ? observeAlone(config, options) : observeShare(config, options));
}

/** One observer of every host, which publishes the commitment to its plan itself. */
const observeAlone = (config: Config, options: RoleOptions): Promise<void> =>
  withRoles(config, (all) => observed(config, options, all), undefined, { watched: !options.once });

async function observed(config: Config, options: RoleOptions, { parts, roles }: Roles): Promise<void> {
  if (!options.once) return observeAlways(config, options, { parts, roles });
  await roles.pipeline.intake(config.catalogues);
  const from = systemClock.now();
  const plan = await roles.pipeline.plan(dayOf(from));
  const done = await roles.pipeline.observe(plan, dayStart(dayOf(from)), from);
  report(options, { day: plan.day, ...done }, "touchstone ingest --once");
}

/** All works of one machine but serving, until stopped. */
async function observeAlways(config: Config, options: RoleOptions, { parts, roles }: Roles): Promise<void> {
  const { clock, metrics } = parts;
  sayStart(parts.logger, config, "observe", MACHINE_WORKS);
  const status = await openStatus(config, { role: "observe", clock, metrics, listen: true }, "grade");
  try {
    sayStatus(status, options.json);
    const pulse = watchMachine(status.pulse, { ...parts, ...roles });
    const schedule = startMachine({ ...parts, ...roles, pulse, catalogues: config.catalogues });
    await untilStopped();
    await schedule.stop();
  } finally {
    await status.close();
  }
}

/** What an observer says of itself beside its works: its share, and how far behind the log its memory is. */
async function tellShare({ pulse }: Status, { parts, roles }: Roles, ownership: Ownership): Promise<void> {
  const { log, metrics } = parts;
  const held = ownership.held();
  const everyPartition = Array.from({ length: log.partitions }, (_, partition) => partition);
  const lag = await lagOf(log, await roles.ingest.positions(), everyPartition, metrics);
  pulse.setWaiting("being heard by the group of observers", !ownership.heard);
  pulse.setState(held.length > 0 ? "working" : "spare");
  pulse.setFacts({ partitions: held, generation: ownership.generation, lag });
}

/**
 * `touchstone observe` over a cluster's log: one of several observers. It has the secret of the wallets and the public
 * halves of the keys, and reads the public store as anybody does.
 */
const observeShare = async (config: Config, options: RoleOptions): Promise<void> => {
  const opened: { status: Status; ownership: Ownership }[] = [];
  const work = async ({ parts, roles }: Roles): Promise<void> => {
    const { pipeline, observer } = roles;
    const { status, ownership } = opened[0]!;
    const trust = () => trustOf(originOf(config.base_url), parts.keys.ring, systemClock.now());
    const followed = new Followed(parts.publicStore, trust);
    const all: ObservingParts = {
      ...{ ...parts, ...roles, followed, catalogues: config.catalogues, pulse: status.pulse },
      onPlan: (_day, known) => status.pulse.setWaiting("the commitment to the plan of the day", !known),
      watch: (jobs) => status.pulse.watch(jobs.map((job) => (job.name === "follow" ? followAndTell(job) : job))),
    };
    const followAndTell = (job: Job<ObservingParts>): Job<ObservingParts> => ({
      ...job,
      run: async (given) => {
        await job.run(given);
        await tellShare(status, { parts, roles }, ownership);
      },
    });
    if (!options.once) {
      const observing = startObserving(all);
      if (!options.json) printLines("Observing a share of the hosts, until stopped.");
      await untilStopped();
      return observing.stop();
    }
    await pipeline.intake(config.catalogues);
    const from = systemClock.now();
    const stop = new AbortController();
    const quiet = onStopSignal(() => stop.abort(new Error("stopped")));
    const plan = await committedPlan(all, dayOf(from), stop.signal);
    const done = await observer.observeShare(plan, dayStart(plan.day), from, Promise.resolve());
    await observer.awaitSettlements();
    quiet();
    report(options, { day: plan.day, ...done }, "touchstone own --once");
  };
  const share = async ({ log, logger, clock, metrics }: Parts): Promise<Ownership> => {
    sayStart(logger, config, "observe", ["follow", "observe"]);
    // Before the lake is loaded: who is starting says so.
    const parts = { role: "observe" as const, clock, metrics, listen: !options.once };
    const status = await openStatus(config, parts, "follow");
    try {
      sayStatus(status, options.json);
      const ownership = await openOwnership(config, log, OBSERVERS, logger);
      opened.push({ status, ownership });
      return ownership;
    } catch (error) {
      await status.close();
      throw error;
    }
  };
  try {
    await withRoles(config, work, share, { watched: !options.once });
  } finally {
    for (const { status } of opened) await status.close();
  }
};
