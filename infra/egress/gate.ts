/** How many fetches run at once and how many may wait, first come first served. */
export class Gate {
  #running = 0;
  readonly #waiting = new Set<() => void>();

  constructor(
    private readonly max: number,
    private readonly maxWaiting: number,
  ) {}

  /** Resolves to the function that gives the place back, or to null when the line is full or `signal` aborted. */
  async enter(signal: AbortSignal): Promise<(() => void) | null> {
    if (signal.aborted) return null;
    if (this.#running >= this.max) {
      if (this.#waiting.size >= this.maxWaiting || !(await this.#wait(signal))) return null;
    } else {
      this.#running += 1;
    }
    let held = true;
    return () => {
      if (held) this.#leave();
      held = false;
    };
  }

  /** The place is handed over by whoever leaves, so that nobody who comes later slips in between. */
  #wait(signal: AbortSignal): Promise<boolean> {
    return new Promise((resolve) => {
      const off = () => {
        this.#waiting.delete(go);
        resolve(false);
      };
      const go = () => {
        signal.removeEventListener("abort", off);
        resolve(true);
      };
      this.#waiting.add(go);
      signal.addEventListener("abort", off, { once: true });
    });
  }

  #leave(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#running -= 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
