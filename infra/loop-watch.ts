/** How long the event loop may stand still before a time taken meanwhile is not believed, ms: what is measured over the
 * internet varies by tens, and the score of a latency is a logarithm that begins at 300. */
export const LOOP_STALL_MS = 250;
/** How often we look, ms. */
const LOOK_MS = 50;

/** What our own event loop did in some span of time. */
export interface LoopStall {
  /** It stood still for longer than {@link LOOP_STALL_MS}: a time taken in the span may hold that. */
  stoodStill: boolean;
  /** It did so right before the end: whatever ended the span may have waited for us. A deadline that passed is one. */
  atEnd: boolean;
}

/** Tells whether the event loop of this process stood still. */
export interface LoopWatch {
  /** Begins a span; what it gives back ends it, and may be called once. */
  begin(): () => LoopStall;
}

interface Span {
  /** When the last time of standing still was over; null: it never stood still. */
  until: number | null;
}

/**
 * A timer of our own that is late when the loop stood still, by our own work or because the machine gave us no
 * processor. It runs only while somebody looks.
 */
export class TimerLoopWatch implements LoopWatch {
  readonly #spans = new Set<Span>();
  #timer: NodeJS.Timeout | undefined;
  #last = 0;

  /** @param now ms of a steady counter */
  constructor(private readonly now: () => number = () => performance.now()) {}

  begin(): () => LoopStall {
    // A span that begins where the loop has stood still already did not see it.
    this.look();
    const span: Span = { until: null };
    this.#spans.add(span);
    this.#timer ??= setInterval(() => this.look(), LOOK_MS).unref();
    return () => {
      // The timer may be as late as we are.
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

  /** What the timer does. */
  look(): void {
    const now = this.now();
    if (now - this.#last > LOOP_STALL_MS + LOOK_MS) for (const span of this.#spans) span.until = now;
    this.#last = now;
  }
}

/** What `work` came to, and what the loop did meanwhile; a span whose work throws is over too. */
export async function withLoopWatch<T>(watch: LoopWatch, work: () => Promise<T>): Promise<[came: T, seen: LoopStall]> {
  const end = watch.begin();
  let came: T;
  try {
    came = await work();
  } catch (error) {
    end();
    throw error;
  }
  return [came, end()];
}

/** Calls with how late each look of ours was, ms. @returns ends it */
export type LagWatch = (see: (lateMs: number) => void) => () => void;

/** Looks at the loop of this process: a look is late by as long as the loop was busy when it was due. */
export const ownLag: LagWatch = (see) => {
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    see(Math.max(0, now - last - LOOK_MS));
    last = now;
  }, LOOK_MS).unref();
  return () => clearInterval(timer);
};

/** The loop of this process. */
export const ownLoop: LoopWatch = new TimerLoopWatch();
