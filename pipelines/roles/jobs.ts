import cron from "node-cron";
import { systemClock } from "../../infra/clock.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";

/**
 * Roles that run jobs: observer (probes and pays endpoints), owner (ingests and grades some partitions of the log),
 * publisher (publishes the results). A `machine` has all three in one process.
 */
export type Role = "machine" | "observer" | "owner" | "publisher";

interface JobRow extends Partial<Record<Role, string>> {
  job: string;
  /** Two jobs of one queue never run at the same time in a process. A job whose queue is busy waits for its turn. */
  queue: "record" | "observe" | "asks" | "budget" | "notify" | "intake" | "buyers";
}

/**
 * The table of jobs: which role runs which job, and when (cron times: seconds, minutes, hours, day, month, weekday;
 * UTC). Each role defines what its job does ({@link jobsOf}). Missed runs are not made up by the timer, which stores
 * nothing: a job looks up in log and stores what is left to do, so the next run does the work of a missed one.
 */
const JOB_TABLE = [
  // An observer reads from the log what other processes wrote: listings, asks (clients' requests to probe a url),
  // settlements.
  { job: "follow", queue: "record", observer: "*/30 * * * * *" },
  { job: "grade", queue: "record", machine: "*/10 * * * * *" },
  { job: "own", queue: "record", owner: "*/10 * * * * *" },
  { job: "publish", queue: "record", publisher: "*/2 * * * * *" },
  // A run reads new leaves (entries of the public log) and starts sending the notices that are due, without waiting
  // for their receivers.
  { job: "notify", queue: "notify", machine: "1-59/2 * * * * *", publisher: "1-59/2 * * * * *" },
  { job: "asks", queue: "asks", machine: "5,15,25,35,45,55 * * * * *", observer: "5,15,25,35,45,55 * * * * *" },
  { job: "volatile", queue: "record", machine: "8,18,28,38,48,58 * * * * *", owner: "6,16,26,36,46,56 * * * * *" },
  { job: "tables", queue: "record", publisher: "9,19,29,39,49,59 * * * * *" },
  { job: "settlements", queue: "observe", machine: "30 * * * * *", observer: "30 * * * * *" },
  // The active one of several publishers signs a checkpoint (head of the public log) often, so that the waiting ones
  // know that it is alive (protocol/standby.ts).
  { job: "checkpoint", queue: "record", machine: "0 */9 * * * *", publisher: "*/10 * * * * *" },
  { job: "plan", queue: "record", machine: "0 50 23 * * *", observer: "0 50 23 * * *" },
  { job: "plans", queue: "record", publisher: "30 * * * * *" },
  // The lake (database of the log's rows) of every observer has all payments, so any observer can compute the report
  // for `touchstone budget`.
  { job: "budget", queue: "budget", machine: "20 */10 * * * *", observer: "20 */10 * * * *" },
  { job: "index", queue: "record", machine: "0 3 * * * *", publisher: "0 3 * * * *" },
  { job: "evidence", queue: "record", machine: "0 7 * * * *", owner: "0 5 * * * *", publisher: "15 * * * * *" },
  {
    // A run without work takes only a query or two, so this job runs often: archived rows are removed from an owner's
    // lake a few minutes after the publication of their archive file, and from an observer's lake within the hour.
    job: "archive",
    queue: "record",
    machine: "0 30 3 * * *",
    observer: "0 25 * * * *",
    owner: "0 8,18,28,38,48,58 * * * *",
    publisher: "45 * * * * *",
  },
  { job: "history", queue: "record", machine: "0 4 * * * *", owner: "0 4 * * * *" },
  // This job has its own queue, so that a slow node of the payment chain delays no other job.
  { job: "buyers", queue: "buyers", machine: "50 35 * * * *", observer: "50 35 * * * *" },
  // These two jobs depend on other hosts and may take minutes, so they share a separate queue.
  { job: "intake", queue: "intake", machine: "0 20 */6 * * *", observer: "0 20 */6 * * *" },
  { job: "resume", queue: "intake", machine: "40 */5 * * * *", observer: "40 */5 * * * *" },
  { job: "garbage", queue: "record", machine: "0 40 4 * * *", publisher: "0 40 4 * * *" },
  { job: "tidy", queue: "record", machine: "0 50 4 * * *", owner: "0 50 4 * * *" },
] as const satisfies readonly JobRow[];

/** Names of the jobs of a role. */
export type JobName<R extends Role> = Extract<(typeof JOB_TABLE)[number], Record<R, string>>["job"];

/** A job of a role: its cron times, its queue, and the function to run. */
export interface Job<Parts> {
  name: string;
  cronTimes: string;
  queue: string;
  run: (parts: Parts) => Promise<unknown>;
}

/** Makes the jobs of a role from {@link JOB_TABLE} and a function for each job of that role. */
export function jobsOf<R extends Role, Parts>(
  role: R,
  workByJob: Readonly<Record<JobName<R>, (parts: Parts) => Promise<unknown>>>,
): readonly Job<Parts>[] {
  const rows: readonly JobRow[] = JOB_TABLE;
  return rows.flatMap(({ job, queue, [role]: cronTimes }) =>
    cronTimes === undefined ? [] : [{ name: job, queue, cronTimes, run: workByJob[job as JobName<R>] }],
  );
}

export interface RunningJobs {
  /** Runs a job now, in its queue; resolves when the job has ended, also after a failure. */
  runNow(name: string): Promise<void>;
  /** Starts no further job; resolves when the running jobs have ended. */
  stop(): Promise<void>;
}

/** Number of future runs of a job that are compared to find the longest pause between two. */
const RUNS_COMPARED = 25;

/**
 * Returns unix seconds of real time, even if the record's time is simulated, since Prometheus compares these values
 * with real time.
 */
const unixSeconds = (): number => systemClock.now().getTime() / 1000;

/** Returns the longest pause between the next runs of a task, seconds. */
function longestPauseSeconds(task: ReturnType<typeof cron.schedule>): number {
  const runs = task.getNextRuns(RUNS_COMPARED).map((run) => run.getTime());
  return Math.max(...runs.slice(1).map((run, i) => run - runs[i]!)) / 1000;
}

/**
 * Starts the timer of one job. node-cron's messages go to our logger instead of the console. A run that is left out
 * because the previous one has not ended is logged at `debug`: a job that is due every two seconds leaves out many,
 * and the next run does their work. A run that is missed because the event loop was busy is logged as a warning.
 */
function schedule(
  { name: job, cronTimes }: Pick<Job<never>, "name" | "cronTimes">,
  logger: Logger,
  run: () => unknown,
) {
  const logAt = (level: "debug" | "error") => (message: string | Error, err?: Error) =>
    message instanceof Error
      ? logger[level]({ err: message, job }, "the timer of a job failed")
      : logger[level]({ ...(err ? { err } : {}), job }, message);
  const task = cron.schedule(cronTimes, run, {
    ...{ noOverlap: true, timezone: "Etc/UTC" },
    logger: { info: logAt("debug"), debug: logAt("debug"), warn: logAt("debug"), error: logAt("error") },
  });
  task.on("execution:missed", ({ date }) =>
    logger.warn({ job, due: date }, "a run of a job was missed: the event loop was busy when it was due"),
  );
  return task;
}

/** Runs jobs until stopped. A job that fails is logged and counted, and runs again at its next time. */
export function runJobs<Parts extends { logger: Logger; metrics: Metrics }>(
  parts: Parts,
  jobs: readonly Job<Parts>[],
): RunningJobs {
  const { logger, metrics } = parts;
  const queues = new Map<string, Promise<void>>();
  let isStopped = false;
  const run = (job: Job<Parts>): Promise<void> => {
    const turn = (queues.get(job.queue) ?? Promise.resolve()).then(async () => {
      if (isStopped) return;
      const startedAtMs = systemClock.monotonic();
      const job_name = job.name;
      try {
        await job.run(parts);
        metrics.count("touchstone_jobs_total", { job_name, result: "done" });
        metrics.gauge("touchstone_job_last_done_seconds", unixSeconds(), { job_name });
      } catch (error) {
        metrics.count("touchstone_jobs_total", { job_name, result: "failed" });
        logger.error({ err: error, job: job.name }, "a job failed; it is run again at its next time");
      }
      metrics.time("touchstone_job_seconds", (systemClock.monotonic() - startedAtMs) / 1000, { job_name });
    });
    queues.set(job.queue, turn);
    return turn;
  };
  const tasks = jobs.map((job) => schedule(job, logger, () => run(job)));
  for (const [i, { name: job_name }] of jobs.entries()) {
    for (const result of ["done", "failed"] as const) metrics.count("touchstone_jobs_total", { job_name, result }, 0);
    metrics.gauge("touchstone_job_last_done_seconds", unixSeconds(), { job_name });
    metrics.gauge("touchstone_job_period_seconds", longestPauseSeconds(tasks[i]!), { job_name });
  }
  return {
    async runNow(name) {
      for (const job of jobs) if (job.name === name) await run(job);
    },
    async stop() {
      isStopped = true;
      for (const task of tasks) await task.destroy();
      await Promise.all(queues.values());
    },
  };
}
