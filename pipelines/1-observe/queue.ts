import { Failure } from "../../infra/errors.ts";

/**
 * Hosts that asks may keep busy at once. Strangers name these hosts, and each can keep us waiting up to the deadline.
 */
export const ASKS_AT_ONCE = 8;

/**
 * Looks at what strangers asked for. This and the names below name a pool of egress and a kind of work in the queue.
 */
export const ASKS = "asks";
/** Sellers and catalogues whose listings are read at once: there are thousands, and some keep us waiting. */
export const INTAKE_AT_ONCE = 8;
/** Reading of listings. */
export const INTAKE = "intake";
/** Looks for a client that waits for the answer, which is not recorded (serving). The settings give their number. */
export const LOOKS = "looks";
/** Fetches for paid work of our own (serving): buyers name the addresses. */
export const WORK = "work";
/** Calls that are paid for others (serving): each holds its place until its seller has answered. */
export const VIA = "via";
/** Requests for the prices of such calls: they have their own places, so that none waits behind a slow call. */
export const PRICES = "prices";
/** Planned paid calls. The paid request itself is in this pool by its profile. */
export const PAID = "paid";

/** Notices sent at once to receivers that strangers name. */

/** Notices at once, to receivers that strangers name: as challenges, beside the places of the plan, never of them. */
export const NOTICES_AT_ONCE = 16;
/** Calls of sellers at once that are bought for others. */
export const VIA_AT_ONCE = 32;

/** Fetches for our own paid work at once, and requests for sellers' prices, of all buyers together. */
export const WORK_AT_ONCE = 16;
export const PRICES_AT_ONCE = 16;

/**
 * Places of egress by pool. Each pool has its own, so that none waits for another. A caller in {@link VIA} or
 * {@link PRICES} first takes one of as many places in serving, so a signed payment never waits for a place here.
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

/** Places of egress for a process that calls `hostsAtOnce` hosts at once: enough that no planned call waits for one. */
export const placesFor = (hostsAtOnce: number, looksAtOnce: number) => ({
  maxConcurrent: Math.max(64, 2 * hostsAtOnce),
  pools: { ...POOLS, [PAID]: Math.max(POOLS[PAID], hostsAtOnce), [LOOKS]: looksAtOnce },
});

interface Waiting {
  run: () => Promise<void>;
  /** Kind of work, one of `asides`, or "" for planned calls. */
  aside: string;
}

/**
 * Work for many hosts: one piece at a time for each host, `atOnce` hosts together. Hosts take turns, so a host with ten
 * thousand endpoints delays only itself. Work of one host runs in the order in which it was added. Each kind of work in
 * `asides` has a number of hosts of its own, so slow hosts of one kind do not delay the work of another.
 */
export class HostQueue {
  /** Hosts with waiting work, the next one to be served first (a Map keeps its order). */
  readonly #waiting = new Map<string, Waiting[]>();
  readonly #busy = new Set<string>();
  /** Pieces that run, by pool. */
  readonly #running = new Map<string, number>();
  readonly #atOnce: ReadonlyMap<string, number>;
  #pending = 0;

  /** @param asides kinds of work beside the planned calls, and how many hosts may be busy with each at once */
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
   * @throws Failure at once, without running it, when too much is waiting: try later
   */
  run<T>(host: string, work: () => Promise<T>, aside = ""): Promise<T> {
    if (this.#pending >= this.max)
      return Promise.reject(new Failure("failed", `more than ${this.max} calls are waiting`, { retriable: true }));
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
      // The host goes to the end of the line: every other host is served before it is served again.
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
