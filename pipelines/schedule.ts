import type { Clock } from "../infra/clock.ts";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import type { Observer, SpanReport } from "./1-observe/observer.ts";
import type { Publisher } from "./4-publish/publisher.ts";
import { type JobOf, type RunningJobs, runJobs } from "./jobs.ts";
import type { Pipeline } from "./pipeline.ts";
import type { DayPlan } from "./record/plan.ts";
import { addDays, dayOf, dayStart } from "./record/time.ts";

export interface ScheduleParts {
  clock: Clock;
  pipeline: Pipeline;
  observer: Observer;
  publisher: Publisher;
  /** Catalogues that are read again. */
  catalogues: readonly string[];
  logger: Logger;
  metrics: Metrics;
}

export type Job = JobOf<ScheduleParts, "record" | "observe" | "asks" | "budget">;

/**
 * The table of jobs. Nothing is persisted by the timer and missed runs are not caught up: every job looks at what is
 * durable (plans, runs, positions, leaves) and does what is owed, so a run that was missed is made up by the next.
 */
export const JOBS: readonly Job[] = [
  {
    name: "grade",
    cadence: "*/10 * * * * *",
    lane: "record",
    run: ({ pipeline, clock }) => pipeline.grade(clock.now()),
  },
  {
    name: "asks",
    cadence: "5,15,25,35,45,55 * * * * *",
    lane: "asks",
    run: ({ pipeline }) => pipeline.asks(),
  },
  {
    name: "volatile",
    cadence: "8,18,28,38,48,58 * * * * *",
    lane: "record",
    run: ({ pipeline }) => pipeline.volatile(),
  },
  { name: "settlements", cadence: "30 * * * * *", lane: "observe", run: ({ observer }) => observer.awaitSettlements() },
  {
    name: "checkpoint",
    cadence: "0 */9 * * * *",
    lane: "record",
    run: ({ publisher }) => publisher.refreshCheckpoint(),
  },
  {
    name: "plan",
    cadence: "0 50 23 * * *",
    lane: "record",
    run: ({ pipeline, clock }) => pipeline.plan(addDays(dayOf(clock.now()), 1)),
  },
  { name: "budget", cadence: "20 */10 * * * *", lane: "budget", run: ({ pipeline }) => pipeline.budget() },
  { name: "index", cadence: "0 3 * * * *", lane: "record", run: ({ pipeline }) => pipeline.index() },
  {
    name: "evidence",
    cadence: "0 7 * * * *",
    lane: "record",
    run: ({ pipeline, clock }) => pipeline.evidence(clock.now()),
  },
  {
    name: "archive",
    cadence: "0 30 3 * * *",
    lane: "record",
    run: ({ pipeline, clock }) => pipeline.archive(clock.now()),
  },
  {
    name: "history",
    cadence: "0 4 * * * *",
    lane: "record",
    run: ({ pipeline, clock }) => pipeline.history(clock.now()),
  },
  {
    name: "intake",
    cadence: "0 20 */6 * * *",
    lane: "record",
    run: ({ pipeline, catalogues }) => pipeline.intake(catalogues, true),
  },
  { name: "sweep", cadence: "0 40 4 * * *", lane: "record", run: ({ pipeline }) => pipeline.sweep() },
  { name: "tidy", cadence: "0 50 4 * * *", lane: "record", run: ({ pipeline }) => pipeline.tidy() },
];

export type Schedule = RunningJobs;

/** How a day's plan is observed: until `end`, or `signal`. */
export type ObserveDay = (plan: DayPlan, from: Date, end: Date, signal: AbortSignal) => Promise<SpanReport>;

/** What is run, where it is not everything by one process. */
export interface Scheduled {
  jobs: readonly Job[];
  /** The plan of a day, once its commitment is published. */
  planOf: (day: string, signal: AbortSignal) => Promise<DayPlan>;
  observe: ObserveDay;
}

/** Run a table of jobs and observe day after day until stopped. A job that fails is logged, counted and run again. */
export function startSchedule(
  parts: ScheduleParts,
  scheduled: Scheduled = {
    jobs: JOBS,
    planOf: (day) => parts.pipeline.plan(day),
    observe: (plan, from, end) => parts.observer.observeSpan(plan, from, end),
  },
): Schedule {
  const stopped = new AbortController();
  const running = runJobs(parts, scheduled.jobs);
  const observing = observeDays(parts, scheduled, stopped.signal);
  return {
    async stop() {
      stopped.abort(new Error("the schedule was stopped"));
      parts.observer.stop();
      await observing;
      await running.stop();
    },
  };
}

/** Live observation: the plan of today from now on, then day after day. */
async function observeDays(parts: ScheduleParts, scheduled: Scheduled, signal: AbortSignal): Promise<void> {
  const { clock, logger } = parts;
  const { planOf, observe } = scheduled;
  while (!signal.aborted) {
    const now = clock.now();
    const day = dayOf(now);
    const end = dayStart(addDays(day, 1));
    try {
      // From the day's beginning: calls of the running block that a stop or a lapse left out are made now, late but in
      // their block; those of blocks that are over are missed, and show as that.
      const report = await observe(await planOf(day, signal), dayStart(day), end, signal);
      if (report.stopped) return;
      await clock.sleep(Math.max(1_000, end.getTime() - clock.now().getTime()), signal);
    } catch (error) {
      if (signal.aborted) return;
      logger.error({ err: error, day }, "observation broke off; it goes on in a minute");
      await clock.sleep(60_000, signal).catch(() => {});
    }
  }
}
