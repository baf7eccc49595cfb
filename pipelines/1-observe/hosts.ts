import { setMaxListeners } from "node:events";
import { systemClock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { partitionOf } from "../record/ids.ts";
import { FirstIntents } from "./first-intents.ts";

/** Which hosts (with port) this process may call at this moment. */
export interface Hosts {
  owns(host: string): boolean;
}

/** One observer alone: everybody is its to call. */
export const EVERY_HOST: Hosts = { owns: () => true };

/** Work for the hosts of one partition, to be ended between two calls once `signal` aborts. */
export type PartitionWork = (partition: number, signal: AbortSignal) => Promise<void>;

interface Lease {
  partition: number;
  stop: AbortController;
  /** Everything that the log held when the partition was taken has been read. */
  caughtUp: boolean;
  beginning: Promise<void>;
  works: Set<Promise<void>>;
}

interface Attached {
  work: PartitionWork;
  /** Aborted with what the first of the works threw. */
  failed: AbortController;
  works: Set<Promise<void>>;
}

export interface HostShareParts {
  ownership: Ownership;
  /** Partitions of the log; a host lies in that of its bucket, as its asks do. */
  partitions: number;
  /** Reads everything that the log holds when it is called, so that memory knows what others did before us. */
  catchUp: () => Promise<unknown>;
  /** Ends what else is under way for hosts of a partition that is given away. */
  release?: (partition: number) => Promise<void>;
  logger: Pick<Logger, "warn">;
}

/** Our share of the hosts, and the first intents, which decide where two processes share one. Before memory is read. */
export async function shareHosts(
  parts: Omit<HostShareParts, "partitions"> & { log: Pick<Log, "read" | "bounds" | "partitions"> },
): Promise<{ hosts: HostShare; firsts: FirstIntents }> {
  const { log, ...rest } = parts;
  const firsts = await FirstIntents.open(log);
  return { firsts, hosts: await HostShare.open({ ...rest, partitions: log.partitions }) };
}

/** Real pause before the log is read again, ms. */
const AGAIN_MS = 1_000;

/**
 * This observer's share of the hosts: those whose bucket lies in a partition that the group gave it. A host is ours from
 * the moment its partition is and the log has been read up to where it ended then; what others called before is known by
 * that. A partition that is taken away is given up once no call for it is under way any more. A process that
 * lost its partitions and does not know it yet may still sign: the first intent in the log decides (first-intents.ts).
 */
export class HostShare implements Hosts {
  readonly #leases = new Map<number, Lease>();
  readonly #attached = new Set<Attached>();
  #off: () => void = () => undefined;

  private constructor(private readonly parts: HostShareParts) {}

  /** Resolves after the first assignment was taken over. @throws LogDown */
  static async open(parts: HostShareParts): Promise<HostShare> {
    const share = new HostShare(parts);
    const { ownership } = parts;
    share.#off = ownership.onChange(async (taken, lost) => {
      await Promise.all(lost.map((partition) => share.#lose(partition)));
      for (const partition of taken) share.#take(partition);
    });
    await ownership.ready();
    for (const partition of ownership.held()) share.#take(partition);
    await share.caughtUp();
    return share;
  }

  owns(host: string): boolean {
    const partition = partitionOf(host, this.parts.partitions);
    const lease = this.#leases.get(partition);
    return !!lease?.caughtUp && !lease.stop.signal.aborted && this.parts.ownership.held().includes(partition);
  }

  /** Is this host of this partition? */
  lies(host: string, partition: number): boolean {
    return partitionOf(host, this.parts.partitions) === partition;
  }

  /** Resolves when everything that was handed out by now is read up to its moment. */
  async caughtUp(): Promise<void> {
    await Promise.all([...this.#leases.values()].map(({ beginning }) => beginning));
  }

  /**
   * Runs `work` once for each partition, those held now and those that come while `over` is pending; a partition that
   * comes back gets it again. Resolves when `over` has and every work has ended.
   * @throws what a work throws first; no further one begins
   */
  async during(work: PartitionWork, over: Promise<void>): Promise<void> {
    const failed = new AbortController();
    const attached: Attached = { work, failed, works: new Set() };
    const failing = new Promise<void>((resolve) => {
      failed.signal.addEventListener("abort", () => resolve(), { once: true });
    });
    this.#attached.add(attached);
    for (const lease of this.#leases.values()) if (lease.caughtUp) this.#start(attached, lease);
    await Promise.race([over, failing]);
    this.#attached.delete(attached);
    await Promise.all(attached.works);
    failed.signal.throwIfAborted();
  }

  /** Gives everything up: works are ended, and the ownership given back. */
  async close(): Promise<void> {
    await this.parts.ownership.close();
    await Promise.all([...this.#leases.keys()].map((partition) => this.#lose(partition)));
    this.#off();
  }

  #take(partition: number): void {
    if (this.#leases.has(partition)) return;
    const stop = new AbortController();
    const lease: Lease = { partition, stop, caughtUp: false, beginning: Promise.resolve(), works: new Set() };
    this.#leases.set(partition, lease);
    lease.beginning = this.#begin(lease);
  }

  async #begin(lease: Lease): Promise<void> {
    const { catchUp, logger } = this.parts;
    const { signal } = lease.stop;
    while (!signal.aborted) {
      try {
        await catchUp();
        break;
      } catch (error) {
        logger.warn({ err: error, partition: lease.partition }, "the log cannot be read up to our taking over yet");
        await systemClock.sleep(AGAIN_MS, signal).catch(() => undefined);
      }
    }
    if (signal.aborted) return;
    lease.caughtUp = true;
    for (const attached of this.#attached) this.#start(attached, lease);
  }

  #start(attached: Attached, lease: Lease): void {
    if (lease.stop.signal.aborted || attached.failed.signal.aborted) return;
    const signal = AbortSignal.any([lease.stop.signal, attached.failed.signal]);
    // Every host with waiting calls adds a listener: hundreds of them are no leak.
    setMaxListeners(0, signal);
    const done = attached.work(lease.partition, signal).catch((error: unknown) => attached.failed.abort(error));
    for (const works of [attached.works, lease.works]) {
      works.add(done);
      void done.finally(() => works.delete(done));
    }
  }

  async #lose(partition: number): Promise<void> {
    const lease = this.#leases.get(partition);
    if (!lease) return;
    lease.stop.abort(new Error(`partition ${partition} was given to another observer`));
    await lease.beginning;
    await Promise.all(lease.works);
    await this.parts.release?.(partition);
    this.#leases.delete(partition);
  }
}
