import { setMaxListeners } from "node:events";
import { systemClock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { partitionOf } from "../record/ids.ts";
import { FirstIntents } from "./first-intents.ts";

/** Which hosts (with port) this process may call now. */
export interface Hosts {
  owns(host: string): boolean;
}

/** For an observer that shares its work with nobody: it may call every host. */
export const EVERY_HOST: Hosts = { owns: () => true };

/** Work for the hosts of one partition. Once `signal` aborts it ends before its next call. */
export type PartitionWork = (partition: number, signal: AbortSignal) => Promise<void>;

interface Lease {
  partition: number;
  stop: AbortController;
  /** Has everything been read that the log held when the partition was taken? */
  caughtUp: boolean;
  beginning: Promise<void>;
  works: Set<Promise<void>>;
}

interface Attached {
  work: PartitionWork;
  /** Aborted with the first error that one of the works threw. */
  failed: AbortController;
  works: Set<Promise<void>>;
}

export interface HostShareParts {
  ownership: Ownership;
  /** Partitions of the log. A host belongs to the partition that its key has, in which its asks lie too. */
  partitions: number;
  /** Reads everything that the log holds at the call, so that memory knows what other observers did before. */
  catchUp: () => Promise<unknown>;
  /** Ends other work that is under way for the hosts of a partition that is lost. */
  release?: (partition: number) => Promise<void>;
  logger: Pick<Logger, "warn">;
}

/**
 * Opens this observer's share of the hosts, and {@link FirstIntents}, which decides when two observers call one host.
 * Call this before memory is read.
 */
export async function shareHosts(
  parts: Omit<HostShareParts, "partitions"> & { log: Pick<Log, "read" | "bounds" | "partitions"> },
): Promise<{ hosts: HostShare; firsts: FirstIntents }> {
  const { log, ...rest } = parts;
  const firsts = await FirstIntents.open(log);
  return { firsts, hosts: await HostShare.open({ ...rest, partitions: log.partitions }) };
}

/** Pause before the log is read again after a failure, real ms. */
const AGAIN_MS = 1_000;

/**
 * This observer's share of the hosts: those of the partitions that the group assigned to it. After a partition is
 * assigned, the log is read up to its end at that moment, so that memory knows what other observers called before; only
 * then may the hosts be called. A lost partition is given up when no call for its hosts is under way any more. An
 * observer that lost a partition and does not know it yet may still sign a payment: then the first intent in the log
 * decides (first-intents.ts).
 */
export class HostShare implements Hosts {
  readonly #leases = new Map<number, Lease>();
  readonly #attached = new Set<Attached>();
  #unsubscribe: () => void = () => undefined;

  private constructor(private readonly parts: HostShareParts) {}

  /** Resolves when the first assignment has been taken. @throws LogDown */
  static async open(parts: HostShareParts): Promise<HostShare> {
    const share = new HostShare(parts);
    const { ownership } = parts;
    share.#unsubscribe = ownership.onChange(async (taken, lost) => {
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

  /** Does this host belong to this partition? */
  lies(host: string, partition: number): boolean {
    return partitionOf(host, this.parts.partitions) === partition;
  }

  /** Resolves when the log was read for every partition that is assigned now. */
  async caughtUp(): Promise<void> {
    await Promise.all([...this.#leases.values()].map(({ beginning }) => beginning));
  }

  /**
   * Runs `work` once for each partition: those assigned now and those that are assigned while `over` is pending, and
   * again for one that is lost and comes back. Resolves when `over` has resolved and every work has ended.
   * @throws the first error of a work; no further work begins then
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

  /** Gives the ownership back and waits until every work has ended. */
  async close(): Promise<void> {
    await this.parts.ownership.close();
    await Promise.all([...this.#leases.keys()].map((partition) => this.#lose(partition)));
    this.#unsubscribe();
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
        logger.warn(
          { err: error, partition: lease.partition },
          "the log cannot be read yet up to the moment of our assignment; it is tried again",
        );
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
    // Each host with waiting calls adds a listener: hundreds of listeners are no leak here.
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
