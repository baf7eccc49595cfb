import { type Clock, systemClock } from "../../../infra/clock.ts";
import type { Logger } from "../../../infra/telemetry.ts";

/** Calls of so long are one line of the log, real ms. */
const PASS_MS = 60_000;

/**
 * Calls of plans as lines of the log: one for all that ended within a minute of the first, and none while nothing is
 * called, so a day of ten thousand probes is some hundred lines and a single probe is one.
 */
export class Tally {
  #calls: Record<string, number> = {};
  #waiting: AbortController | null = null;

  constructor(
    private readonly logger: Pick<Logger, "info">,
    private readonly clock: Pick<Clock, "sleep"> = systemClock,
  ) {}

  /** @param name what a call came to: the state of a probe, or how a paid call ended */
  count(name: string): void {
    this.#calls[name] = (this.#calls[name] ?? 0) + 1;
    if (this.#waiting) return;
    const waiting = new AbortController();
    this.#waiting = waiting;
    this.clock.sleep(PASS_MS, waiting.signal).then(
      () => this.tell(),
      () => undefined,
    );
  }

  /** The line of what was counted by now. */
  tell(): void {
    this.#waiting?.abort();
    this.#waiting = null;
    const calls = this.#calls;
    this.#calls = {};
    if (Object.keys(calls).length > 0) this.logger.info({ calls }, "planned calls were made");
  }
}
