import type { PublishedFold } from "../published/fold.ts";
import type { DayPlan } from "../record/plan.ts";
import { addDays, dayOf } from "../record/time.ts";
import { type Job, jobsOf } from "./jobs.ts";
import { OBSERVING, type ObserveDay, type Running, type ScheduleParts, startSchedule } from "./schedule.ts";

/** One of several observers: it publishes nothing, and follows what is published. */
export interface ObservingParts extends ScheduleParts {
  followed: { current(): Promise<Pick<PublishedFold, "schedules" | "caps" | "archive">> };
  /** Told that the plan of a day is waited for, and that its commitment was found. */
  onPlan?: (day: string, known: boolean) => void;
  /** The same jobs, watched (for the status page and alarms). */
  watch?: (jobs: readonly Job<ObservingParts>[]) => readonly Job<ObservingParts>[];
}

/** Pause before the commitment to a plan is looked for again, ms. */
const AGAIN_MS = 5_000;

/** Grading and publishing are other processes' work. */
export const OBSERVER_JOBS = jobsOf<"observer", ObservingParts>("observer", {
  ...OBSERVING,
  follow: ({ pipeline }) => pipeline.ingest(),
  plan: ({ pipeline, clock }) => drawn(pipeline, addDays(dayOf(clock.now()), 1)),
  budget: async ({ pipeline, followed }) => pipeline.budget(await followed.current()),
  archive: async ({ pipeline, followed }) => pipeline.evictArchived((await followed.current()).archive),
});

/** What others spent up to now counts in it. */
async function drawn(pipeline: ScheduleParts["pipeline"], day: string): Promise<DayPlan> {
  await pipeline.ingest();
  return pipeline.drawn(day);
}

/**
 * The plan of a day, once the publisher has committed to it in public: before that nobody is called, or a plan could be
 * changed after its first results. @throws what `signal` was aborted with
 */
export async function committedPlan(parts: ObservingParts, day: string, signal: AbortSignal): Promise<DayPlan> {
  const { pipeline, followed, clock, logger } = parts;
  parts.onPlan?.(day, false);
  const plan = await drawn(pipeline, day);
  for (let told = false; ; told = true) {
    const { schedules } = await followed.current();
    if (schedules.get(day)?.salt_hash === plan.salt_hash) {
      parts.onPlan?.(day, true);
      return plan;
    }
    if (!told) logger.warn({ day }, "nobody is called before the commitment to the plan is published");
    await clock.sleep(AGAIN_MS, signal);
  }
}

/**
 * One of several observers, until stopped: the calls of our share of the hosts, day after day. The plan of a day is drawn
 * by whichever observer comes first, and is the plan of all from then on.
 */
export function startObserving(parts: ObservingParts): Running {
  const { clock, observer } = parts;
  const observe: ObserveDay = (plan, from, end, signal) => {
    const left = end.getTime() - clock.now().getTime();
    return observer.observeShare(
      plan,
      from,
      end,
      clock.sleep(left, signal).catch(() => undefined),
    );
  };
  return startSchedule(parts, {
    jobs: parts.watch?.(OBSERVER_JOBS) ?? OBSERVER_JOBS,
    planOf: (day, signal) => committedPlan(parts, day, signal),
    observe,
  });
}
