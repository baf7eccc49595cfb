/**
 * Work through `items` with at most `width` under way. After the first failure nothing new begins; it is thrown once
 * all work under way has ended, so that whoever catches it knows that nothing is still being written.
 */
export async function inLanes<T>(width: number, items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let fault: { error: unknown } | null = null;
  const lane = async () => {
    while (!fault) {
      const next = iterator.next();
      if (next.done) return;
      try {
        await work(next.value);
      } catch (error) {
        fault ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: width }, lane));
  if (fault) throw (fault as { error: unknown }).error;
}

/** Whole numbers [from, to). */
export function* range(from: number, to: number): Generator<number> {
  for (let n = from; n < to; n++) yield n;
}

/**
 * Results of `work` in the order of `items`, with at most `width` under way or waiting to be taken. Whoever stops early, or
 * catches a failure, knows that nothing is under way any more.
 */
export async function* ahead<T, R>(
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
