/** How often another process's appends are looked for while somebody waits. */
const POLL_MS = 40;

interface Partition {
  topic: string;
  partition: number;
}

interface Waiter {
  of: Partition;
  end(error?: unknown): void;
}

/**
 * Readers that wait for a record. Appends of this process wake them at once; those of other processes are noticed by one
 * shared poll that runs only while somebody waits.
 */
export class Wakeups {
  readonly #waiting = new Set<Waiter>();
  readonly #version: () => number;
  #known: number;
  #poll: NodeJS.Timeout | undefined;

  /** @param version changes when another process writes. */
  constructor(version: () => number) {
    this.#version = version;
    this.#known = version();
  }

  /** Resolves when `of` may have grown or after `ms`; rejects when `signal` aborts or everything closes. */
  wait(of: Partition, ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = () => waiter.end(signal?.reason);
      const timer = setTimeout(() => waiter.end(), ms);
      const waiter: Waiter = {
        of,
        end: (error) => {
          if (!this.#waiting.delete(waiter)) return;
          clearTimeout(timer);
          signal?.removeEventListener("abort", abort);
          if (this.#waiting.size === 0) this.#stop();
          if (error === undefined) resolve();
          else reject(error);
        },
      };
      this.#waiting.add(waiter);
      signal?.addEventListener("abort", abort, { once: true });
      // The known version is as old as the last poll: what was written since wakes the waiter once in vain, never too late.
      this.#poll ??= setInterval(() => this.#look(), POLL_MS);
    });
  }

  /** Those who wait for one of these partitions. */
  wake(grown: readonly Partition[]): void {
    for (const waiter of [...this.#waiting]) {
      const { topic, partition } = waiter.of;
      if (grown.some((one) => one.topic === topic && one.partition === partition)) waiter.end();
    }
  }

  /** Everybody who waits gets `error`. */
  end(error: Error): void {
    for (const waiter of [...this.#waiting]) waiter.end(error);
  }

  #look(): void {
    const before = this.#known;
    try {
      this.#known = this.#version();
    } catch (error) {
      for (const waiter of [...this.#waiting]) waiter.end(error);
    }
    if (this.#known !== before) for (const waiter of [...this.#waiting]) waiter.end();
  }

  #stop(): void {
    clearInterval(this.#poll);
    this.#poll = undefined;
  }
}
