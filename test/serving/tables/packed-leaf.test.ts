import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { applyLeafToEndpoint } from "../../../pipelines/published/endpoint.ts";
import { GradeLeaf } from "../../../pipelines/record/leaf.ts";
import { headlineOf, leafOf, packLeaf, SERVING_PROJECTION, unpackLeaf } from "../../../serving/tables/entry.ts";
import { fc } from "../../helpers/histories.ts";

const golden = new URL("../../pipelines/4-publish/leaves.golden.ndjson", import.meta.url);
const leaves = readFileSync(golden, "utf8").trimEnd().split("\n");
const grades = leaves.filter((text) => text.includes('"kind":"grade"'));

// First: what is packed first is the dictionary of all that follows.
test("a card that was folded reads as its leaf, and takes less than half of it", () => {
  for (const text of grades) {
    const leaf = GradeLeaf.parse(JSON.parse(text));
    const entry = applyLeafToEndpoint(
      SERVING_PROJECTION.createEndpoint(leaf.card.capability_id),
      leaf,
      SERVING_PROJECTION,
      Buffer.from(text),
    );
    const [card] = entry.cards;
    expect(leafOf(card!)).toEqual(JSON.parse(text));
    expect(headlineOf(entry)?.leaf ?? null).toBe((JSON.parse(text) as GradeLeaf).headline ? card!.leaf : null);
  }
  // Another card: the same words, other figures.
  const other = grades[0]!.replace(/\d/g, (digit) => String((Number(digit) * 7 + 3) % 10));
  expect(packLeaf(Buffer.from(other)).length).toBeLessThan(other.length / 2);
});

test("whatever is packed comes back, whatever was packed before it", () => {
  const texts = fc.oneof(fc.string({ unit: "binary", maxLength: 600 }), fc.constantFrom(...leaves));
  fc.assert(
    fc.property(fc.array(texts, { maxLength: 20 }), (all) => {
      const packed = all.map((text) => packLeaf(Buffer.from(text)));
      expect(packed.map(unpackLeaf)).toEqual(all);
    }),
    { numRuns: 30 },
  );
});
