import type { Cluster } from "kafkajs";
import { systemClock } from "../../clock.ts";
import type { Logger } from "../../telemetry.ts";
import { LogDown } from "../log.ts";
import type { Ownership, OwnershipGroup, OwnershipListener } from "../ownership.ts";
import type { KafkaAddress } from "./address.ts";
import { createCluster, errorType } from "./client.ts";
import { type Group, Membership } from "./membership.ts";
import { topicOf } from "./topics.ts";

/** Time without a heartbeat after which a process counts as dead, ms (brokers allow 6 s to 30 min by default). */
const SESSION_MS = 20_000;
/** Pause after a round (joining the group and getting its assignment) or a heartbeat that failed, ms. */
const PAUSE_MS = 500;

export interface MembersOptions {
  logger: Logger;
  /** Number of partitions of the log. */
  partitions: number;
  /** Time without a heartbeat after which this process counts as dead, ms (default 20,000). */
  sessionMs?: number;
}

/**
 * Joins the consumer group `PREFIX.NAME`, which assigns partition p of all its topics to one member. No offset is read
 * from the group or committed to it. The member stays in the group, and joins it again after faults of brokers, in the
 * background until `close`. A member without contact for a session holds no partition.
 */
export async function joinGroup(
  address: KafkaAddress,
  { name, topics: groupTopics }: OwnershipGroup,
  { logger, partitions, sessionMs = SESSION_MS }: MembersOptions,
): Promise<Ownership> {
  const topics = groupTopics.map((topic) => topicOf(address.prefix, topic));
  const cluster = createCluster(address, logger);
  try {
    await cluster.connect();
  } catch (error) {
    await cluster.disconnect().catch(() => undefined);
    throw new LogDown(`joining ${address.prefix}.${name}`, error);
  }
  return new Members(cluster, { id: `${address.prefix}.${name}`, topics, partitions, sessionMs }, logger);
}

/** Errors after which this process is no longer a member: its partitions may already belong to another member. */
const EXPELLED_ERRORS = new Set(["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID"]);

class Members implements Ownership {
  generation = 0;
  readonly #member: Membership;
  readonly #listeners = new Set<OwnershipListener>();
  readonly #ready: Promise<void>;
  #resolveReady: () => void = () => undefined;
  #assigned: number[] = [];
  /**
   * Lost partitions on which listeners still work. They are claimed until the listeners have ended, so that no other
   * member gets them.
   */
  readonly #releasing = new Set<number>();
  /**
   * Until this time (on the scale of `performance.now()`) the broker cannot count this process as dead, and the
   * process holds its partitions.
   */
  #leaseEndsAtMs = 0;
  #needsRound = false;
  /** Ends the running pause. */
  #pauseEnd = new AbortController();
  #listenersDone: Promise<void> = Promise.resolve();
  /** true: no more partitions are accepted, and the listeners are finishing. */
  #leaving = false;
  /** true: no more requests are sent to the group. */
  #closing = false;
  readonly #running: Promise<void>;

  constructor(
    private readonly cluster: Cluster,
    private readonly group: Group,
    private readonly logger: Logger,
  ) {
    this.#member = new Membership(cluster, group);
    this.#ready = new Promise((resolve) => {
      this.#resolveReady = resolve;
    });
    this.#running = this.#run();
  }

  held(): readonly number[] {
    return this.heard ? this.#assigned : [];
  }

  get heard(): boolean {
    return performance.now() < this.#leaseEndsAtMs;
  }

  ready(): Promise<void> {
    return this.#ready;
  }

  onChange(listener: OwnershipListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.#leaving = true;
    this.#setPartitions([]);
    // Heartbeats continue until the listeners have ended, so that no other member gets the partitions before that.
    await this.#listenersDone;
    this.#closing = true;
    this.#pauseEnd.abort();
    await this.#running;
    await this.#member.leave().catch(() => undefined);
    await this.cluster.disconnect().catch(() => undefined);
    this.#resolveReady();
  }

  /** Runs rounds, with heartbeats between them. After a failure it looks up the coordinator and tries again. */
  async #run(): Promise<void> {
    for (let hasJoined = false; !this.#closing; ) {
      try {
        if (hasJoined && !this.#needsRound) await this.#waitAndHeartbeat();
        else await this.#runRound();
        hasJoined = true;
      } catch (error) {
        if (errorType(error) === "REBALANCE_IN_PROGRESS") {
          hasJoined = false;
          continue;
        }
        const isExpelled = EXPELLED_ERRORS.has(errorType(error));
        this.logger.warn({ err: error, group: this.group.id, out: isExpelled }, "the group could not be heard");
        this.#member.forget(isExpelled);
        if (isExpelled) this.#leaseEndsAtMs = 0;
        hasJoined = false;
        await this.#pause(PAUSE_MS);
      }
      // Without contact, only this process's clock shows that its session is over and other members may have the
      // partitions.
      if (!this.heard) this.#setPartitions([]);
    }
  }

  async #runRound(): Promise<void> {
    this.#needsRound = false;
    if (!this.heard) this.#setPartitions([]);
    const claimed = [...new Set([...this.held(), ...this.#releasing])];
    const { generation, partitions } = await this.#member.round(claimed);
    // The assignment may be old when it arrives. A heartbeat confirms that it is still valid.
    const askedAt = performance.now();
    await this.#member.heartbeat();
    this.generation = generation;
    this.#leaseEndsAtMs = askedAt + this.group.sessionMs;
    this.#setPartitions(this.#leaving ? [] : partitions);
    this.#resolveReady();
  }

  async #waitAndHeartbeat(): Promise<void> {
    await this.#pause(this.group.sessionMs / 6);
    if (this.#closing || this.#needsRound) return;
    const askedAt = performance.now();
    await this.#member.heartbeat();
    this.#leaseEndsAtMs = askedAt + this.group.sessionMs;
  }

  /** Replaces the assigned partitions, and then calls the listeners as soon as their earlier calls have ended. */
  #setPartitions(partitions: readonly number[]): void {
    const heldBefore = new Set(this.#assigned);
    const heldAfter = new Set(partitions);
    const taken = partitions.filter((partition) => !heldBefore.has(partition));
    const lost = this.#assigned.filter((partition) => !heldAfter.has(partition));
    this.#assigned = [...partitions];
    if (taken.length === 0 && lost.length === 0) return;
    const { generation } = this;
    this.logger.info({ group: this.group.id, generation, taken, lost }, "partitions were assigned or revoked");
    for (const partition of lost) this.#releasing.add(partition);
    this.#listenersDone = this.#listenersDone.then(async () => {
      for (const listener of this.#listeners) {
        try {
          await listener(taken, lost);
        } catch (error) {
          this.logger.error({ err: error, group: this.group.id }, "a change of partitions was not taken well");
        }
      }
      for (const partition of lost) this.#releasing.delete(partition);
      // Another round assigns the released partitions to other members.
      if (lost.length > 0 && !this.#leaving) this.#needsRound = true;
      this.#pauseEnd.abort();
    });
  }

  async #pause(ms: number): Promise<void> {
    if (this.#closing) return;
    this.#pauseEnd = new AbortController();
    await systemClock.sleep(ms, this.#pauseEnd.signal).catch(() => undefined);
  }
}
