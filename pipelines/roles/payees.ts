import { z } from "zod";
import { openChain } from "../../infra/chain/commits.ts";
import { Failure } from "../../infra/errors.ts";
import type { Store } from "../../infra/store/store.ts";
import { INGESTED, positionsOf } from "../2-ingest/load.ts";
import type { Thief } from "../3-grade/related.ts";
import { partitionOf } from "../record/ids.ts";
import type { Positions } from "../record/volatile.ts";
import { Outrun, PartitionObjects } from "./partition-objects.ts";

/** What one partition adds to the table of payees and domains (`owners/payees/<partition>`). */
const Part = z.object({
  v: z.literal(2),
  log: z.string(),
  /** {topic: next offset} of the partition when it was made. */
  positions: z.record(z.string(), z.int()),
  /** RFC 3339 moment of the grading that made it: whether money was taken depends on the time, too. */
  at: z.string(),
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

/** The table lacks a partition, or what is written of one is older than its chain was when we looked. Try again later. */
export class PartBehind extends Failure {
  constructor(partition: number, why: string) {
    super("busy", `payees of partition ${partition}: ${why}; nothing is graded before its owner has written them`);
  }
}

/**
 * The second pass over what crosses partitions: which endpoints took money, whose payee or domain they share. Each owner
 * writes the few rows of its partitions as private objects and reads those of the others; the same rows give the same
 * table, and so the same hash and flags, whoever holds what.
 *
 * A table is whole or there is none: every partition must have been written, with positions at least those that its chain had
 * when this process first looked at it ({@link look}). From then on its owners only go forward, so a partition that is
 * loaded anew for minutes stays as it was written last and holds nobody up. Nobody waits: whoever finds no table writes its own
 * part all the same, so no two owners wait for each other, and tries again on its next turn.
 */
export class Payees {
  readonly #parts: PartitionObjects<Part>;
  /** Of partitions that others hold: {topic: next offset} of their chains at our first look. */
  readonly #floors = new Map<number, Record<string, number>>();

  constructor(
    private readonly store: Store,
    private readonly logId: string,
    private readonly partitions: number,
  ) {
    this.#parts = new PartitionObjects(store, "payees", Part, { id: logId, partitions });
  }

  /** Before {@link table}: how far the chains of the partitions are that others hold. Reads each chain's head once. */
  async look(held: readonly number[]): Promise<void> {
    for (let partition = 0; partition < this.partitions; partition++) {
      if (held.includes(partition) || this.#floors.has(partition)) continue;
      const heads = INGESTED.map(async (topic): Promise<[string, number]> => {
        const chain = openChain(this.store, { logId: this.logId, topic, partition });
        return [topic, (await chain.head()).next];
      });
      this.#floors.set(partition, Object.fromEntries(await Promise.all(heads)));
    }
  }

  /**
   * Write what these partitions hold. @param own thieves of the lake, which holds no other partition
   * @param at moment of the grading that found them, RFC 3339
   * @throws Outrun when another owner of one of them is further than we are, or graded at a later moment: it is not
   * ours any more
   */
  async write(own: readonly Thief[], positions: Positions, held: readonly number[], at: string): Promise<void> {
    const byPartition = new Map<number, Thief[]>(held.map((partition) => [partition, []]));
    for (const thief of [...own].sort(byCap)) byPartition.get(partitionOf(thief.cap, this.partitions))?.push(thief);
    for (const [partition, thieves] of byPartition) {
      const part = { v: 2 as const, log: this.logId, positions: positionsOf(positions, partition), at, thieves };
      const ours = JSON.stringify(part.positions);
      await this.#parts.put(partition, part, (theirs) => {
        if (theirs.thieves.map(keyOf).join() === thieves.map(keyOf).join()) return !covers(theirs, part.positions);
        // An owner that was paused since an earlier moment must not undo what another found later of the same rows.
        if (theirs.at > at && covers(theirs, part.positions))
          throw new Outrun(`payees of partition ${partition}`, `graded ${ours} at ${theirs.at}, this one at ${at}`);
        return true;
      });
    }
  }

  /** The table of all partitions as they were written last, ascending by capability. @throws PartBehind */
  async table(): Promise<Thief[]> {
    const parts = await this.#parts.all();
    for (let partition = 0; partition < this.partitions; partition++) {
      const part = parts.get(partition);
      if (!part) throw new PartBehind(partition, "none were ever written");
      for (const [topic, next] of Object.entries(this.#floors.get(partition) ?? {})) {
        const read = part.positions[topic] ?? 0;
        if (read < next)
          throw new PartBehind(partition, `written with ${topic} read up to ${read}, its chain has ${next}`);
      }
    }
    return [...parts.values()].flatMap(({ thieves }) => thieves).sort(byCap);
  }
}

/** Was a part made from at least these positions? */
const covers = (part: Part, positions: Record<string, number>): boolean =>
  Object.entries(positions).every(([topic, next]) => (part.positions[topic] ?? 0) >= next);
