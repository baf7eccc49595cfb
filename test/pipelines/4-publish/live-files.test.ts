import { expect, test } from "vitest";
import { LiveFiles } from "../../../pipelines/4-publish/live-files.ts";
import { fc } from "../../helpers/histories.ts";

const FULL = 8;

/** What a reader has who folds these files in order: endpoint -> the file of its newest row. */
const foldOf = (keys: readonly string[], files: ReadonlyMap<string, readonly string[]>): Map<string, string> =>
  new Map(keys.flatMap((key) => files.get(key)!.map((cap) => [cap, key] as const)));

test("whatever is touched, the files that stand fold to the newest rows, and stay few", () => {
  const caps = fc.uniqueArray(fc.integer({ min: 0, max: 59 }), { minLength: 1, maxLength: FULL });
  fc.assert(
    fc.property(fc.array(caps, { minLength: 1, maxLength: 120 }), (turns) => {
      const table = new LiveFiles(FULL);
      const files = new Map<string, readonly string[]>();
      const newest = new Map<string, string>();
      const add = (all: readonly string[]) => {
        for (let from = 0; from < all.length; from += FULL) {
          const some = all.slice(from, from + FULL);
          const key = `live/0.${files.size}.arrow`;
          files.set(key, some);
          for (const cap of some) newest.set(cap, key);
          table.add(key, some);
        }
      };
      add(Array.from({ length: 60 }, (_, i) => `cap_${i}`));
      let before: string[] = [];
      for (const touched of turns) {
        const rewritten = table.findCapsToRewrite();
        expect(rewritten.length).toBeLessThanOrEqual(2 * FULL);
        add([...new Set([...touched.map((i) => `cap_${i}`), ...rewritten])]);
        const { keys } = table;
        // Files that stay keep their order and their place before the new ones.
        expect(keys.slice(0, keys.filter((key) => before.includes(key)).length)).toEqual(
          before.filter((key) => keys.includes(key)),
        );
        expect(foldOf(keys, files)).toEqual(newest);
        // 60 rows fill 8 files, twice that with what they carry along; 16 small ones; one turn's own.
        expect(keys.length).toBeLessThanOrEqual(16 + 15 + 3);
        before = keys;
      }
      expect([table.rowCount, table.has("cap_0"), table.has("cap_60")]).toEqual([60, true, false]);
    }),
    { numRuns: 60 },
  );
});

test("what is carried along is written again, the most wasteful files first, about one full file at a time", () => {
  const rows = 20_000;
  const full = 2_000;
  const table = new LiveFiles(full);
  const names = Array.from({ length: rows }, (_, i) => `cap_${i}`);
  for (let from = 0; from < rows; from += full) table.add(`live/0.${from}.arrow`, names.slice(from, from + full));
  expect(table.findCapsToRewrite()).toEqual([]);
  const written = new Map<string, number>();
  for (const key of table.keys) written.set(key, full);
  for (let turn = 0; turn < 200; turn++) {
    const again = table.findCapsToRewrite();
    expect(again.length).toBeLessThanOrEqual(full);
    // Every hundredth endpoint, another hundredth at every turn.
    const touched = names.filter((_, i) => i % 100 === turn % 100);
    const both = [...new Set([...touched, ...again])];
    const key = `live/0.${rows + turn}.arrow`;
    written.set(key, both.length);
    table.add(key, both);
    const held = table.keys.reduce((sum, one) => sum + written.get(one)!, 0);
    expect(held).toBeLessThanOrEqual(1.7 * rows);
    expect(table.keys.length).toBeLessThanOrEqual(40);
  }
});
