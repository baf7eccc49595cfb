/** The queue holds as much as it may: try later. */
export class QueueFull extends Error {
  constructor(readonly max: number) {
    super(`more than ${max} calls are waiting`);
    this.name = "QueueFull";
  }
}

interface Waiting {
  run: () => Promise<void>;
}

/**
 * Work for many hosts: one piece at a time for each, `atOnce` hosts together, and hosts take turns, so that a host with
 * ten thousand endpoints delays nobody but itself. Order within a host is the order of asking.
 */
export class HostQueue {
  /** Hosts with waiting work, the next one to be served first (a Map keeps its order). */
  readonly #waiting = new Map<string, Waiting[]>();
  readonly #busy = new Set<string>();
  #pending = 0;

  constructor(
    private readonly atOnce: number,
    private readonly max = 10_000,
  ) {
    if (atOnce < 1) throw new RangeError(`at least one host at once, not ${atOnce}`);
  }

  /** Pieces that wait or run. */
  get size(): number {
    return this.#pending;
  }

  /**
   * Resolves or rejects as `work` does.
   * @throws QueueFull at once, without running it, when too much is waiting
   */
  run<T>(host: string, work: () => Promise<T>): Promise<T> {
    if (this.#pending >= this.max) return Promise.reject(new QueueFull(this.max));
    this.#pending++;
    return new Promise<T>((resolve, reject) => {
      const run = async () => {
        try {
          resolve(await work());
        } catch (error) {
          reject(error);
        }
      };
      const line = this.#waiting.get(host);
      if (line) line.push({ run });
      else this.#waiting.set(host, [{ run }]);
      this.#next();
    });
  }

  #next(): void {
    for (const [host, line] of this.#waiting) {
      if (this.#busy.size >= this.atOnce) return;
      if (this.#busy.has(host)) continue;
      const { run } = line.shift()!;
      // To the end of the line, so that every other host is served before this one again.
      this.#waiting.delete(host);
      if (line.length > 0) this.#waiting.set(host, line);
      this.#busy.add(host);
      void run().finally(() => {
        this.#pending--;
        this.#busy.delete(host);
        this.#next();
      });
    }
  }
}
