import type { NamedCatalogue } from "../../infra/catalogues.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { Observer, SpanReport } from "../1-observe/observer.ts";
import type { Publisher } from "../4-publish/publisher.ts";
import type { Notifier } from "../6-notify/notifier.ts";
import { type DayPlan, summarizePlan } from "../record/plan.ts";
import { addDays, dayOf, dayStart } from "../record/time.ts";
import { type Job, type JobName, jobsOf, type RunningJobs, runJobs } from "./jobs.ts";
import type { HealthReporter, Pipeline } from "./pipeline.ts";

export interface ScheduleParts {
  clock: Clock;
  pipeline: Pipeline;
  observer: Observer;
  publisher: Publisher;
  notifier: Notifier;
  /** Catalogues (public lists of endpoints) that are read regularly. */
  catalogues: readonly NamedCatalogue[];
  logger: Logger;
  metrics: Metrics;
  /** Receives the results of this process's work, for its health report. */
  pulse?: HealthReporter;
}

/**
 * The functions of the jobs of every process that observes (probes and pays endpoints), alone or together with
 * others.
 */
export const OBSERVER_WORK = {
  asks: ({ pipeline }: ScheduleParts) => pipeline.startAsks(),
  settlements: ({ observer }: ScheduleParts) => observer.followUpCalls(),
  buyers: ({ observer }: ScheduleParts) => observer.readBuyers(),
  intake: ({ pipeline, catalogues }: ScheduleParts) => pipeline.intake(catalogues, true),
  resume: ({ pipeline, catalogues }: ScheduleParts) => pipeline.resumeIntake(catalogues),
};

/** The jobs of a single machine that has all roles. */
export const MACHINE_JOBS = jobsOf<"machine", ScheduleParts>("machine", {
  ...OBSERVER_WORK,
  grade: ({ pipeline, clock, pulse }) => pipeline.grade(clock.now(), pulse),
  notify: ({ notifier }) => notifier.runOnce(),
  volatile: ({ pipeline }) => pipeline.writeVolatile(),
  checkpoint: ({ publisher }) => publisher.refreshCheckpoint(),
  plan: ({ pipeline, clock }) => pipeline.getPublishedPlan(addDays(dayOf(clock.now()), 1)),
  budget: ({ pipeline }) => pipeline.storeBudget(),
  index: ({ pipeline }) => pipeline.publishIndex(),
  evidence: ({ pipeline, clock }) => pipeline.publishEvidence(clock.now()),
  archive: ({ pipeline, clock }) => pipeline.archiveOldDays(clock.now()),
  history: ({ pipeline, clock }) => pipeline.writeHistory(clock.now()),
  garbage: ({ pipeline }) => pipeline.collectGarbage(),
  tidy: ({ pipeline }) => pipeline.tidy(),
});

/** Kinds of work that the health report of a single machine lists. Each job belongs to one kind. */
export const MACHINE_WORK_KINDS = ["observe", "ingest", "grade", "publish", "notify"] as const;

const WORK_KIND_OF: Record<JobName<"machine">, (typeof MACHINE_WORK_KINDS)[number]> = {
  ...{ asks: "observe", settlements: "observe", buyers: "observe", intake: "observe", resume: "observe" },
  ...{ plan: "observe", budget: "observe", grade: "grade", tidy: "ingest", notify: "notify" },
  ...{ volatile: "publish", checkpoint: "publish", index: "publish", evidence: "publish", archive: "publish" },
  ...{ history: "publish", garbage: "publish" },
};

/** Makes the calls of a day's plan until `end` or until `signal` is aborted. */
export type ObserveDay = (plan: DayPlan, from: Date, end: Date, signal: AbortSignal) => Promise<SpanReport>;

/** The jobs and daily observation that a process runs until it is stopped. */
export interface Schedule<Parts> {
  jobs: readonly Job<Parts>[];
  /** Returns the plan of a day once the commitment to it is published. */
  planOf: (day: string, signal: AbortSignal) => Promise<DayPlan>;
  observe: ObserveDay;
}

/** Handle by which a started schedule is stopped. */
export type Running = Pick<RunningJobs, "stop">;

/** Starts a single machine that has all roles: all jobs, and the calls of every day's plan. */
export const startMachine = (parts: ScheduleParts): Running =>
  startSchedule(parts, {
    jobs: parts.pulse ? withHealthReports(parts.pulse, MACHINE_JOBS) : MACHINE_JOBS,
    planOf: (day) => parts.pipeline.getPublishedPlan(day),
    observe: (plan, from, end) => parts.observer.observeSpan(plan, from, end),
  });

/** Wraps the jobs of a single machine so that the result of each is reported under its kind of work. */
const withHealthReports = <Parts>(pulse: HealthReporter, jobs: readonly Job<Parts>[]): readonly Job<Parts>[] =>
  jobs.map((job) => ({
    ...job,
    run: (parts) => pulse.during(job.name, () => job.run(parts), WORK_KIND_OF[job.name as JobName<"machine">]),
  }));

/**
 * Runs the jobs, and makes the calls of each day's plan, until stopped. A job that fails is logged, counted and run
 * again.
 */
export function startSchedule<Parts extends ScheduleParts>(parts: Parts, schedule: Schedule<Parts>): Running {
  const stopController = new AbortController();
  const runningJobs = runJobs(parts, schedule.jobs);
  const firstIntake = parts.catalogues.length > 0 ? runningJobs.runNow("intake") : Promise.resolve();
  const waitForFirstListings = () => waitForListings(parts, firstIntake, stopController.signal);
  const observing = reportWhileRunning(parts.pulse, waitForFirstListings).then(() =>
    observeDays(parts, schedule, stopController.signal),
  );
  return {
    async stop() {
      stopController.abort(new Error("the schedule was stopped"));
      parts.observer.stop();
      await observing;
      await runningJobs.stop();
    },
  };
}

/**
 * Longest wait, before the first plan is drawn, for our own reading of the catalogues, ms. It is also the longest
 * wait after that for listings from other observers.
 */
const FIRST_LISTINGS_TIMEOUT_MS = 600_000;
/** Interval at which the log is read for listings that other observers have read, ms. */
const LISTINGS_CHECK_MS = 5_000;

/**
 * Waits, for a bounded time, until any endpoint is listed, since the plan of a day is drawn only once, and endpoints
 * that are listed later are called only from the next day on. Each catalogue is read by one of the observers, and the
 * others get its listings through the log. So a process waits first for its own reading and then for the log.
 * Resolves at once when listings are known. Never rejects.
 */
async function waitForListings(
  { pipeline, catalogues, clock, logger }: ScheduleParts,
  firstIntake: Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  if (catalogues.length === 0) return;
  const endController = new AbortController();
  const waitSignal = AbortSignal.any([signal, endController.signal]);
  try {
    if (await pipeline.hasListings()) return;
    logger.warn("nothing is listed yet: the first plan waits for the catalogues");
    await Promise.race([firstIntake, clock.sleep(FIRST_LISTINGS_TIMEOUT_MS, waitSignal)]);
    for (
      let leftMs = FIRST_LISTINGS_TIMEOUT_MS;
      leftMs > 0 && !(await pipeline.hasListings());
      leftMs -= LISTINGS_CHECK_MS
    )
      await clock.sleep(LISTINGS_CHECK_MS, waitSignal);
  } catch (error) {
    if (!signal.aborted) logger.error({ err: error }, "it could not be told whether anything is listed");
  } finally {
    endController.abort();
  }
}

const OBSERVE_WORK_KIND = "observe";
/** Interval at which the work `observe` is reported as healthy while the calls of a day are made, ms. */
const HEALTH_INTERVAL_MS = 30_000;

/**
 * Reports the work `observe` as healthy after each interval, while the calls of a day are made or a bounded wait for
 * the next ones goes on.
 */
async function reportWhileRunning<T>(pulse: HealthReporter | undefined, work: () => Promise<T>): Promise<T> {
  if (!pulse) return work();
  const timer = setInterval(() => pulse.done(OBSERVE_WORK_KIND), HEALTH_INTERVAL_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/** Makes the remaining calls of today's plan, then those of each following day's plan, until stopped. */
async function observeDays(
  { clock, logger, pulse }: ScheduleParts,
  { planOf, observe }: Pick<Schedule<never>, "planOf" | "observe">,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    const now = clock.now();
    const day = dayOf(now);
    const end = dayStart(addDays(day, 1));
    try {
      // The calls are taken from the beginning of the day. Those of the current block (six hours UTC) that were not
      // made, because of a stop or simulated time, are made now, late but in their block. Those of earlier blocks are
      // counted as missed.
      const plan = await planOf(day, signal);
      logger.info({ ...summarizePlan(plan) }, "the calls of a day begin");
      const isStopped = await reportWhileRunning(pulse, async () => {
        const { stopped } = await observe(plan, dayStart(day), end, signal);
        // The last call of the day may be hours before its end.
        if (!stopped) await clock.sleep(Math.max(1_000, end.getTime() - clock.now().getTime()), signal);
        return stopped;
      });
      if (isStopped) return;
    } catch (error) {
      if (signal.aborted) return;
      pulse?.failed(OBSERVE_WORK_KIND, error);
      logger.error({ err: error, day }, "observation broke off; it goes on in a minute");
      await clock.sleep(60_000, signal).catch(() => {});
    }
  }
}
