/**
 * Assigns partitions to processes. Partition p means partition p of every topic with the same key, so the process that
 * holds p has every record of its capabilities. Adapters: `allPartitions` below (one process on one machine) and
 * `kafka/members.ts` (a consumer group).
 *
 * What it promises: at every moment at most one process in contact with the group holds a partition, and one that was
 * silent for longer than its session holds nothing by its own clock, before another is given what it had. What it does
 * not promise is exactness: a process may have sent a write just before it lost the right to. So membership only shares
 * the work; what must happen once is decided by a create-only object (a commit number, a generation).
 */
export interface Ownership {
  /** Partitions held at this moment, ascending. Ask again before each piece of work: it may end at any time. */
  held(): readonly number[];
  /** Was this process in contact with the group lately? Without contact it holds nothing, though it did not give it up. */
  readonly heard: boolean;
  /** Rises with every assignment that this process saw; 0 before the first. */
  readonly generation: number;
  /** Resolves after the first assignment, also when it gave nothing, and when it is closed; until then it keeps trying. */
  ready(): Promise<void>;
  /**
   * Called after `held` changed, one call at a time and in order. What was lost is given to nobody else before the
   * listeners have ended, unless this process could not be heard: so end there what must not be done twice. A
   * listener that throws is logged and counts as ended.
   * @returns stops listening
   */
  onChange(listener: OwnershipListener): () => void;
  /** Gives everything back: listeners hear of it as lost first. */
  close(): Promise<void>;
}

export type OwnershipListener = (taken: readonly number[], lost: readonly number[]) => void | Promise<void>;

/** A group of processes that share work: its name, and the topics whose partitions it hands out, which share a key. */
export interface OwnershipGroup {
  name: string;
  topics: readonly string[];
}

/** One process that holds everything from its first moment until it closes: the embedded log, and tests. */
export const allPartitions = (partitions: number): Ownership =>
  fixedPartitions(Array.from({ length: partitions }, (_, partition) => partition));

/** The same for a fixed share of the partitions: what an operator divides by hand. */
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
