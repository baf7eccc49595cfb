import { expect, test } from "vitest";
import { assignPartitions, type Member } from "../../../../infra/log/kafka/membership.ts";
import { allPartitions, fixedPartitions } from "../../../../infra/log/ownership.ts";
import { fc } from "../../../helpers/histories.ts";

const partitionCount = fc.constantFrom(1, 2, 4, 8, 16, 32, 64);
/** Members with claims as they may come: of nothing, of the same, of partitions that there are not. */
const claims = fc.uniqueArray(
  fc.record({ id: fc.string({ minLength: 1, maxLength: 8 }), owned: fc.array(fc.integer({ min: -1, max: 70 })) }),
  { minLength: 1, maxLength: 9, selector: ({ id }) => id },
);

const holders = (shares: Map<string, number[]>): number[] => [...shares.values()].flat().sort((a, b) => a - b);
const round = (partitions: number, shares: Map<string, number[]>): Map<string, number[]> =>
  assignPartitions(
    partitions,
    [...shares].map(([id, owned]) => ({ id, owned })),
  );

test("a partition has one holder at most, and nobody is given what another claims", () => {
  fc.assert(
    fc.property(partitionCount, claims, (partitions, members) => {
      const shares = assignPartitions(partitions, members);
      expect([...shares.keys()].sort()).toEqual(members.map(({ id }) => id).sort());
      expect(holders(shares)).toEqual([...new Set(holders(shares))]);
      for (const [id, held] of shares)
        for (const partition of held) {
          expect(partition).toBeGreaterThanOrEqual(0);
          expect(partition).toBeLessThan(partitions);
          for (const other of members) if (other.id !== id) expect(other.owned).not.toContain(partition);
        }
    }),
  );
});

test("two rounds later everything is held, evenly, and it stays as it is", () => {
  fc.assert(
    fc.property(partitionCount, claims, (partitions, members) => {
      const settled = round(partitions, assignPartitions(partitions, members));
      expect(holders(settled)).toEqual(Array.from({ length: partitions }, (_, p) => p));
      const sizes = [...settled.values()].map((held) => held.length);
      expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
      expect(round(partitions, settled)).toEqual(settled);
    }),
  );
});

test("the order in which members are named changes nothing", () => {
  fc.assert(
    fc.property(partitionCount, claims, (partitions, members) => {
      const turned = assignPartitions(partitions, [...members].reverse());
      expect(new Map([...turned].sort())).toEqual(new Map([...assignPartitions(partitions, members)].sort()));
    }),
  );
});

test("a fifth member moves no more than its share", () => {
  const four: Member[] = [0, 1, 2, 3].map((n) => ({ id: `m${n}`, owned: [n * 4, n * 4 + 1, n * 4 + 2, n * 4 + 3] }));
  const first = assignPartitions(16, [...four, { id: "new", owned: [] }]);
  expect(first.get("new")).toEqual([]);
  const second = round(16, first);
  expect(second.get("new")).toHaveLength(3);
  expect(four.map(({ id, owned }) => owned.filter((p) => second.get(id)!.includes(p)).length).sort()).toEqual([
    3, 3, 3, 4,
  ]);
});

test("an embedded log's partitions are one process' from first to last, and closing says so", async () => {
  const all = allPartitions(4);
  await all.ready();
  expect([all.held(), all.generation]).toEqual([[0, 1, 2, 3], 1]);
  const heard: unknown[] = [];
  all.onChange((taken, lost) => void heard.push([taken, lost, all.held()]));
  await all.close();
  expect(heard).toEqual([[[], [0, 1, 2, 3], []]]);
  expect(fixedPartitions([3, 1]).held()).toEqual([1, 3]);
});
