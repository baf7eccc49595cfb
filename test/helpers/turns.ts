/** Counts turns of the event loop while it is open, and what happens within one. */
export class TurnsSeen {
  #turn = 0;
  #isOpen = true;
  readonly #seen = new Map<number, number>();

  constructor() {
    const next = (): void => {
      this.#turn++;
      if (this.#isOpen) setImmediate(next);
    };
    setImmediate(next);
  }

  /** Something happens now. */
  readonly see = (): void => void this.#seen.set(this.#turn, (this.#seen.get(this.#turn) ?? 0) + 1);

  /** The same items, each of which is seen when whoever walks over them comes to it. */
  watched<T>(items: readonly T[]): T[] {
    const { see } = this;
    const copy = [...items];
    return Object.defineProperty(copy, Symbol.iterator, {
      *value() {
        for (let i = 0; i < copy.length; i++) {
          see();
          yield copy[i]!;
        }
      },
    });
  }

  /** Ends it. @returns turns that passed, how much was seen, and the most of it within one turn */
  end(): { turns: number; all: number; most: number } {
    this.#isOpen = false;
    const seen = [...this.#seen.values()];
    return { turns: this.#turn, all: seen.reduce((sum, n) => sum + n, 0), most: Math.max(0, ...seen) };
  }
}
