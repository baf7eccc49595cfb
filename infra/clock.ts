/**
 * Source of all times in the record (the data that this service observes and publishes). Tests and the demo, which
 * simulates past days, control these times with a Clock of their own. The time of a blockchain is not read from a
 * Clock: it is always real, and contracts compare a payment's `validBefore` with it.
 */
export interface Clock {
  /** Returns the current time for the record (record time), to the millisecond. */
  now(): Date;
  /**
   * Returns the milliseconds of a monotonic counter, for latencies and deadlines. The counter never decreases and is
   * never simulated.
   */
  monotonic(): number;
  /**
   * Waits for `ms` of record time; a clock that jumps advances its time by `ms` and does not wait. Rejects when
   * `signal` aborts.
   */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /**
   * True while record time is simulated. Then it cannot be compared with a chain's time. False while it is real time.
   */
  readonly simulated: boolean;
  /**
   * True when `sleep` sets the clock forward at once instead of waiting. The observer then uses a separate clock for
   * each host that it calls. False when `sleep` waits.
   */
  readonly jumps: boolean;
}

const realSleep = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const done = () => {
      signal?.removeEventListener("abort", stop);
      resolve();
    };
    const timer = setTimeout(done, Math.max(0, ms));
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", stop, { once: true });
  });

/** The real clock of this machine. */
export const systemClock: Clock = {
  now: () => new Date(),
  monotonic: () => performance.now(),
  sleep: realSleep,
  simulated: false,
  jumps: false,
};

/**
 * A clock that starts at `start` and then runs as fast as the real clock. `sleep` and `advanceTo` jump forward. For
 * each simulated day the demo creates one such clock for each host that it calls, so that calls to one host do not
 * advance the time of calls to another.
 */
export class SimulatedClock implements Clock {
  readonly simulated = true;
  readonly jumps = true;
  #timeAtSet: number;
  #monotonicAtSet: number;

  constructor(start: Date) {
    this.#timeAtSet = start.getTime();
    this.#monotonicAtSet = performance.now();
  }

  now(): Date {
    return new Date(Math.floor(this.#timeAtSet + (performance.now() - this.#monotonicAtSet)));
  }

  monotonic(): number {
    return performance.now();
  }

  /** Jumps forward to `t`. Does nothing when `t` is in the past, since record time never goes back. */
  advanceTo(t: Date): void {
    if (t.getTime() <= this.now().getTime()) return;
    this.#timeAtSet = t.getTime();
    this.#monotonicAtSet = performance.now();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.advanceTo(new Date(this.now().getTime() + ms));
  }
}

/**
 * A clock that starts at `start` in the past and runs `rate` times as fast as the real clock until it reaches the
 * present. From then on it equals the real clock. With it, weeks of scheduled calls run in minutes, with real but
 * shorter waits between the calls.
 */
export class PacedClock implements Clock {
  readonly jumps = false;
  readonly #start: number;
  readonly #startedAt: number;

  /**
   * @param rate at least 1
   * @param real the clock that this clock catches up with and then follows
   * @throws RangeError for a rate below 1
   */
  constructor(
    start: Date,
    private readonly rate: number,
    private readonly real: Clock = systemClock,
  ) {
    if (!(rate >= 1)) throw new RangeError(`the rate of a paced clock must be at least 1, got ${rate}`);
    this.#start = start.getTime();
    this.#startedAt = real.monotonic();
  }

  get simulated(): boolean {
    return this.#pacedMs() < this.real.now().getTime();
  }

  now(): Date {
    return new Date(Math.min(this.#pacedMs(), this.real.now().getTime()));
  }

  monotonic(): number {
    return this.real.monotonic();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const untilMs = this.now().getTime() + ms;
    // A wait that begins before the clock reaches the present and ends after that is split into two rounds of the loop.
    for (let leftMs = ms; leftMs > 0; leftMs = untilMs - this.now().getTime()) {
      await this.real.sleep(this.simulated ? Math.max(1, leftMs / this.rate) : leftMs, signal);
    }
    signal?.throwIfAborted();
  }

  #pacedMs(): number {
    return Math.floor(this.#start + (this.real.monotonic() - this.#startedAt) * this.rate);
  }
}

/** A clock for tests. Its time changes only when a test sets it or `sleep` advances it. */
export class FixedClock implements Clock {
  readonly simulated = true;
  readonly jumps = true;
  #now: number;
  constructor(at: Date | string) {
    this.#now = new Date(at).getTime();
  }
  now(): Date {
    return new Date(this.#now);
  }
  monotonic(): number {
    return performance.now();
  }
  set(at: Date | string): void {
    this.#now = new Date(at).getTime();
  }
  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.#now += ms;
  }
}

/**
 * A clock that delegates to another clock, which can be replaced. The demo uses it to change from a simulated past to
 * real time.
 */
export class SwitchedClock implements Clock {
  #inner: Clock;
  constructor(inner: Clock) {
    this.#inner = inner;
  }
  use(inner: Clock): void {
    this.#inner = inner;
  }
  now(): Date {
    return this.#inner.now();
  }
  monotonic(): number {
    return this.#inner.monotonic();
  }
  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return this.#inner.sleep(ms, signal);
  }
  get simulated(): boolean {
    return this.#inner.simulated;
  }
  get jumps(): boolean {
    return this.#inner.jumps;
  }
}
