/**
 * Shortest stall of the event loop, ms, that makes times unusable that were measured during the stall. Shorter stalls
 * do not matter: latencies over the internet vary by tens of ms, and the latency score is logarithmic from 300 ms on.
 */
export const LOOP_STALL_MS = 250;
/** Interval of the timer that detects stalls, ms. */
const TIMER_MS = 50;

/** Stalls of the event loop of this process during a span (a period in which something is measured). */
export interface LoopStall {
  /**
   * True if the loop stalled for longer than {@link LOOP_STALL_MS}, so that times that were measured in the span may be
   * too long. False if it did not.
   */
  stoodStill: boolean;
  /**
   * True if the loop stalled right before the end of the span, so that the stall may have caused the event that ended
   * it, such as a timeout. False if it did not stall, or stalled earlier only.
   */
  atEnd: boolean;
}

/** Detects stalls of the event loop of this process. */
export interface LoopWatch {
  /** Begins a span. The returned function ends it and may be called once. */
  begin(): () => LoopStall;
}

interface Span {
  /** When the last stall of the span ended, in ms of a monotonic counter; null if the loop did not stall. */
  stalledUntil: number | null;
}

/**
 * Detects stalls by a timer that fires late when the loop was busy or the machine gave the process no processor. The
 * timer runs only while a span is open.
 */
export class TimerLoopWatch implements LoopWatch {
  readonly #spans = new Set<Span>();
  #timer: NodeJS.Timeout | undefined;
  #lastCheckAt = 0;

  /** @param now returns ms of a monotonic counter */
  constructor(private readonly now: () => number = () => performance.now()) {}

  begin(): () => LoopStall {
    // Checks for a stall before the span begins, so that an earlier stall does not count in the span.
    this.checkForStall();
    const span: Span = { stalledUntil: null };
    this.#spans.add(span);
    this.#timer ??= setInterval(() => this.checkForStall(), TIMER_MS).unref();
    return () => {
      // After a stall the timer may not have fired yet.
      this.checkForStall();
      this.#spans.delete(span);
      if (this.#spans.size === 0) {
        clearInterval(this.#timer);
        this.#timer = undefined;
      }
      const stoodStill = span.stalledUntil !== null;
      return { stoodStill, atEnd: stoodStill && this.now() - span.stalledUntil! < LOOP_STALL_MS };
    };
  }

  /** Checks for a stall since the previous call. The timer calls it at each interval. */
  checkForStall(): void {
    const now = this.now();
    if (now - this.#lastCheckAt > LOOP_STALL_MS + TIMER_MS) for (const span of this.#spans) span.stalledUntil = now;
    this.#lastCheckAt = now;
  }
}

/**
 * Runs `work` in a span, which also ends when `work` throws.
 * @returns the result of `work`, and the stalls of the loop meanwhile
 */
export async function withLoopWatch<T>(
  watch: LoopWatch,
  work: () => Promise<T>,
): Promise<[result: T, stall: LoopStall]> {
  const end = watch.begin();
  let result: T;
  try {
    result = await work();
  } catch (error) {
    end();
    throw error;
  }
  return [result, end()];
}

/**
 * A function that calls `onLag` at each interval of a timer with the delay of the timer, ms. It returns a function that
 * stops the timer.
 */
export type LagWatch = (onLag: (lateMs: number) => void) => () => void;

/** Reports the delay of a timer of this process, which is the time for which the event loop was busy. */
export const ownLag: LagWatch = (onLag) => {
  let lastFiredAt = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    onLag(Math.max(0, now - lastFiredAt - TIMER_MS));
    lastFiredAt = now;
  }, TIMER_MS).unref();
  return () => clearInterval(timer);
};

/** The stall detector of this process's own event loop. */
export const ownLoop: LoopWatch = new TimerLoopWatch();
