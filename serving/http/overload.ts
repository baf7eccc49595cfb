import type { LagWatch } from "../../infra/loop-watch.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { Problem } from "./problem.ts";

/** When a process counts as behind, and when no longer: the second is well below the first, or it would flutter. */
export const OVERLOAD = {
  /** A turn of the loop that kept a look waiting for longer is a slow one, ms; a single stall is no overload. */
  slowMs: 200,
  /** So many slow looks in succession, and so long in all. */
  slowLooks: 3,
  slowInAllMs: 1_000,
  /** Looks in succession that were late by less than `steadyMs` end it: half a second. */
  steadyMs: 50,
  steadyLooks: 10,
  /** Share of the sockets that are taken. */
  fullAt: 0.9,
  roomAt: 0.75,
  /** Time that a connection waits until it is taken, ms. A stall of the loop is some hundred at most. */
  queueMs: 2_000,
  acceptMs: 200,
} as const;

/** Seconds after which a shed request may come again: drawn, or all who were sent away would come back at once. */
const RETRY_S = { least: 2, most: 8 };

/**
 * Tells whether this process is behind with its work: the event loop is late look after look, nearly all sockets are
 * taken, or connections wait long until they are. Then what is free is refused before anything is done for it, so that
 * paid calls, and whoever asks for their orders, keep what is left.
 */
export class Overload {
  #slow = { looks: 0, ms: 0 };
  #steady = 0;
  #isLate = false;
  #isFull = false;
  #isQueued = false;
  #share: () => number = () => 0;
  #waitMs: () => number = () => 0;
  readonly #stop: () => void;

  constructor(
    lag: LagWatch,
    private readonly metrics?: Pick<Metrics, "count" | "gauge">,
    private readonly random: () => number = Math.random,
  ) {
    this.#stop = lag((lateMs) => this.#look(lateMs));
  }

  /** @param share the share of its sockets that a server has given away, from 0 to 1 */
  ofSockets(share: () => number): void {
    this.#share = share;
  }

  /** @param waitMs how long a connection waits until a server takes it, ms */
  ofAcceptQueue(waitMs: () => number): void {
    this.#waitMs = waitMs;
  }

  get isBehind(): boolean {
    return this.#isLate || this.#isFull || this.#isQueued;
  }

  /** Refuses what is free while this process is behind. @throws Problem unavailable */
  refuseFree(operation: string): void {
    if (!this.isBehind) return;
    this.metrics?.count("touchstone_http_shed_total", { operation });
    const { least, most } = RETRY_S;
    const headers = { "retry-after": String(least + Math.floor(this.random() * (most - least + 1))) };
    // A socket that is kept open would hold the place of somebody who pays.
    if (this.#isFull) Object.assign(headers, { connection: "close" });
    throw new Problem("unavailable", "this server is overloaded: free requests have to wait", {
      headers,
    });
  }

  close(): void {
    this.#stop();
  }

  #look(lateMs: number): void {
    const { slowMs, slowLooks, slowInAllMs, steadyMs, steadyLooks, fullAt, roomAt, queueMs, acceptMs } = OVERLOAD;
    this.#slow = lateMs >= slowMs ? { looks: this.#slow.looks + 1, ms: this.#slow.ms + lateMs } : { looks: 0, ms: 0 };
    this.#steady = lateMs < steadyMs ? this.#steady + 1 : 0;
    if (this.#slow.looks >= slowLooks && this.#slow.ms >= slowInAllMs) this.#isLate = true;
    else if (this.#steady >= steadyLooks) this.#isLate = false;
    this.#isFull = this.#share() >= (this.#isFull ? roomAt : fullAt);
    this.#isQueued = this.#waitMs() >= (this.#isQueued ? acceptMs : queueMs);
    this.metrics?.gauge("touchstone_http_overloaded", Number(this.isBehind));
  }
}
