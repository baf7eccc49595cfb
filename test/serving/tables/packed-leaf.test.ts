import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { applyLeafToEndpoint } from "../../../pipelines/published/endpoint.ts";
import { GradeLeaf } from "../../../pipelines/record/leaf.ts";
import { headlineOf, leafOf, SERVING_PROJECTION } from "../../../serving/tables/entry.ts";

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
  const other = grades[0]!.replace(/(?<!p)\d(?!\d?":)/g, (digit) => String((Number(digit) * 7 + 3) % 10));
  const { packed } = SERVING_PROJECTION.card(JSON.parse(other) as GradeLeaf, Buffer.from(other));
  expect(packed.length).toBeLessThan(other.length / 2);
});
