import { JOBS, type Job, type ObserveDay, type Schedule, type ScheduleParts, startSchedule } from "./schedule.ts";

/** What one of several observers does beside its calls; grading and publishing are other processes' work. */
const NAMES = new Set(["asks", "settlements", "plan", "intake"]);

/** What others wrote has to be known here too: what an endpoint lists, what is asked for, what was settled. */
const FOLLOW: Job = {
  name: "follow",
  cadence: "*/10 * * * * *",
  lane: "record",
  run: ({ pipeline }) => pipeline.ingest(),
};

export const OBSERVER_JOBS: readonly Job[] = [FOLLOW, ...JOBS.filter(({ name }) => NAMES.has(name))];

/**
 * One of several observers, until stopped: the calls of our share of the hosts, day after day. The plan of a day is drawn
 * by whoever comes first, and everybody's from then on.
 */
export function startObserving(parts: ScheduleParts): Schedule {
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
  return startSchedule(parts, OBSERVER_JOBS, observe);
}
