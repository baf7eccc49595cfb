/** Hosts that asks may hold up at once. A stranger names them, and each may keep us waiting as long as we wait. */
export const ASKS_AT_ONCE = 8;

/** The pool of looks at what strangers asked for: also the queue's name for them. */
export const ASKS = "asks";
/** Sellers and catalogues whose listings are read at once. There are thousands, and some keep us waiting. */
export const INTAKE_AT_ONCE = 8;
/** The pool of reading listings beside the calls: also the queue's name for it. */
export const INTAKE = "intake";
/** The pool of looks for somebody who waits for them, of which nothing is kept (serving): a few places, by setting. */
export const LOOKS = "looks";
/** The pool of fetches for paid work of our own (serving): buyers name the addresses. */
export const WORK = "work";
/** The pool of calls that are paid for others (serving): each holds its place as long as its seller takes. */
export const VIA = "via";
/** The pool of prices that are asked for them: places of their own, so that no price waits behind calls that are held. */
export const PRICES = "prices";
/** The pool of paid calls, from the first leg on; the paid leg itself is in it by its profile. */
export const PAID = "paid";

/** Notices at once, to receivers that strangers name: as challenges, beside the places of the plan, never of them. */
export const NOTICES_AT_ONCE = 16;
/** Calls of sellers at once that are bought for others. */
export const VIA_AT_ONCE = 32;

/** Fetches for our own paid work at once, and prices of sellers: of all buyers, each by its share. */
export const WORK_AT_ONCE = 16;
export const PRICES_AT_ONCE = 16;

/**
 * Places on the way out, by pool: each has its own, so that none waits for another. Whoever fetches in {@link VIA} or
 * {@link PRICES} holds one of as many places already (serving), so a payment that is signed never waits for one here.
 */
export const POOLS = {
  [ASKS]: ASKS_AT_ONCE,
  [INTAKE]: INTAKE_AT_ONCE,
  [PAID]: 16,
  challenge: 8,
  notice: NOTICES_AT_ONCE,
  [WORK]: WORK_AT_ONCE,
  [VIA]: VIA_AT_ONCE,
  [PRICES]: PRICES_AT_ONCE,
} as const satisfies Readonly<Record<string, number>>;

/** Places of egress of a process that calls so many hosts at once: no host of the plan waits for one. */
export const placesFor = (hostsAtOnce: number, looksAtOnce: number) => ({
  maxConcurrent: Math.max(64, 2 * hostsAtOnce),
  pools: { ...POOLS, [PAID]: Math.max(POOLS[PAID], hostsAtOnce), [LOOKS]: looksAtOnce },
});

/** The queue holds as much as it may: try later. */
export class QueueFull extends Error {
  constructor(readonly max: number) {
    super(`more than ${max} calls are waiting`);
    this.name = "QueueFull";
  }
}

interface Waiting {
  run: () => Promise<void>;
  /** Name of the pool that it is put aside in, or "". */
  aside: string;
}

/**
 * Work for many hosts: one piece at a time for each, `atOnce` hosts together, and hosts take turns, so that a host with
 * ten thousand endpoints delays nobody but itself. Order within a host is the order of asking. Work that is put aside
 * has a number of its own: however long its hosts take, other hosts' work does not wait for it.
 */
export class HostQueue {
  /** Hosts with waiting work, the next one to be served first (a Map keeps its order). */
  readonly #waiting = new Map<string, Waiting[]>();
  readonly #busy = new Set<string>();
  /** Pieces that run, by pool. */
  readonly #running = new Map<string, number>();
  readonly #atOnce: ReadonlyMap<string, number>;
  #pending = 0;

  /** @param asides names of work apart, and how many hosts may be busy with each at once */
  constructor(
    atOnce: number,
    private readonly max = 10_000,
    asides: Readonly<Record<string, number>> = {},
  ) {
    this.#atOnce = new Map([["", atOnce], ...Object.entries(asides)]);
    for (const n of this.#atOnce.values()) if (n < 1) throw new RangeError(`at least one host at once, not ${n}`);
  }

  /** Pieces that wait or run. */
  get size(): number {
    return this.#pending;
  }

  /**
   * Resolves or rejects as `work` does.
   * @throws QueueFull at once, without running it, when too much is waiting
   */
  run<T>(host: string, work: () => Promise<T>, aside = ""): Promise<T> {
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
      if (line) line.push({ run, aside });
      else this.#waiting.set(host, [{ run, aside }]);
      this.#next();
    });
  }

  readonly #hasRoom = (aside: string): boolean => (this.#running.get(aside) ?? 0) < (this.#atOnce.get(aside) ?? 0);

  #next(): void {
    const names = [...this.#atOnce.keys()];
    for (const [host, line] of this.#waiting) {
      if (!names.some(this.#hasRoom)) return;
      if (this.#busy.has(host)) continue;
      const at = line.findIndex((one) => this.#hasRoom(one.aside));
      if (at < 0) continue;
      const [{ run, aside }] = line.splice(at, 1) as [Waiting];
      // To the end of the line, so that every other host is served before this one again.
      this.#waiting.delete(host);
      if (line.length > 0) this.#waiting.set(host, line);
      this.#busy.add(host);
      this.#count(aside, 1);
      void run().finally(() => {
        this.#pending--;
        this.#busy.delete(host);
        this.#count(aside, -1);
        this.#next();
      });
    }
  }

  #count(aside: string, by: 1 | -1): void {
    this.#running.set(aside, (this.#running.get(aside) ?? 0) + by);
  }
}
