/** Who waits for a turn, first come first served. `width` holders at once: 1 is a mutex. */
export class Turns {
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
