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
   * A process is overloaded after this many slow timers in succession, if together they were at least `slowInAllMs`
   * late.
   */
  slowLooks: 3,
  slowInAllMs: 1_000,
  /** A process has recovered after `steadyLooks` timers in succession that were late by less than this, ms. */
  steadyMs: 50,
  steadyLooks: 10,
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
  #slowTimers = { looks: 0, ms: 0 };
  #steadyTimers = 0;
  #isLate = false;
  #isFull = false;
  #isQueued = false;
  #socketShare: () => number = () => 0;
  #acceptWaitMs: () => number = () => 0;
  readonly #stopWatching: () => void;

  constructor(
    lag: LagWatch,
    private readonly metrics?: Pick<Metrics, "count" | "gauge">,
    private readonly random: () => number = Math.random,
  ) {
    this.#stopWatching = lag((lateMs) => this.#onTimer(lateMs));
  }

  /** Sets the source of the share of sockets in use. @param share from 0 to 1 */
  setSocketShare(share: () => number): void {
    this.#socketShare = share;
  }

  /** Sets the source of the time that a connection waits to be accepted. @param waitMs in ms */
  setAcceptWait(waitMs: () => number): void {
    this.#acceptWaitMs = waitMs;
  }

  /** Whether this process is overloaded. */
  get isBehind(): boolean {
    return this.#isLate || this.#isFull || this.#isQueued;
  }

  /** Refuses a free request while this process is overloaded. @throws Problem unavailable */
  refuseFree(operation: string): void {
    if (!this.isBehind) return;
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
      slowLooks,
      slowInAllMs,
      steadyMs,
      steadyLooks,
      fullShare,
      recoveredShare,
      longWaitMs,
      recoveredWaitMs,
    } = OVERLOAD_LIMITS;
    this.#slowTimers =
      lateMs >= slowMs ? { looks: this.#slowTimers.looks + 1, ms: this.#slowTimers.ms + lateMs } : { looks: 0, ms: 0 };
    this.#steadyTimers = lateMs < steadyMs ? this.#steadyTimers + 1 : 0;
    if (this.#slowTimers.looks >= slowLooks && this.#slowTimers.ms >= slowInAllMs) this.#isLate = true;
    else if (this.#steadyTimers >= steadyLooks) this.#isLate = false;
    this.#isFull = this.#socketShare() >= (this.#isFull ? recoveredShare : fullShare);
    this.#isQueued = this.#acceptWaitMs() >= (this.#isQueued ? recoveredWaitMs : longWaitMs);
    this.metrics?.gauge("touchstone_http_overloaded", Number(this.isBehind));
  }
}
