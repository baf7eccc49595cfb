import { setMaxListeners } from "node:events";
import { systemClock } from "../../infra/clock.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { partitionOf } from "../record/ids.ts";
import { FirstIntents } from "./first-intents.ts";

/** Decides which hosts (with port) this process may call now. */
export interface Hosts {
  /** Returns true if this process may call the host now. */
  owns(host: string): boolean;
}

/** The hosts of a single observer, which may call every host. */
export const EVERY_HOST: Hosts = { owns: () => true };

/** Work for the hosts of one partition. After `signal` has aborted, the work ends before its next call. */
export type PartitionWork = (partition: number, signal: AbortSignal) => Promise<void>;

/** A partition that is assigned to this observer, with the work that runs for its hosts. */
interface Lease {
  partition: number;
  stopController: AbortController;
  /** Was everything read that the log held when the partition was assigned? */
  caughtUp: boolean;
  /** Resolves when `caughtUp` is true, or the lease was stopped. */
  catchUpDone: Promise<void>;
  /** Work for the partition's hosts that has not ended yet. */
  running: Set<Promise<void>>;
}

/** Work that runs once for each assigned partition. */
interface AttachedWork {
  work: PartitionWork;
  /** Aborted with the first error that the work threw for any partition. */
  failureController: AbortController;
  /** The work of all partitions that has not ended yet. */
  running: Set<Promise<void>>;
}

export interface HostShareParts {
  ownership: Ownership;
  /**
   * Number of partitions of the log. A host belongs to the partition to which its name maps as a record key. That
   * partition also has the asks for the host.
   */
  partitions: number;
  /** Reads everything that the log holds now, so that this observer knows what other observers did before. */
  catchUp: () => Promise<unknown>;
  /** Ends other running work for the hosts of a partition that is lost. */
  release?: (partition: number) => Promise<void>;
  logger: Pick<Logger, "warn">;
}

/**
 * Opens this observer's share of the hosts, and {@link FirstIntents}, which decides when two observers call one host.
 * Call it before older intents are read.
 */
export async function openHostShare(
  parts: Omit<HostShareParts, "partitions"> & { log: Pick<Log, "read" | "bounds" | "partitions"> },
): Promise<{ hosts: HostShare; firstIntents: FirstIntents }> {
  const { log, ...rest } = parts;
  const firstIntents = await FirstIntents.open(log);
  return { firstIntents, hosts: await HostShare.open({ ...rest, partitions: log.partitions }) };
}

/** Pause before the log is read again after a failure, real ms. */
const RETRY_PAUSE_MS = 1_000;

/**
 * This observer's share of the hosts: those of the partitions that the log's consumer group assigned to it. After a
 * partition is assigned, the log is first read up to its end at that moment, so that this observer knows the calls of
 * other observers. Only then may the hosts be called. A lost partition is released when no call to its hosts is
 * running any more. An observer that has lost a partition and does not know it yet may still sign a payment; then the
 * first intent (the record before a payment) in the log decides which observer pays (first-intents.ts).
 */
export class HostShare implements Hosts {
  readonly #leases = new Map<number, Lease>();
  readonly #attached = new Set<AttachedWork>();
  #unsubscribe: () => void = () => undefined;

  private constructor(private readonly parts: HostShareParts) {}

  /** Resolves after the first assignment, when the hosts of the assigned partitions may be called. @throws LogDown */
  static async open(parts: HostShareParts): Promise<HostShare> {
    const share = new HostShare(parts);
    const { ownership } = parts;
    share.#unsubscribe = ownership.onChange(async (assignedPartitions, lostPartitions) => {
      await Promise.all(lostPartitions.map((partition) => share.#giveUp(partition)));
      for (const partition of assignedPartitions) share.#assign(partition);
    });
    await ownership.ready();
    for (const partition of ownership.held()) share.#assign(partition);
    await share.waitUntilCaughtUp();
    return share;
  }

  owns(host: string): boolean {
    const partition = partitionOf(host, this.parts.partitions);
    const lease = this.#leases.get(partition);
    return !!lease?.caughtUp && !lease.stopController.signal.aborted && this.parts.ownership.held().includes(partition);
  }

  /** Does this host belong to this partition? */
  belongsTo(host: string, partition: number): boolean {
    return partitionOf(host, this.parts.partitions) === partition;
  }

  /** Resolves when, for every partition that is assigned now, the log was read up to the moment of the assignment. */
  async waitUntilCaughtUp(): Promise<void> {
    await Promise.all([...this.#leases.values()].map(({ catchUpDone }) => catchUpDone));
  }

  /**
   * Runs `work` once for each partition that is assigned now or becomes assigned before `ended` resolves, and again for
   * a partition that was lost and is assigned again. Resolves when `ended` has resolved and all work is done.
   * @throws the first error of `work`; then no further work starts
   */
  async runDuring(work: PartitionWork, ended: Promise<void>): Promise<void> {
    const failureController = new AbortController();
    const attached: AttachedWork = { work, failureController, running: new Set() };
    const failure = new Promise<void>((resolve) => {
      failureController.signal.addEventListener("abort", () => resolve(), { once: true });
    });
    this.#attached.add(attached);
    for (const lease of this.#leases.values()) if (lease.caughtUp) this.#start(attached, lease);
    await Promise.race([ended, failure]);
    this.#attached.delete(attached);
    await Promise.all(attached.running);
    failureController.signal.throwIfAborted();
  }

  /** Gives up all partitions and waits until all work has ended. */
  async close(): Promise<void> {
    await this.parts.ownership.close();
    await Promise.all([...this.#leases.keys()].map((partition) => this.#giveUp(partition)));
    this.#unsubscribe();
  }

  #assign(partition: number): void {
    if (this.#leases.has(partition)) return;
    const stopController = new AbortController();
    const lease: Lease = {
      partition,
      stopController,
      caughtUp: false,
      catchUpDone: Promise.resolve(),
      running: new Set(),
    };
    this.#leases.set(partition, lease);
    lease.catchUpDone = this.#catchUp(lease);
  }

  async #catchUp(lease: Lease): Promise<void> {
    const { catchUp, logger } = this.parts;
    const { signal } = lease.stopController;
    while (!signal.aborted) {
      try {
        await catchUp();
        break;
      } catch (error) {
        logger.warn(
          { err: error, partition: lease.partition },
          "the log cannot be read yet up to the moment of our assignment; it is tried again",
        );
        await systemClock.sleep(RETRY_PAUSE_MS, signal).catch(() => undefined);
      }
    }
    if (signal.aborted) return;
    lease.caughtUp = true;
    for (const attached of this.#attached) this.#start(attached, lease);
  }

  #start(attached: AttachedWork, lease: Lease): void {
    if (lease.stopController.signal.aborted || attached.failureController.signal.aborted) return;
    const signal = AbortSignal.any([lease.stopController.signal, attached.failureController.signal]);
    // Each host with waiting calls adds a listener: hundreds of listeners are no leak here.
    setMaxListeners(0, signal);
    const done = attached
      .work(lease.partition, signal)
      .catch((error: unknown) => attached.failureController.abort(error));
    for (const workSets of [attached.running, lease.running]) {
      workSets.add(done);
      void done.finally(() => workSets.delete(done));
    }
  }

  async #giveUp(partition: number): Promise<void> {
    const lease = this.#leases.get(partition);
    if (!lease) return;
    lease.stopController.abort(new Error(`partition ${partition} was given to another observer`));
    await lease.catchUpDone;
    await Promise.all(lease.running);
    await this.parts.release?.(partition);
    this.#leases.delete(partition);
  }
}
