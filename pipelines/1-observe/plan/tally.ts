import { type Clock, systemClock } from "../../../infra/clock.ts";
import type { Logger } from "../../../infra/telemetry.ts";

/** Calls that end within this time are logged in one line, real ms. */
const LOG_INTERVAL_MS = 60_000;

/**
 * Logs planned calls: one line for all calls that ended within a minute after the first, and no line while there are no
 * calls. A day of ten thousand probes thus makes a few hundred lines.
 */
export class CallTally {
  #counts: Record<string, number> = {};
  #pendingLine: AbortController | null = null;

  constructor(
    private readonly logger: Pick<Logger, "info">,
    private readonly clock: Pick<Clock, "sleep"> = systemClock,
  ) {}

  /** @param name result of a call: the state of a probe, or how a paid call ended */
  count(name: string): void {
    this.#counts[name] = (this.#counts[name] ?? 0) + 1;
    if (this.#pendingLine) return;
    const pendingLine = new AbortController();
    this.#pendingLine = pendingLine;
    this.clock.sleep(LOG_INTERVAL_MS, pendingLine.signal).then(
      () => this.logCounts(),
      () => undefined,
    );
  }

  /** Logs what was counted since the last line. */
  logCounts(): void {
    this.#pendingLine?.abort();
    this.#pendingLine = null;
    const calls = this.#counts;
    this.#counts = {};
    if (Object.keys(calls).length > 0) this.logger.info({ calls }, "planned calls were made");
  }
}
