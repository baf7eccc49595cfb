import type { LagWatch } from "../../infra/loop-watch.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { Problem } from "./problem.ts";

/**
 * Thresholds at which a process becomes overloaded, and lower ones at which it recovers, so that it does not
 * alternate.
 */
export const OVERLOAD_LIMITS = {
  /** A timer that fires later than this counts as slow, ms. */
  slowMs: 200,
  /**
   * A process is overloaded after this many slow timers in succession, if together they were at least `minTotalLateMs`
   * late.
   */
  minSlowTimers: 3,
  minTotalLateMs: 1_000,
  /** A process has recovered after `minSteadyTimers` timers in succession that were late by less than this, ms. */
  steadyMs: 50,
  minSteadyTimers: 10,
  /** Share of sockets in use at which a process is overloaded, and below which it has recovered. */
  fullShare: 0.9,
  recoveredShare: 0.75,
  /**
   * Time that a connection waits to be accepted, ms, at which a process is overloaded, and below which it has
   * recovered.
   */
  longWaitMs: 2_000,
  recoveredWaitMs: 200,
} as const;

/** Range from which Retry-After is drawn, seconds. It is random, so that refused clients do not return all at once. */
const RETRY_S = { least: 2, most: 8 };

/**
 * Detects overload: the event loop is late repeatedly, nearly all sockets are in use, or connections wait long to be
 * accepted. Free requests are then refused before any work is done for them, which leaves the capacity to paid calls
 * and to requests for their orders.
 */
export class Overload {
  #slowTimers = { count: 0, totalLateMs: 0 };
  #steadyTimerCount = 0;
  /** True from several slow timers in succession until several steady ones. */
  #isLate = false;
  /** True while nearly all sockets are in use. */
  #isFull = false;
  /** True while connections wait long to be accepted. */
  #isQueued = false;
  #getSocketShare: () => number = () => 0;
  #getAcceptWaitMs: () => number = () => 0;
  readonly #stopWatching: () => void;

  constructor(
    lag: LagWatch,
    private readonly metrics?: Pick<Metrics, "count" | "gauge">,
    private readonly random: () => number = Math.random,
  ) {
    this.#stopWatching = lag((lateMs) => this.#onTimer(lateMs));
  }

  /** Sets the source of the share of sockets in use. @param getShare returns the share, from 0 to 1 */
  setSocketShare(getShare: () => number): void {
    this.#getSocketShare = getShare;
  }

  /** Sets the source of the time that a connection waits to be accepted. @param getWaitMs returns the time, ms */
  setAcceptWait(getWaitMs: () => number): void {
    this.#getAcceptWaitMs = getWaitMs;
  }

  /** True while this process is overloaded for any of the three reasons, else false. */
  get isOverloaded(): boolean {
    return this.#isLate || this.#isFull || this.#isQueued;
  }

  /** Refuses a free request while this process is overloaded. @throws Problem unavailable */
  refuseFree(operation: string): void {
    if (!this.isOverloaded) return;
    this.metrics?.count("touchstone_http_shed_total", { operation });
    const { least, most } = RETRY_S;
    const headers = { "retry-after": String(least + Math.floor(this.random() * (most - least + 1))) };
    // A socket that is kept alive would take the place of a paying client.
    if (this.#isFull) Object.assign(headers, { connection: "close" });
    throw new Problem("unavailable", "this server is overloaded: free requests have to wait", {
      headers,
    });
  }

  close(): void {
    this.#stopWatching();
  }

  #onTimer(lateMs: number): void {
    const {
      slowMs,
      minSlowTimers,
      minTotalLateMs,
      steadyMs,
      minSteadyTimers,
      fullShare,
      recoveredShare,
      longWaitMs,
      recoveredWaitMs,
    } = OVERLOAD_LIMITS;
    this.#slowTimers =
      lateMs >= slowMs
        ? { count: this.#slowTimers.count + 1, totalLateMs: this.#slowTimers.totalLateMs + lateMs }
        : { count: 0, totalLateMs: 0 };
    this.#steadyTimerCount = lateMs < steadyMs ? this.#steadyTimerCount + 1 : 0;
    if (this.#slowTimers.count >= minSlowTimers && this.#slowTimers.totalLateMs >= minTotalLateMs) this.#isLate = true;
    else if (this.#steadyTimerCount >= minSteadyTimers) this.#isLate = false;
    this.#isFull = this.#getSocketShare() >= (this.#isFull ? recoveredShare : fullShare);
    this.#isQueued = this.#getAcceptWaitMs() >= (this.#isQueued ? recoveredWaitMs : longWaitMs);
    this.metrics?.gauge("touchstone_http_overloaded", Number(this.isOverloaded));
  }
}
