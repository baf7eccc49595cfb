/** What one pool of fetches may have of the places: at most so many, and so many that no other pool is given. */
export interface Pool {
  most?: number;
  kept?: number;
}

interface Waiting {
  pool: string;
  go: () => void;
}

/**
 * How many fetches run at once and how many of each pool may wait, first come first served among those that have room.
 * A pool that nothing is said of takes what the others do not keep.
 */
export class Gate {
  readonly #pools: ReadonlyMap<string, Pool>;
  readonly #running = new Map<string, number>();
  readonly #waiting = new Set<Waiting>();

  /** @throws RangeError when a pool could never enter */
  constructor(
    private readonly max: number,
    private readonly maxWaiting: number,
    pools: Readonly<Record<string, Pool>> = {},
  ) {
    this.#pools = new Map(Object.entries(pools));
    const kept = [...this.#pools.values()].reduce((sum, pool) => sum + (pool.kept ?? 0), 0);
    if (kept >= max) throw new RangeError(`${kept} of ${max} places are kept: none is left for anybody else`);
    for (const [name, { most = max }] of this.#pools) {
      if (most < 1) throw new RangeError(`pool ${name}: at most ${most} places`);
    }
  }

  /** Resolves to the function that gives the place back, or to null when the pool's line is full or `signal` aborted. */
  async enter(signal: AbortSignal, pool: string): Promise<(() => void) | null> {
    if (signal.aborted) return null;
    if (this.#hasRoom(pool)) this.#take(pool);
    else if (this.#linesUp(pool) >= this.maxWaiting || !(await this.#wait(signal, pool))) return null;
    let held = true;
    return () => {
      if (held) this.#leave(pool);
      held = false;
    };
  }

  #hasRoom(pool: string): boolean {
    const most = this.#pools.get(pool)?.most ?? this.max;
    if (this.#in(pool) >= most) return false;
    let taken = 0;
    for (const count of this.#running.values()) taken += count;
    for (const [name, { kept = 0 }] of this.#pools) {
      if (name !== pool) taken += Math.max(0, kept - this.#in(name));
    }
    return taken < this.max;
  }

  #in(pool: string): number {
    return this.#running.get(pool) ?? 0;
  }

  #take(pool: string): void {
    this.#running.set(pool, this.#in(pool) + 1);
  }

  #linesUp(pool: string): number {
    let count = 0;
    for (const one of this.#waiting) if (one.pool === pool) count++;
    return count;
  }

  /** A fetch that ends hands its place to the one that waited longest, so that no later one gets in between. */
  #wait(signal: AbortSignal, pool: string): Promise<boolean> {
    return new Promise((resolve) => {
      const off = () => {
        this.#waiting.delete(one);
        resolve(false);
      };
      const go = () => {
        signal.removeEventListener("abort", off);
        resolve(true);
      };
      const one = { pool, go };
      this.#waiting.add(one);
      signal.addEventListener("abort", off, { once: true });
    });
  }

  #leave(pool: string): void {
    this.#running.set(pool, this.#in(pool) - 1);
    for (const one of this.#waiting) {
      if (!this.#hasRoom(one.pool)) continue;
      this.#waiting.delete(one);
      this.#take(one.pool);
      one.go();
    }
  }
}
