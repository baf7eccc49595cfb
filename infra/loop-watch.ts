/**
 * Longest stall of the event loop after which a time measured meanwhile is still used, ms. Latencies over the internet vary
 * by tens of ms, and their score is logarithmic from 300 ms on.
 */
export const LOOP_STALL_MS = 250;
/** Interval of the timer, ms. */
const LOOK_MS = 50;

/** Whether the event loop of this process stalled during a span. */
export interface LoopStall {
  /** It stalled for longer than {@link LOOP_STALL_MS}, so times measured in the span may be too long. */
  stoodStill: boolean;
  /** It stalled right before the end, so the event that ended the span (such as a timeout) may be due to the stall. */
  atEnd: boolean;
}

/** Detects stalls of the event loop of this process. */
export interface LoopWatch {
  /** Begins a span. The returned function ends it and may be called once. */
  begin(): () => LoopStall;
}

interface Span {
  /** When the last stall ended, ms of the steady counter; null when there was none. */
  until: number | null;
}

/**
 * Detects stalls by a timer that fires late when the loop was busy or the machine gave the process no processor. The timer
 * runs only while a span is open.
 */
export class TimerLoopWatch implements LoopWatch {
  readonly #spans = new Set<Span>();
  #timer: NodeJS.Timeout | undefined;
  #last = 0;

  /** @param now ms of a steady counter */
  constructor(private readonly now: () => number = () => performance.now()) {}

  begin(): () => LoopStall {
    // A stall that ended before the span must not be counted in it.
    this.look();
    const span: Span = { until: null };
    this.#spans.add(span);
    this.#timer ??= setInterval(() => this.look(), LOOK_MS).unref();
    return () => {
      // The timer may not have fired yet after a stall.
      this.look();
      this.#spans.delete(span);
      if (this.#spans.size === 0) {
        clearInterval(this.#timer);
        this.#timer = undefined;
      }
      const stoodStill = span.until !== null;
      return { stoodStill, atEnd: stoodStill && this.now() - span.until! < LOOP_STALL_MS };
    };
  }

  /** Checks for a stall since the last check. The timer calls it. */
  look(): void {
    const now = this.now();
    if (now - this.#last > LOOP_STALL_MS + LOOK_MS) for (const span of this.#spans) span.until = now;
    this.#last = now;
  }
}

/** Runs `work` in a span. Returns its result and whether the loop stalled; the span also ends when `work` throws. */
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

/** Calls back at each interval with how late its timer was, ms. @returns a function that ends it */
export type LagWatch = (see: (lateMs: number) => void) => () => void;

/** Reports how late a timer of this process fires, which is how long its event loop was busy. */
export const ownLag: LagWatch = (see) => {
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    see(Math.max(0, now - last - LOOK_MS));
    last = now;
  }, LOOK_MS).unref();
  return () => clearInterval(timer);
};

/** The stall detector of this process. */
export const ownLoop: LoopWatch = new TimerLoopWatch();
