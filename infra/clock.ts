/**
 * The clock. Every time that enters the record comes from here, so that a test or the demo's simulated past can move it.
 * Chain time does not: a payment's `validBefore` is held against the chain's time, which is real.
 */
export interface Clock {
  /** Current time of the record. UTC; milliseconds are what the record keeps. */
  now(): Date;
  /** Milliseconds of a steady counter, for latencies and deadlines. Never goes back, never simulated. */
  monotonic(): number;
  /** Wait `ms` of the record's time. A simulated clock jumps instead of waiting. Rejects when `signal` aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** True while record time is simulated: comparisons of our clock with a chain's are off then. */
  readonly simulated: boolean;
  /** True when `sleep` jumps instead of waiting: then nobody waits for anybody, and each host may have a clock of its own. */
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

/** Wall clock of this machine. */
export const systemClock: Clock = {
  now: () => new Date(),
  monotonic: () => performance.now(),
  sleep: realSleep,
  simulated: false,
  jumps: false,
};

/**
 * A clock that starts at `start` and runs on with real elapsed time; `sleep` and `advanceTo` jump.
 * In the demo's simulated past each host has one a day, so that hosts never wait for each other.
 */
export class SimulatedClock implements Clock {
  readonly simulated = true;
  readonly jumps = true;
  #base: number;
  #mark: number;

  constructor(start: Date) {
    this.#base = start.getTime();
    this.#mark = performance.now();
  }

  now(): Date {
    return new Date(Math.floor(this.#base + (performance.now() - this.#mark)));
  }

  monotonic(): number {
    return performance.now();
  }

  /** Jump forward to `t`; a `t` already passed is ignored, since time in the record never goes back. */
  advanceTo(t: Date): void {
    if (t.getTime() <= this.now().getTime()) return;
    this.#base = t.getTime();
    this.#mark = performance.now();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.advanceTo(new Date(this.now().getTime() + ms));
  }
}

/**
 * Runs `rate` times as fast as the real clock from `start`, a moment of the past, until it meets the present; from then on
 * it is the real clock. Weeks of the schedule can be watched in minutes, with real waits between the calls.
 */
export class PacedClock implements Clock {
  readonly jumps = false;
  readonly #start: number;
  readonly #from: number;

  /** @param rate at least 1 @param real the clock that it meets */
  constructor(
    start: Date,
    private readonly rate: number,
    private readonly real: Clock = systemClock,
  ) {
    if (!(rate >= 1)) throw new RangeError(`a pace of ${rate} never meets the present`);
    this.#start = start.getTime();
    this.#from = real.monotonic();
  }

  get simulated(): boolean {
    return this.#paced() < this.real.now().getTime();
  }

  now(): Date {
    return new Date(Math.min(this.#paced(), this.real.now().getTime()));
  }

  monotonic(): number {
    return this.real.monotonic();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const until = this.now().getTime() + ms;
    // A wait that begins before the present is met and ends after it takes two turns.
    for (let left = ms; left > 0; left = until - this.now().getTime()) {
      await this.real.sleep(this.simulated ? Math.max(1, left / this.rate) : left, signal);
    }
    signal?.throwIfAborted();
  }

  #paced(): number {
    return Math.floor(this.#start + (this.real.monotonic() - this.#from) * this.rate);
  }
}

/** A clock that stands still until told otherwise: for tests. */
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

/** A clock that hands over to another one: the demo simulates its past, then goes on in real time. */
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
