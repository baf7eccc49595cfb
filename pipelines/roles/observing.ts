import { Failure } from "../../infra/errors.ts";
import type { PublishedFold } from "../published/fold.ts";
import type { DayPlan } from "../record/plan.ts";
import { addDays, dayOf, dayStart } from "../record/time.ts";
import { type Job, jobsOf } from "./jobs.ts";
import { OBSERVER_WORK, type ObserveDay, type Running, type ScheduleParts, startSchedule } from "./schedule.ts";

/**
 * The parts of one of several observers (processes that probe and pay endpoints). Such a process publishes nothing
 * and reads the public log from the public store.
 */
export interface ObservingParts extends ScheduleParts {
  /** The published record, as this process reads it from the public store. */
  followed: { current(): Promise<Pick<PublishedFold, "schedules" | "caps" | "archive">> };
  /**
   * Called when the wait for the published commitment to a day's plan begins (`known` false), and when the commitment
   * was found (`known` true).
   */
  onPlan?: (day: string, known: boolean) => void;
  /** Returns these jobs, wrapped so that their results are reported to the status page and alarms. */
  watch?: (jobs: readonly Job<ObservingParts>[]) => readonly Job<ObservingParts>[];
}

/** Pause before the published commitment to a plan is read again, ms. */
const RETRY_PAUSE_MS = 5_000;

/** The jobs of one of several observers, which neither grades nor publishes. */
export const OBSERVER_JOBS = jobsOf<"observer", ObservingParts>("observer", {
  ...OBSERVER_WORK,
  follow: ({ pipeline }) => pipeline.ingest(),
  plan: ({ pipeline, clock }) => drawPlan(pipeline, addDays(dayOf(clock.now()), 1)),
  budget: async ({ pipeline, followed }) => pipeline.storeBudget(await followed.current()),
  archive: async ({ pipeline, followed }) => pipeline.evictArchived((await followed.current()).archive),
});

/**
 * Reads the log, so that the spending of other observers counts, and then returns the plan of a day, which it draws
 * if no observer has.
 */
async function drawPlan(pipeline: ScheduleParts["pipeline"], day: string): Promise<DayPlan> {
  await pipeline.ingest();
  return pipeline.getOrDrawPlan(day);
}

/**
 * Waits until the publisher has published its commitment to the plan of a day, and returns the plan. No endpoint is
 * called before that, so that nobody can change a plan after its first results.
 * @throws Failure when the day ends first, since the publisher commits to the plans of its present and its next day
 * only; the reason of `signal` when it is aborted
 */
export async function waitForCommittedPlan(parts: ObservingParts, day: string, signal: AbortSignal): Promise<DayPlan> {
  const { pipeline, followed, clock, logger } = parts;
  parts.onPlan?.(day, false);
  const plan = await drawPlan(pipeline, day);
  for (let isLogged = false; ; isLogged = true) {
    const { schedules } = await followed.current();
    if (schedules.get(day)?.salt_hash === plan.salt_hash) {
      parts.onPlan?.(day, true);
      return plan;
    }
    if (clock.now() >= dayStart(addDays(day, 1)))
      throw new Failure("failed", `${day} ended before the commitment to its plan was published: nobody was called`);
    if (!isLogged) logger.warn({ day }, "nobody is called before the commitment to the plan is published");
    await clock.sleep(RETRY_PAUSE_MS, signal);
  }
}

/**
 * Runs one of several observers until stopped: day after day it makes the plan's calls to its share of the hosts. The
 * first observer that needs the plan of a day draws it, and all observers use that plan.
 */
export function startObserving(parts: ObservingParts): Running {
  const { clock, observer } = parts;
  const observe: ObserveDay = (plan, from, end, signal) => {
    const leftMs = end.getTime() - clock.now().getTime();
    return observer.observeShare(
      plan,
      from,
      end,
      clock.sleep(leftMs, signal).catch(() => undefined),
    );
  };
  return startSchedule(parts, {
    jobs: parts.watch?.(OBSERVER_JOBS) ?? OBSERVER_JOBS,
    planOf: (day, signal) => waitForCommittedPlan(parts, day, signal),
    observe,
  });
}
