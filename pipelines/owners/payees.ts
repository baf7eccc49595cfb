import { z } from "zod";
import type { Store } from "../../infra/store/store.ts";
import type { Positions } from "../2-ingest/load.ts";
import type { Thief } from "../3-grade/kin.ts";
import { partitionOf } from "../record/ids.ts";
import { PartitionObjects } from "./partition-objects.ts";

/** What one partition adds to the table of payees and domains (`owners/payees/<partition>`). */
const Part = z.object({
  v: z.literal(1),
  log: z.string(),
  /** {topic: next offset} of the partition when it was made. */
  positions: z.record(z.string(), z.int()),
  thieves: z.array(z.object({ cap: z.string(), pay_to: z.string().nullable(), domain: z.string().nullable() })),
});
type Part = z.infer<typeof Part>;

const byCap = (a: Thief, b: Thief): number => (a.cap < b.cap ? -1 : a.cap > b.cap ? 1 : 0);
const keyOf = ({ cap, pay_to, domain }: Thief): string => JSON.stringify([cap, pay_to, domain]);

/** PayTo addresses and domains of which one table says another thing than the other. */
export function turnedBetween(before: readonly Thief[], after: readonly Thief[]): Pick<Thief, "pay_to" | "domain">[] {
  const [had, has] = [new Set(before.map(keyOf)), new Set(after.map(keyOf))];
  return [...before.filter((thief) => !has.has(keyOf(thief))), ...after.filter((thief) => !had.has(keyOf(thief)))];
}

/**
 * The second pass over what crosses partitions: which endpoints took money, whose payee or domain they share. Each owner
 * writes the few rows of its partitions as private objects and reads those of the others; the same rows give the same
 * table, and so the same hash and flags, whoever holds what.
 */
export class Payees {
  readonly #parts: PartitionObjects<Part>;

  constructor(
    store: Store,
    private readonly logId: string,
    private readonly partitions: number,
  ) {
    this.#parts = new PartitionObjects(store, "payees", Part, logId);
  }

  /**
   * Say what these partitions hold. @param own thieves of the lake, which holds no other partition
   * @throws Outrun when another owner of one of them is further than we are: it is not ours any more
   */
  async say(own: readonly Thief[], positions: Positions, held: readonly number[]): Promise<void> {
    const byPartition = new Map<number, Thief[]>(held.map((partition) => [partition, []]));
    for (const thief of [...own].sort(byCap)) byPartition.get(partitionOf(thief.cap, this.partitions))?.push(thief);
    for (const [partition, thieves] of byPartition) {
      const part = { v: 1 as const, log: this.logId, positions: positionsOf(positions, partition), thieves };
      await this.#parts.put(
        partition,
        part,
        (theirs) => theirs.thieves.map(keyOf).join() !== thieves.map(keyOf).join(),
      );
    }
  }

  /** The table of all partitions as they were said last, ascending by capability. */
  async table(): Promise<Thief[]> {
    const parts = await this.#parts.all();
    return [...parts.values()].flatMap(({ thieves }) => thieves).sort(byCap);
  }
}

/** {topic: next offset} of one partition. */
export const positionsOf = (positions: Positions, partition: number): Record<string, number> =>
  Object.fromEntries(
    Object.entries(positions).flatMap(([topic, parts]): [string, number][] => {
      const next = parts[String(partition)];
      return next === undefined ? [] : [[topic, next]];
    }),
  );
