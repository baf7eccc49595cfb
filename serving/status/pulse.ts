import type { Clock } from "../../infra/clock.ts";
import { isDiskFull } from "../../infra/errors.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import type { Job } from "../../pipelines/roles/jobs.ts";

/** The role of a process, named after its command. */
export type Role = "start" | "own" | "publish" | "observe" | "serve" | "witness" | "monitor" | "mirror";

/** State of one required part of a role's work. */
interface RequiredWork {
  /** When it became required, ms of the monotonic clock. */
  requiredAtMs: number;
  /** When it last succeeded, ms of the monotonic clock. */
  lastDoneMs: number | null;
  /** When it last succeeded, in record time. */
  lastDoneAt: Date | null;
  /** The newest failure since the last success, with the name of its error; null: none. */
  lastFailure: { at: Date; error: string } | null;
}

/** The document of `/health`. */
export interface Health {
  role: Role;
  /** Whether the role is healthy. */
  ok: boolean;
  /** `starting` before the first work succeeded, else `working`, `waiting`, or what the role set. */
  state: string;
  /** What is wrong; empty when `ok`. */
  problems: string[];
  /** The required works by name: times of the last success and failure (RFC 3339), and name of the last error. */
  works: Record<string, { last_done: string | null; last_failed: string | null; error: string | null }>;
  /** Further facts about the role: partitions, lag, size of the tree. */
  [fact: string]: unknown;
}

export interface PulseParts {
  role: Role;
  clock: Pick<Clock, "now" | "monotonic">;
  metrics: Metrics;
  /** Returns the free bytes on the disk of the data folder; null when unknown. */
  freeBytes?: () => number | null;
  /** Time without a success after which a required work makes the role unhealthy, ms. */
  patienceMs: number;
}

/** Free bytes below which a disk counts as full: the journal of the database (the lake) alone grows to 64 MiB. */
export const MIN_FREE_BYTES = 64 * 2 ** 20;

/** Number of failures in succession that make a role unhealthy, however recent the last success is. */
const MAX_FAILURES = 3;

/** A run that failed and has not succeeded since. */
interface FailingRun {
  /** Name of the work that the run is a part of. */
  work: string;
  /** Number of its failures in succession. */
  failureCount: number;
  /** Name of the last error. */
  error: string;
}

/**
 * Gauge with the time of a work's last success. It is set only for required works: the time of a job that runs hourly
 * or daily would always look late.
 */
const LAST_DONE_GAUGE = "touchstone_work_last_done_seconds";
const OK_GAUGE = "touchstone_role_ok";

/**
 * Tracks whether a role does its work, by the last success of each required work. Durations use the monotonic clock,
 * times that are shown use the record's clock. Until the first work succeeded the role is `starting`, which is not
 * healthy. Errors are shown by name only, since their messages may contain addresses with keys; the log has the
 * messages.
 */
export class Pulse {
  readonly #parts: PulseParts;
  readonly #works = new Map<string, RequiredWork>();
  /** Failing runs by name, required or not. */
  readonly #failing = new Map<string, FailingRun>();
  #facts: Record<string, unknown> = {};
  #state = "working";
  readonly #waitingSince = new Map<string, number>();

  /** @param firstWork the required work that has to succeed before the role counts as started */
  constructor(
    parts: PulseParts,
    private readonly firstWork: string,
  ) {
    this.#parts = parts;
    this.#require(firstWork);
  }

  /** Sets the required works, in addition to the first one. A newly required work has the full patience from now on. */
  setRequired(...names: string[]): void {
    const required = new Set([this.firstWork, ...names]);
    for (const name of this.#works.keys()) {
      if (required.has(name)) continue;
      this.#works.delete(name);
      this.#parts.metrics.forget(LAST_DONE_GAUGE, { work: name });
      this.#parts.metrics.forget(OK_GAUGE, { role: this.#parts.role, work: name });
    }
    for (const name of required) this.#require(name);
  }

  /**
   * Runs something and records whether it succeeded. A run that is not a required work only counts when it fails three
   * times in succession.
   * @param work the work that the run is a part of: a failure of the run counts for that work, a success does not
   */
  async during<T>(name: string, run: () => Promise<T>, work = name): Promise<T> {
    try {
      const result = await run();
      this.done(name);
      return result;
    } catch (error) {
      this.failed(name, error, work);
      throw error;
    }
  }

  /** Records a success. */
  done(name: string): void {
    const { clock, metrics } = this.#parts;
    this.#failing.delete(name);
    const work = this.#works.get(name);
    if (!work) return;
    Object.assign(work, {
      lastDoneMs: clock.monotonic(),
      lastDoneAt: clock.now(),
      lastFailure: null,
    } satisfies Partial<RequiredWork>);
    metrics.gauge(LAST_DONE_GAUGE, clock.now().getTime() / 1000, { work: name });
  }

  /** Records a failure. @param workName as `work` of {@link during} */
  failed(name: string, cause: unknown, workName = name): void {
    const errorName = cause instanceof Error ? cause.name : "Error";
    const error = isDiskFull(cause) ? "storage" : errorName;
    this.#failing.set(name, { work: workName, failureCount: (this.#failing.get(name)?.failureCount ?? 0) + 1, error });
    const work = this.#works.get(workName);
    if (work) work.lastFailure = { at: this.#parts.clock.now(), error };
  }

  /**
   * Returns jobs whose runs are recorded. {@link setRequired} decides which of them are required.
   * @param workOf returns the work that a job is a part of; by default the job's own name
   */
  watch<Parts>(jobs: readonly Job<Parts>[], workOf: (job: string) => string = (job) => job): Job<Parts>[] {
    return jobs.map((job) => ({
      ...job,
      run: (parts: Parts) => this.during(job.name, () => job.run(parts), workOf(job.name)),
    }));
  }

  /** Sets facts that `/health` shows; each stays until it is set again. */
  setFacts(facts: Record<string, unknown>): void {
    Object.assign(this.#facts, facts);
  }

  /**
   * Sets the state that `/health` shows while the role is healthy: `working`, `waiting`, `spare` (another process
   * does the work).
   */
  setState(state: string): void {
    this.#state = state;
  }

  /**
   * Notes that the role waits for something (`waiting` is true), or no longer waits for it (false). A wait longer than
   * the patience makes it unhealthy.
   */
  setWaiting(what: string, waiting: boolean): void {
    if (!waiting) this.#waitingSince.delete(what);
    else if (!this.#waitingSince.has(what)) this.#waitingSince.set(what, this.#parts.clock.monotonic());
  }

  /** Returns the state of the role and sets its gauges. */
  health(): Health {
    const { role, clock, patienceMs, metrics } = this.#parts;
    const now = clock.monotonic();
    const isStarting = this.#works.get(this.firstWork)!.lastDoneMs === null;
    const problems = isStarting ? [`${this.firstWork} was not done yet`] : [];
    const freeBytes = this.#parts.freeBytes?.() ?? null;
    if (freeBytes !== null && freeBytes < MIN_FREE_BYTES)
      problems.push(`the disk of the data folder is full: ${Math.round(freeBytes / 2 ** 20)} MiB are free`);
    const works: Health["works"] = {};
    const unhealthyWorks = new Set<string>();
    for (const [name, { work, failureCount: times, error }] of this.#failing) {
      if (times < MAX_FAILURES) continue;
      unhealthyWorks.add(work);
      problems.push(`${name} failed ${times} times in succession: ${error}`);
    }
    for (const [name, { requiredAtMs, lastDoneMs, lastDoneAt, lastFailure }] of this.#works) {
      works[name] = {
        last_done: lastDoneAt && rfc3339(lastDoneAt),
        last_failed: lastFailure && rfc3339(lastFailure.at),
        error: lastFailure?.error ?? null,
      };
      const undoneMs = now - Math.max(requiredAtMs, lastDoneMs ?? requiredAtMs);
      if (undoneMs > patienceMs) unhealthyWorks.add(name);
      if (undoneMs > patienceMs && !(isStarting && name === this.firstWork)) {
        problems.push(`${name} was not done for ${Math.round(undoneMs / 1000)} s`);
      }
      metrics.gauge(OK_GAUGE, unhealthyWorks.has(name) ? 0 : 1, { role, work: name });
    }
    for (const [what, since] of this.#waitingSince) {
      if (now - since > patienceMs) problems.push(`${what} is waited for since ${Math.round((now - since) / 1000)} s`);
    }
    const ok = problems.length === 0;
    metrics.gauge(OK_GAUGE, ok ? 1 : 0, { role });
    const waits_for = [...this.#waitingSince.keys()];
    const state = isStarting ? "starting" : waits_for.length > 0 ? "waiting" : this.#state;
    return { ...this.#facts, ...(waits_for.length > 0 ? { waits_for } : {}), role, ok, state, problems, works };
  }

  #require(name: string): void {
    if (this.#works.has(name)) return;
    const { clock, metrics } = this.#parts;
    this.#works.set(name, { requiredAtMs: clock.monotonic(), lastDoneMs: null, lastDoneAt: null, lastFailure: null });
    metrics.gauge(LAST_DONE_GAUGE, clock.now().getTime() / 1000, { work: name });
  }
}
