import { setImmediate } from "node:timers/promises";
import type { Clock } from "./clock.ts";

/**
 * Bounded concurrency. The functions differ in what a failure does: {@link forEachConcurrent} stops at the first,
 * {@link forEachSettled} runs all items and collects the failures, {@link mapConcurrent} throws it from the generator of
 * results. {@link forEachYielding} bounds how long synchronous work blocks the event loop.
 */

/**
 * Runs `work` for the items in their order, at most `width` at once. After the first failure no further item is started.
 * The failure is thrown when all started work has ended, so that its catcher knows that nothing runs any more.
 */
export async function forEachConcurrent<T>(
  items: Iterable<T>,
  width: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const [first] = await worked(items, width, work, true);
  if (first) throw first.error;
}

/**
 * Runs `work` for all items, at most `width` at once, also after failures.
 * @returns all failures in the order in which they happened; never rejects
 */
export const forEachSettled = async <T>(
  items: Iterable<T>,
  width: number,
  work: (item: T) => Promise<unknown>,
): Promise<unknown[]> => (await worked(items, width, work, false)).map(({ error }) => error);

async function worked<T>(
  items: Iterable<T>,
  width: number,
  work: (item: T) => Promise<unknown>,
  stopsAtFailure: boolean,
): Promise<{ error: unknown }[]> {
  const iterator = items[Symbol.iterator]();
  const failures: { error: unknown }[] = [];
  const worker = async (): Promise<void> => {
    while (!stopsAtFailure || failures.length === 0) {
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
 * Yields the results of `work` in the order of `items`, with at most `width` results running or waiting to be taken. When
 * the consumer stops early, or a failure is thrown, all started work has ended.
 */
export async function* mapConcurrent<T, R>(
  width: number,
  items: Iterable<T>,
  work: (item: T) => Promise<R>,
): AsyncGenerator<R> {
  const iterator = items[Symbol.iterator]();
  const begun: Promise<R>[] = [];
  const begin = () => {
    const next = iterator.next();
    if (next.done) return;
    const running = work(next.value);
    // The failure is thrown when its turn comes; until then it must not count as unhandled.
    running.catch(() => undefined);
    begun.push(running);
  };
  try {
    for (let i = 0; i < width; i++) begin();
    while (begun.length > 0) {
      const result = await begun[0]!;
      begun.shift();
      begin();
      yield result;
    }
  } finally {
    await Promise.allSettled(begun);
  }
}

/** Yields the whole numbers [from, to). */
export function* range(from: number, to: number): Generator<number> {
  for (let n = from; n < to; n++) yield n;
}

/**
 * Iterations of the event loop per yield. libuv accepts one connection per iteration (since 1.45: libuv/libuv#3696), so
 * with one iteration a connection would wait for a piece of work for each connection before it, and on a busy machine the
 * accept queue would fill up. An iteration in which nothing waits costs about 3 us.
 */
const TURNS = 8;

async function turns(): Promise<void> {
  for (let n = 0; n < TURNS; n++) await setImmediate();
}

/** Yields to the event loop before an amount of work is done (default 1). */
export type YieldToOthers = (work?: number) => Promise<unknown>;

/**
 * Creates a function that yields to the event loop once for each `most` units of work that its callers announce, summed
 * over all callers. One event loop answers clients and measures sellers' latency, so work that grows with the record must
 * not block it for more than a few milliseconds.
 */
export function createYielder(most = 1): YieldToOthers {
  let left = 0;
  let last: Promise<unknown> = Promise.resolve();
  return (work = 1) => {
    if (left <= 0) {
      left = most;
      last = last.then(turns);
    }
    left -= work;
    return last;
  };
}

/** Runs synchronous `work` for the items in order, and yields to the event loop before each `atOnce` of them. */
export async function forEachYielding<T>(
  items: Iterable<T>,
  atOnce: number,
  work: (item: T) => unknown,
  giveTurn: YieldToOthers = createYielder(),
): Promise<void> {
  let done = 0;
  for (const item of items) {
    if (done++ % atOnce === 0) await giveTurn();
    work(item);
  }
}

/** Runs a generator to its end, and yields to the event loop before each `atOnce` steps. @returns its return value */
export async function runYielding<T>(steps: Generator<unknown, T>, atOnce: number): Promise<T> {
  for (let done = 0; ; done++) {
    if (done % atOnce === 0) await turns();
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/**
 * Returns a sorted copy by a stable merge sort that yields after each `piece` of items, so that sorting a million items
 * need not block the event loop; see {@link runYielding}.
 */
export function* sortInSteps<T>(
  items: Iterable<T>,
  compare: (a: T, b: T) => number,
  piece = 64,
): Generator<undefined, T[]> {
  let from: T[] = [];
  let run: T[] = [];
  for (const item of items) {
    if (run.push(item) < piece) continue;
    from = appended(from, run.sort(compare));
    run = [];
    yield;
  }
  from = appended(from, run.sort(compare));
  let placed = 0;
  for (let width = piece; width < from.length; width *= 2) {
    const into: T[] = [];
    for (let low = 0; low < from.length; low += 2 * width) {
      const [middle, high] = [Math.min(low + width, from.length), Math.min(low + 2 * width, from.length)];
      for (let [a, b] = [low, middle]; a < middle || b < high; ) {
        const isLeft = a < middle && (b === high || compare(from[a]!, from[b]!) <= 0);
        into.push(isLeft ? from[a++]! : from[b++]!);
        if (++placed % piece === 0) yield;
      }
    }
    from = into;
  }
  return from;
}

function appended<T>(to: T[], items: readonly T[]): T[] {
  for (const item of items) to.push(item);
  return to;
}

/**
 * Runs work repeatedly with a pause in between. @param work must not reject
 * @returns `first`, the first run, and `stop`, which ends the loop and resolves when the current run has ended
 */
export function repeating(work: () => Promise<void>, everyMs: number, clock: Pick<Clock, "sleep">) {
  const stopped = new AbortController();
  const first = work();
  const running = (async () => {
    for (await first; !stopped.signal.aborted; ) {
      await clock.sleep(everyMs, stopped.signal).catch(() => {});
      if (!stopped.signal.aborted) await work();
    }
  })();
  const stop = (): Promise<void> => {
    stopped.abort(new Error("stopped"));
    return running;
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
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    };
  }
}
