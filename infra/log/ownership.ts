/**
 * Assigns partitions to processes. Partition p stands for partition p of all topics whose records are partitioned by
 * the same kind of key, so the process that holds p gets all records of the capabilities (endpoints) whose key belongs
 * to p. Implementations: `allPartitions` below (one process) and `kafka/members.ts` (a consumer group).
 *
 * Guarantee: at any moment, at most one process in contact with the group holds a partition. A process that was
 * silent for longer than its session regards its partitions as lost, by its own clock, before another process gets
 * them. Not guaranteed: a process may have sent a write just before it lost a partition. So ownership only divides
 * the work; what must happen exactly once is decided by creating an object (a commit, a generation).
 */
export interface Ownership {
  /**
   * Partitions that this process holds now, ascending. Call this again before each piece of work, since partitions can
   * be lost at any time.
   */
  held(): readonly number[];
  /**
   * True if this process was recently in contact with the group. Without contact it holds no partition, although it did
   * not release any, and most of them may come back.
   */
  readonly heard: boolean;
  /** Number of the assignment that this process received last, which rises with each assignment; 0 before the first. */
  readonly generation: number;
  /**
   * Resolves after the first assignment, even an empty one, or when closed. Until then the process keeps trying to
   * join.
   */
  ready(): Promise<void>;
  /**
   * Calls the listener after `held` changed, one call at a time, in order. Lost partitions go to another process only
   * after the listeners have ended (unless contact was lost), so a listener finishes or stops work that two processes
   * must not do. A listener that throws is logged and counts as ended.
   * @returns a function that stops listening
   */
  onChange(listener: OwnershipListener): () => void;
  /** Calls the listeners with all partitions as lost, and then gives the partitions up. */
  close(): Promise<void>;
}

/** Gets the partitions that this process now holds and did not hold before (`taken`), and those that it lost. */
export type OwnershipListener = (taken: readonly number[], lost: readonly number[]) => void | Promise<void>;

/**
 * A group of processes that share work: its name, and the topics whose partitions it assigns. The records of these
 * topics are partitioned by the same kind of key.
 */
export interface OwnershipGroup {
  name: string;
  topics: readonly string[];
}

/** Ownership of all partitions by one process until it closes, for the embedded log and tests. */
export const allPartitions = (partitions: number): Ownership =>
  fixedPartitions(Array.from({ length: partitions }, (_, partition) => partition));

/** Ownership of these partitions until it closes, without a consumer group. */
export function fixedPartitions(partitions: readonly number[]): Ownership {
  const listeners = new Set<OwnershipListener>();
  let held: readonly number[] = [...partitions].sort((a, b) => a - b);
  return {
    held: () => held,
    heard: true,
    get generation() {
      return 1;
    },
    ready: async () => {},
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async close() {
      const lost = held;
      held = [];
      if (lost.length > 0) for (const listener of listeners) await listener([], lost);
      listeners.clear();
    },
  };
}
