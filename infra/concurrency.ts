import { setImmediate } from "node:timers/promises";
import type { Clock } from "./clock.ts";

/**
 * Bounded concurrency. {@link forEachConcurrent} stops at the first failure. {@link forEachSettled} runs all items and
 * returns the failures. {@link mapConcurrent} yields results and throws the first failure to the consumer of the
 * results. {@link forEachYielding} runs synchronous work and bounds how long it blocks the event loop.
 */

/**
 * Runs `work` for the items in their order, at most `width` at once. After the first failure no further item is
 * started. The failure is thrown after all started work has ended, so that nothing still runs when the caller catches
 * it.
 */
export async function forEachConcurrent<T>(
  items: Iterable<T>,
  width: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const [first] = await runBounded(items, width, work, true);
  if (first) throw first.error;
}

/**
 * Runs `work` for all items, at most `width` at once. A failure does not stop the other items.
 * @returns all failures in the order in which they happened; never rejects
 */
export const forEachSettled = async <T>(
  items: Iterable<T>,
  width: number,
  work: (item: T) => Promise<unknown>,
): Promise<unknown[]> => (await runBounded(items, width, work, false)).map(({ error }) => error);

async function runBounded<T>(
  items: Iterable<T>,
  width: number,
  work: (item: T) => Promise<unknown>,
  stopAtFailure: boolean,
): Promise<{ error: unknown }[]> {
  const iterator = items[Symbol.iterator]();
  const failures: { error: unknown }[] = [];
  const worker = async (): Promise<void> => {
    while (!stopAtFailure || failures.length === 0) {
      const next = iterator.next();
      if (next.done) return;
      try {
        await work(next.value);
      } catch (error) {
        failures.push({ error });
      }
    }
  };
  await Promise.all(Array.from({ length: width }, worker));
  return failures;
}

/**
 * Yields the results of `work` in the order of `items`. At most `width` results are being computed or wait for the
 * consumer. When the consumer stops early or a failure is thrown, the generator first waits until all started work has
 * ended.
 */
export async function* mapConcurrent<T, R>(
  width: number,
  items: Iterable<T>,
  work: (item: T) => Promise<R>,
): AsyncGenerator<R> {
  const iterator = items[Symbol.iterator]();
  const started: Promise<R>[] = [];
  const startNext = () => {
    const next = iterator.next();
    if (next.done) return;
    const running = work(next.value);
    // A failure is thrown when the consumer reaches its item. Until then Node must not report it as an unhandled
    // rejection.
    running.catch(() => undefined);
    started.push(running);
  };
  try {
    for (let i = 0; i < width; i++) startNext();
    while (started.length > 0) {
      const result = await started[0]!;
      started.shift();
      startNext();
      yield result;
    }
  } finally {
    await Promise.allSettled(started);
  }
}

/** Yields the whole numbers [from, to). */
export function* range(from: number, to: number): Generator<number> {
  for (let n = from; n < to; n++) yield n;
}

/**
 * Number of iterations of the event loop for which one yield waits. libuv accepts one connection per iteration (since
 * 1.45: libuv/libuv#3696). If a yield gave only one iteration, each connection would wait for as many pieces of work as
 * connections are queued before it, and on a busy machine the accept queue would fill up. An iteration with nothing to
 * do costs about 3 us.
 */
const ITERATIONS_PER_YIELD = 8;

async function yieldToLoop(): Promise<void> {
  for (let n = 0; n < ITERATIONS_PER_YIELD; n++) await setImmediate();
}

/**
 * A function by which a caller announces an amount of work (default 1). Its promise resolves when the caller may do the
 * work.
 */
export type YieldToOthers = (work?: number) => Promise<unknown>;

/**
 * Creates a function that yields to the event loop each time its callers together have announced `maxWork` units of
 * work. The same event loop answers clients and measures sellers' latency, so work that grows with the recorded data
 * must not block the loop for more than a few milliseconds.
 */
export function createYielder(maxWork = 1): YieldToOthers {
  let leftWork = 0;
  let lastYield: Promise<unknown> = Promise.resolve();
  return (work = 1) => {
    if (leftWork <= 0) {
      leftWork = maxWork;
      lastYield = lastYield.then(yieldToLoop);
    }
    leftWork -= work;
    return lastYield;
  };
}

/**
 * Runs synchronous `work` for the items in order, and yields to the event loop before each group of `groupSize` items.
 * @param giveTurn called before each group; it may be shared by several callers ({@link createYielder})
 */
export async function forEachYielding<T>(
  items: Iterable<T>,
  groupSize: number,
  work: (item: T) => unknown,
  giveTurn: YieldToOthers = createYielder(),
): Promise<void> {
  let doneCount = 0;
  for (const item of items) {
    if (doneCount++ % groupSize === 0) await giveTurn();
    work(item);
  }
}

/**
 * Runs a generator to its end, and yields to the event loop before each group of `groupSize` steps.
 * @returns the generator's return value
 */
export async function runYielding<T>(steps: Generator<unknown, T>, groupSize: number): Promise<T> {
  for (let doneCount = 0; ; doneCount++) {
    if (doneCount % groupSize === 0) await yieldToLoop();
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/**
 * Returns a sorted copy, by a stable merge sort. The generator pauses after each `pieceSize` items, so that its
 * caller can yield to the event loop while a million items are sorted; see {@link runYielding}.
 */
export function* sortInSteps<T>(
  items: Iterable<T>,
  compare: (a: T, b: T) => number,
  pieceSize = 64,
): Generator<undefined, T[]> {
  let sorted: T[] = [];
  let piece: T[] = [];
  for (const item of items) {
    if (piece.push(item) < pieceSize) continue;
    sorted = appendItems(sorted, piece.sort(compare));
    piece = [];
    yield;
  }
  sorted = appendItems(sorted, piece.sort(compare));
  let placedCount = 0;
  for (let width = pieceSize; width < sorted.length; width *= 2) {
    const merged: T[] = [];
    for (let low = 0; low < sorted.length; low += 2 * width) {
      const [middle, high] = [Math.min(low + width, sorted.length), Math.min(low + 2 * width, sorted.length)];
      for (let [a, b] = [low, middle]; a < middle || b < high; ) {
        const isLeft = a < middle && (b === high || compare(sorted[a]!, sorted[b]!) <= 0);
        merged.push(isLeft ? sorted[a++]! : sorted[b++]!);
        if (++placedCount % pieceSize === 0) yield;
      }
    }
    sorted = merged;
  }
  return sorted;
}

function appendItems<T>(target: T[], items: readonly T[]): T[] {
  for (const item of items) target.push(item);
  return target;
}

/**
 * Runs `work` repeatedly, with a pause of `everyMs` after each run.
 * @param work must not reject
 * @returns `first`, the promise of the first run, and `stop`, which ends the loop and resolves when the current run has
 * ended
 */
export function repeatWork(work: () => Promise<void>, everyMs: number, clock: Pick<Clock, "sleep">) {
  const stopController = new AbortController();
  const first = work();
  const loop = (async () => {
    for (await first; !stopController.signal.aborted; ) {
      await clock.sleep(everyMs, stopController.signal).catch(() => {});
      if (!stopController.signal.aborted) await work();
    }
  })();
  const stop = (): Promise<void> => {
    stopController.abort(new Error("stopped"));
    return loop;
  };
  return { first, stop };
}

/** A first-come-first-served semaphore with `width` holders at once; 1 is a mutex. */
export class Semaphore {
  readonly width: number;
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(width: number) {
    this.width = width;
    this.#free = width;
  }

  /** Waits for a place. Resolves with the function that releases it; further calls of that function have no effect. */
  async take(): Promise<() => void> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resume) => this.#waiting.push(resume));
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    };
  }
}
