/**
 * The source of every time that enters the record, so that tests and the demo's simulated past can control it. Chain time
 * is real and does not come from here: a payment's `validBefore` is compared with the chain's time.
 */
export interface Clock {
  /** Returns the current time of the record, to the millisecond. */
  now(): Date;
  /** Returns the milliseconds of a steady counter, for latencies and deadlines. Never goes back and is never simulated. */
  monotonic(): number;
  /** Waits `ms` of the record's time. A clock that jumps advances instead of waiting. Rejects when `signal` aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** True while record time is simulated; it then cannot be compared with a chain's time. */
  readonly simulated: boolean;
  /** True when `sleep` jumps instead of waiting; each host may then have a clock of its own. */
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

  /** Jumps forward to `t`. A `t` in the past is ignored, since time in the record never goes back. */
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
 * A clock that starts at `start` in the past and runs `rate` times as fast as the real clock until it reaches the present;
 * from then on it is the real clock. It shows weeks of the schedule in minutes, with real waits between calls.
 */
export class PacedClock implements Clock {
  readonly jumps = false;
  readonly #start: number;
  readonly #from: number;

  /** @param rate at least 1 @param real the clock that it catches up with @throws RangeError for a rate below 1 */
  constructor(
    start: Date,
    private readonly rate: number,
    private readonly real: Clock = systemClock,
  ) {
    if (!(rate >= 1)) throw new RangeError(`the rate of a paced clock must be at least 1, got ${rate}`);
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
    // A wait that begins before the clock reaches the present and ends after it takes two rounds.
    for (let left = ms; left > 0; left = until - this.now().getTime()) {
      await this.real.sleep(this.simulated ? Math.max(1, left / this.rate) : left, signal);
    }
    signal?.throwIfAborted();
  }

  #paced(): number {
    return Math.floor(this.#start + (this.real.monotonic() - this.#from) * this.rate);
  }
}

/** A clock for tests that stands still until it is set or `sleep` advances it. */
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

/** A clock that delegates to another one, which can be replaced: the demo goes from a simulated past to real time. */
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
