import type { PublishedFold } from "./4-publish/fold.ts";
import type { DayPlan } from "./record/plan.ts";
import { addDays, dayOf } from "./record/time.ts";
import { JOBS, type Job, type ObserveDay, type Schedule, type ScheduleParts, startSchedule } from "./schedule.ts";

/** One of several observers: it publishes nothing, and follows what is published. */
export interface ObservingParts extends ScheduleParts {
  followed: { current(): Promise<Pick<PublishedFold, "schedules" | "caps" | "archive">> };
  /** Told that the plan of a day is waited for, and that its commitment was found. */
  onPlan?: (day: string, known: boolean) => void;
  /** The same jobs, with somebody who looks on. */
  watch?: (jobs: readonly Job[]) => readonly Job[];
}

/** Pause before the commitment to a plan is looked for again, ms. */
const AGAIN_MS = 5_000;

/** Of the table of all jobs, what observing needs; grading and publishing are other processes' work. */
const NAMES = new Set(["asks", "settlements", "intake"]);

export const OBSERVER_JOBS: readonly Job[] = [
  {
    // What others wrote has to be known here too: what is listed, what is asked for, what was settled.
    name: "follow",
    cadence: "*/30 * * * * *",
    lane: "record",
    run: ({ pipeline }) => pipeline.ingest(),
  },
  {
    name: "plan",
    cadence: "0 50 23 * * *",
    lane: "record",
    run: ({ pipeline, clock }) => drawn(pipeline, addDays(dayOf(clock.now()), 1)),
  },
  ...JOBS.filter(({ name }) => NAMES.has(name)),
];

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
 * by whoever comes first, and everybody's from then on.
 */
export function startObserving(parts: ObservingParts): Schedule {
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
  // Each of them has the payments of all in its lake, so whoever is up keeps the budget for `touchstone budget`.
  const budget: Job = {
    name: "budget",
    cadence: "20 */10 * * * *",
    lane: "budget",
    run: async ({ pipeline }) => pipeline.budget(await parts.followed.current()),
  };
  // Its memory is of payments; old handshakes leave it as they leave the lakes of the owners, or it grew for ever.
  const archive: Job = {
    name: "archive",
    cadence: "0 25 * * * *",
    lane: "record",
    run: async ({ pipeline }) => pipeline.settle((await parts.followed.current()).archive),
  };
  const jobs = [...OBSERVER_JOBS, budget, archive];
  return startSchedule(parts, {
    jobs: parts.watch?.(jobs) ?? jobs,
    planOf: (day, signal) => committedPlan(parts, day, signal),
    observe,
  });
}
