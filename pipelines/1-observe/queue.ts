import { Failure } from "../../infra/errors.ts";

/**
 * Largest number of hosts that are probed for asks at once. Clients choose these hosts, and each can delay its answer
 * up to the deadline.
 */
export const ASKS_AT_ONCE = 8;

/**
 * Pool for probes that clients asked for. This constant and those below each name a pool of connections in egress
 * (the module that sends all requests to strangers) and a kind of work in {@link HostQueue}.
 */
export const ASKS = "asks";
/**
 * Largest number of sellers and catalogues whose listings are read at once. There are thousands, and some answer
 * slowly.
 */
export const INTAKE_AT_ONCE = 8;
/** Pool for the reading of listings. */
export const INTAKE = "intake";
/** Pool for unrecorded probes while a client waits for the answer (serving). A setting limits their number. */
export const LIVE_PROBES = "looks";
/** Pool for the fetches that our own paid operations make (serving), from addresses that buyers name. */
export const OWN_FETCHES = "work";
/**
 * Pool for calls that buyers buy through us (serving). Each call keeps its connection until the seller has answered.
 */
export const VIA = "via";
/**
 * Pool for requests for the prices of calls in {@link VIA}. It is separate, so that no such request waits for a slow
 * call.
 */
export const PRICES = "prices";
/** Pool for planned paid calls, and for all requests of the egress profile `paid`. */
export const PAID = "paid";
/**
 * Largest number of payments whose proofs are sent again at once because they settled late. Planned paid calls run
 * beside them.
 */
export const SHOWN_AT_ONCE = 64;

/**
 * Largest number of notices sent at once. Strangers choose the addresses of the receivers, so notices never use the
 * connections of planned calls.
 */
export const NOTICES_AT_ONCE = 16;
/** Largest number of calls at once that buyers buy through us. */
export const VIA_AT_ONCE = 32;

/** Largest number of fetches at once for our own paid operations, for all buyers together. */
export const OWN_FETCHES_AT_ONCE = 16;
/** Largest number of requests at once for sellers' prices, for all buyers together. */
export const PRICES_AT_ONCE = 16;

/**
 * Largest number of connections of egress at once, by pool. `challenge` and `notice` are egress profiles, which name
 * the pool of a fetch that names none. Pools do not share connections, so that none waits for another. Serving itself
 * admits no more callers to {@link VIA} and {@link PRICES} than there are connections here, so a signed payment never
 * waits for a connection.
 */
export const POOLS = {
  [ASKS]: ASKS_AT_ONCE,
  [INTAKE]: INTAKE_AT_ONCE,
  [PAID]: 16,
  challenge: 8,
  notice: NOTICES_AT_ONCE,
  [OWN_FETCHES]: OWN_FETCHES_AT_ONCE,
  [VIA]: VIA_AT_ONCE,
  [PRICES]: PRICES_AT_ONCE,
} as const satisfies Readonly<Record<string, number>>;

/**
 * Limits of egress for a process that calls `hostsAtOnce` hosts at once: enough connections that no planned call waits
 * for one, also while sellers stall the proofs of late settlements.
 */
export const egressLimits = (hostsAtOnce: number, liveProbesAtOnce: number) => ({
  maxConcurrent: Math.max(64, 2 * hostsAtOnce),
  pools: {
    ...POOLS,
    [PAID]: Math.max(POOLS[PAID], hostsAtOnce) + SHOWN_AT_ONCE,
    [LIVE_PROBES]: liveProbesAtOnce,
  },
});

interface WaitingWork {
  run: () => Promise<void>;
  /** Kind of work: a key of `kindLimits`, or "" for planned calls. */
  kind: string;
}

/**
 * A queue of work for many hosts. It runs one piece of work at a time for each host, and `hostsAtOnce` hosts in
 * parallel. Hosts take turns, so that a host with ten thousand endpoints delays only itself. Work of one kind for one
 * host runs in the order in which it was added. Each kind of work in `kindLimits` has its own limit of hosts, so that
 * slow hosts of one kind do not delay the work of another.
 */
export class HostQueue {
  /** Waiting work by host, in the order in which hosts are served (a Map keeps the order of insertion). */
  readonly #waiting = new Map<string, WaitingWork[]>();
  readonly #busyHosts = new Set<string>();
  /** Number of running pieces of work, by kind. */
  readonly #running = new Map<string, number>();
  /** Largest number of hosts that may be busy at once, by kind of work. */
  readonly #limits: ReadonlyMap<string, number>;
  /** Number of pieces of work that wait or run. */
  #pending = 0;

  /**
   * @param kindLimits kinds of work other than planned calls, with the most hosts that may be busy with each at once
   */
  constructor(
    hostsAtOnce: number,
    private readonly maxPending = 10_000,
    kindLimits: Readonly<Record<string, number>> = {},
  ) {
    this.#limits = new Map([["", hostsAtOnce], ...Object.entries(kindLimits)]);
    for (const n of this.#limits.values()) if (n < 1) throw new RangeError(`at least one host at once, not ${n}`);
  }

  /** Number of pieces of work that wait or run. */
  get size(): number {
    return this.#pending;
  }

  /**
   * Runs `work` when its turn has come, and resolves or rejects as `work` does.
   * @throws Failure at once, without running `work`, when too much work is waiting; it can be tried again later
   */
  run<T>(host: string, work: () => Promise<T>, kind = ""): Promise<T> {
    if (this.#pending >= this.maxPending)
      return Promise.reject(
        new Failure("failed", `more than ${this.maxPending} calls are waiting`, { retriable: true }),
      );
    this.#pending++;
    return new Promise<T>((resolve, reject) => {
      const run = async () => {
        try {
          resolve(await work());
        } catch (error) {
          reject(error);
        }
      };
      const queue = this.#waiting.get(host);
      if (queue) queue.push({ run, kind });
      else this.#waiting.set(host, [{ run, kind }]);
      this.#runNext();
    });
  }

  readonly #hasRoomFor = (kind: string): boolean => (this.#running.get(kind) ?? 0) < (this.#limits.get(kind) ?? 0);

  #runNext(): void {
    const kinds = [...this.#limits.keys()];
    for (const [host, queue] of this.#waiting) {
      if (!kinds.some(this.#hasRoomFor)) return;
      if (this.#busyHosts.has(host)) continue;
      const index = queue.findIndex((one) => this.#hasRoomFor(one.kind));
      if (index < 0) continue;
      const [{ run, kind }] = queue.splice(index, 1) as [WaitingWork];
      // The host moves to the end, so that every other host is served before it is served again.
      this.#waiting.delete(host);
      if (queue.length > 0) this.#waiting.set(host, queue);
      this.#busyHosts.add(host);
      this.#count(kind, 1);
      void run().finally(() => {
        this.#pending--;
        this.#busyHosts.delete(host);
        this.#count(kind, -1);
        this.#runNext();
      });
    }
  }

  #count(kind: string, change: 1 | -1): void {
    this.#running.set(kind, (this.#running.get(kind) ?? 0) + change);
  }
}
