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
