/** A piece that was made: finished in its turn, or dropped where one before it failed. */
export interface Made {
  finish(): Promise<void>;
  drop(): Promise<void>;
}

const handled = <T>(work: Promise<T>): Promise<T> => {
  // It is awaited later; until then a failure must not count as unhandled.
  work.catch(() => {});
  return work;
};

/**
 * Pieces on their way through two steps, each step in order of arrival: while one is finished the next one is made, and
 * the caller works on one more. A failure stops what comes after it, and whoever adds next or ends the line hears of it.
 */
export class Line {
  #older: Promise<void> = Promise.resolve();
  #making: Promise<unknown> = Promise.resolve();
  #finishing: Promise<void> = Promise.resolve();

  /**
   * Begin to make a piece as soon as the one before it is made, and the one before that finished.
   * @param make gets what resolves when all earlier pieces are finished; null when there is nothing to finish
   */
  async add(make: (before: Promise<void>) => Promise<Made | null>): Promise<void> {
    await this.#making;
    await this.#older;
    const before = this.#finishing;
    const making = handled(make(before));
    this.#older = before;
    this.#making = making;
    this.#finishing = handled(finish(making, before));
  }

  /** Resolves when nothing is under way any more, also after a failure, which it then throws. */
  async end(): Promise<void> {
    for (const one of await Promise.allSettled([this.#older, this.#making, this.#finishing])) {
      if (one.status === "rejected") throw one.reason;
    }
  }
}

async function finish(making: Promise<Made | null>, before: Promise<void>): Promise<void> {
  const made = await making;
  try {
    await before;
  } catch (error) {
    await made?.drop();
    throw error;
  }
  await made?.finish();
}
