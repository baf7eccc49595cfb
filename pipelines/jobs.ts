import cron from "node-cron";
import type { Logger, Metrics } from "../infra/telemetry.ts";

/** A job of some role: what it does is made of the role's own parts. */
export interface JobOf<Parts, Lane extends string = string> {
  name: string;
  /** Seconds, minutes, hours, day, month, weekday; UTC. */
  cadence: string;
  /** Jobs of one lane never run at the same time; a job whose lane is taken waits its turn. */
  lane: Lane;
  run: (parts: Parts) => Promise<unknown>;
}

export interface RunningJobs {
  /** No job begins any more; resolves when those under way have ended. */
  stop(): Promise<void>;
}

/** Run a table of jobs until stopped. A job that fails is logged, counted and run again at its next time. */
export function runJobs<Parts extends { logger: Logger; metrics: Metrics }>(
  parts: Parts,
  jobs: readonly JobOf<Parts>[],
): RunningJobs {
  const lanes = new Map<string, Promise<void>>();
  let stopped = false;
  const run = (job: JobOf<Parts>): Promise<void> => {
    const turn = (lanes.get(job.lane) ?? Promise.resolve()).then(async () => {
      if (stopped) return;
      try {
        await job.run(parts);
        parts.metrics.count("touchstone_jobs_total", { job: job.name, result: "done" });
      } catch (error) {
        parts.metrics.count("touchstone_jobs_total", { job: job.name, result: "failed" });
        parts.logger.error({ err: error, job: job.name }, "a job failed; it is run again at its next time");
      }
    });
    lanes.set(job.lane, turn);
    return turn;
  };
  const tasks = jobs.map((job) => cron.schedule(job.cadence, () => run(job), { noOverlap: true, timezone: "Etc/UTC" }));
  return {
    async stop() {
      stopped = true;
      for (const task of tasks) await task.destroy();
      await Promise.all(lanes.values());
    },
  };
}
