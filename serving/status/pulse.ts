import type { Clock } from "../../infra/clock.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { rfc3339 } from "../../pipelines/record/time.ts";
import type { Job } from "../../pipelines/roles/jobs.ts";

export type Role = "start" | "own" | "publish" | "observe" | "serve";

interface Work {
  /** Since when it is asked for, and when it ended well last; steady ms. */
  since: number;
  done: number | null;
  doneAt: Date | null;
  failed: { at: Date; error: string } | null;
}

/** What `/health` says, as JSON. */
export interface Health {
  role: Role;
  ok: boolean;
  /** `starting` before the first work was done; else `working`, or what the role itself says. */
  state: string;
  /** Why not, in words; empty when all is well. */
  problems: string[];
  works: Record<string, { last_done: string | null; last_failed: string | null; error: string | null }>;
  /** What else the role knows of itself: partitions, lag, size of the tree. */
  [fact: string]: unknown;
}

export interface PulseParts {
  role: Role;
  clock: Pick<Clock, "now" | "monotonic">;
  metrics: Metrics;
  /** Bytes that may still be written for the data folder; null where that cannot be told. */
  freeBytes?: () => number | null;
  /** How long a work may go without a good end before the role counts as not doing it, ms. */
  patienceMs: number;
}

/** Below it a log, a lake or a store soon fails to write: the lake's journal alone grows to 64 MiB. */
const LEAST_FREE = 64 * 2 ** 20;

/** What failed as often as this, time after time, is not done, however young its last good end is. */
const FAILURES = 3;

/** Something that failed and has not ended well since. */
interface Failing {
  work: string;
  times: number;
  error: string;
}

/** Of the works that are asked for alone: an alert goes by it, and jobs of an hour or a day are late by design. */
const LAST_DONE = "touchstone_work_last_done_seconds";
const OK = "touchstone_role_ok";

/**
 * Whether a role does its work, told by when each of its works ended well last. Counted by the steady clock; what is
 * shown are moments of the other one. A work that was never done makes the role `starting`, which is no health.
 * Errors are shown by their names alone: messages may hold addresses with keys in them, and the log has them.
 */
export class Pulse {
  readonly #parts: PulseParts;
  readonly #works = new Map<string, Work>();
  /** Of all that is run, asked for or not, what failed last. */
  readonly #failing = new Map<string, Failing>();
  #facts: Record<string, unknown> = {};
  #state = "working";
  readonly #blocked = new Map<string, number>();

  /** @param first the work without whose first good end the role is starting */
  constructor(
    parts: PulseParts,
    private readonly first: string,
  ) {
    this.#parts = parts;
    this.#needed(first);
  }

  /** The works that are asked for from now on, beside the first one; of those that are new patience begins now. */
  needs(...names: string[]): void {
    const wanted = new Set([this.first, ...names]);
    for (const name of this.#works.keys()) {
      if (wanted.has(name)) continue;
      this.#works.delete(name);
      this.#parts.metrics.forget(LAST_DONE, { work: name });
      this.#parts.metrics.forget(OK, { role: this.#parts.role, work: name });
    }
    for (const name of wanted) this.#needed(name);
  }

  /**
   * Runs something and remembers how it ended. What is not asked for is run all the same, and counts only while it fails
   * time after time.
   * @param of the work that it is a part of: that fails with it, and is not done by its good end
   */
  async during<T>(name: string, run: () => Promise<T>, of = name): Promise<T> {
    try {
      const result = await run();
      this.done(name);
      return result;
    } catch (error) {
      this.failed(name, error, of);
      throw error;
    }
  }

  /** It ended well now. */
  done(name: string): void {
    const { clock, metrics } = this.#parts;
    this.#failing.delete(name);
    const known = this.#works.get(name);
    if (!known) return;
    Object.assign(known, { done: clock.monotonic(), doneAt: clock.now(), failed: null });
    metrics.gauge(LAST_DONE, clock.now().getTime() / 1000, { work: name });
  }

  /** It failed now. @param of see {@link during} */
  failed(name: string, cause: unknown, of = name): void {
    const error = cause instanceof Error ? cause.name : "Error";
    this.#failing.set(name, { work: of, times: (this.#failing.get(name)?.times ?? 0) + 1, error });
    const known = this.#works.get(of);
    if (known) known.failed = { at: this.#parts.clock.now(), error };
  }

  /**
   * The same jobs, watched: which of them count is said by `needs`.
   * @param workOf the work that a job is a part of (default: each is a work of its own name)
   */
  watch<Parts>(jobs: readonly Job<Parts>[], workOf: (job: string) => string = (job) => job): Job<Parts>[] {
    return jobs.map((job) => ({
      ...job,
      run: (parts: Parts) => this.during(job.name, () => job.run(parts), workOf(job.name)),
    }));
  }

  /** What the role knows of itself; each fact stands until it is said anew. */
  tell(facts: Record<string, unknown>): void {
    Object.assign(this.#facts, facts);
  }

  /** `working`, or another word for what is as well: `waiting`, `spare`. */
  is(state: string): void {
    this.#state = state;
  }

  /** Nothing is done because this is waited for, or is no more. Longer than patience it is no health. */
  waits(what: string, waiting: boolean): void {
    if (!waiting) this.#blocked.delete(what);
    else if (!this.#blocked.has(what)) this.#blocked.set(what, this.#parts.clock.monotonic());
  }

  health(): Health {
    const { role, clock, patienceMs, metrics } = this.#parts;
    const now = clock.monotonic();
    const starting = this.#works.get(this.first)!.done === null;
    const problems = starting ? [`${this.first} was not done yet`] : [];
    const free = this.#parts.freeBytes?.() ?? null;
    if (free !== null && free < LEAST_FREE)
      problems.push(`the disk of the data folder is full: ${Math.round(free / 2 ** 20)} MiB are free`);
    const works: Health["works"] = {};
    const sick = new Set<string>();
    for (const [name, { work, times, error }] of this.#failing) {
      if (times < FAILURES) continue;
      sick.add(work);
      problems.push(`${name} failed ${times} times in succession: ${error}`);
    }
    for (const [name, { since, done, doneAt, failed }] of this.#works) {
      works[name] = {
        last_done: doneAt && rfc3339(doneAt),
        last_failed: failed && rfc3339(failed.at),
        error: failed?.error ?? null,
      };
      const still = now - Math.max(since, done ?? since);
      if (still > patienceMs) sick.add(name);
      if (still > patienceMs && !(starting && name === this.first)) {
        problems.push(`${name} was not done for ${Math.round(still / 1000)} s`);
      }
      metrics.gauge(OK, sick.has(name) ? 0 : 1, { role, work: name });
    }
    for (const [what, since] of this.#blocked) {
      if (now - since > patienceMs) problems.push(`${what} is waited for since ${Math.round((now - since) / 1000)} s`);
    }
    const ok = problems.length === 0;
    metrics.gauge(OK, ok ? 1 : 0, { role });
    const waits_for = [...this.#blocked.keys()];
    const state = starting ? "starting" : waits_for.length > 0 ? "waiting" : this.#state;
    return { ...this.#facts, ...(waits_for.length > 0 ? { waits_for } : {}), role, ok, state, problems, works };
  }

  #needed(name: string): void {
    if (this.#works.has(name)) return;
    const { clock, metrics } = this.#parts;
    this.#works.set(name, { since: clock.monotonic(), done: null, doneAt: null, failed: null });
    metrics.gauge(LAST_DONE, clock.now().getTime() / 1000, { work: name });
  }
}
