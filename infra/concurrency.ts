import { setImmediate } from "node:timers/promises";
import type { Clock } from "./clock.ts";

/**
 * Work with a bound on what is under way at once. What differs is what a failure does: {@link forEachConcurrent} stops at the
 * first, {@link forEachSettled} goes on and keeps every one, {@link mapConcurrent} hands it to whoever takes the results. And
 * {@link forEachYielding}: work with a bound on how long others wait meanwhile.
 */

/**
 * Do `work` for the items in their order, at most `width` at once. After the first failure nothing new begins; it is thrown
 * once all work under way has ended, so that whoever catches it knows that nothing is still being written.
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
 * Do `work` for all items, at most `width` at once, whatever fails: what can be done is done.
 * @returns every failure, in the order in which they came; never rejects
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
 * Results of `work` in the order of `items`, with at most `width` under way or waiting to be taken. Whoever stops early, or
 * catches a failure, knows that nothing is under way any more.
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
    // Looked at in its turn; until then a failure is not an unhandled one.
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

/** Whole numbers [from, to). */
export function* range(from: number, to: number): Generator<number> {
  for (let n = from; n < to; n++) yield n;
}

/**
 * Turns of the event loop that work gives to others at a time. In each turn libuv takes one connection from the system's
 * queue (since 1.45: libuv/libuv#3696), so with one at a time a stranger's connection waited for a piece of work for each
 * that came before it, and on a busy machine the queue filled up. A turn in which nothing waits costs some 3 us.
 */
const TURNS = 8;

async function turns(): Promise<void> {
  for (let n = 0; n < TURNS; n++) await setImmediate();
}

/** Lets others have their turn, before so much work is done (default 1). */
export type YieldToOthers = (work?: number) => Promise<unknown>;

/**
 * A turn of the event loop for each `most` of work that is announced, whoever announces it: however many wait for theirs,
 * so much of it goes on in a turn. One loop answers strangers and measures sellers, so nothing that grows with the record
 * may hold it for longer than a few milliseconds.
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

/** Does this with each item, in order, so many between two turns of others. */
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

/** Does work that stops now and then, so many pieces of it between two turns of others. @returns what it comes to */
export async function runYielding<T>(steps: Generator<unknown, T>, atOnce: number): Promise<T> {
  for (let done = 0; ; done++) {
    if (done % atOnce === 0) await turns();
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/**
 * A sorted copy, stable as `Array.sort` is, by merging: it stops after each `piece` of items that found their next place, so
 * that a million of them hold the loop no longer than a hundred.
 */
export function* sortSteps<T>(
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

/** Work, which never rejects, again and again with a pause in between. @returns its first turn, and how it is stopped */
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

/** Who waits for a turn, first come first served. `width` holders at once: 1 is a mutex. */
export class Semaphore {
  readonly width: number;
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(width: number) {
    this.width = width;
    this.#free = width;
  }

  /** Resolves with the function that gives the turn back; calling it twice gives back once. */
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
