/**
 * The clock seam. Every time that enters the record comes from here, so that a test or the lapsed demo can move it.
 * Chain time is not behind this seam: a payment's `validBefore` is judged by a chain, which keeps real time.
 */
export interface Clock {
  /** Current time of the record. UTC; milliseconds are what the record keeps. */
  now(): Date;
  /** Milliseconds of a steady counter, for latencies and deadlines. Never goes back, never lapsed. */
  monotonic(): number;
  /** Wait `ms` of the record's time. A lapsed clock jumps instead of waiting. Rejects when `signal` aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** True while record time is made up (lapsed): comparisons of our clock with a chain's are off then. */
  readonly lapsed: boolean;
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
  lapsed: false,
};

/**
 * A clock that starts at `start` and runs on with real elapsed time; `sleep` and `advanceTo` jump.
 * One lane of the lapsed demo (one host, one day) holds one, so lanes never wait for each other.
 */
export class LapsedClock implements Clock {
  readonly lapsed = true;
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

/** A clock that stands still until told otherwise: for tests. */
export class FixedClock implements Clock {
  readonly lapsed = true;
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

/** A clock that hands over to another one: the demo lapses its past, then goes on in real time. */
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
  get lapsed(): boolean {
    return this.#inner.lapsed;
  }
}
