import { describe, expect, test } from "vitest";
import { compress } from "zstd-napi";
import { sha256hex } from "../../../infra/canonical.ts";
import { NO_RELATED_PARTIES_SHA256 } from "../../../pipelines/3-grade/related.ts";
import { RecordGatherer } from "../../../pipelines/audit/gather.ts";
import { type CardVerdict, recomputeGathered } from "../../../pipelines/audit/recompute.ts";
import { Unproven } from "../../../pipelines/published/errors.ts";
import { evidenceKey } from "../../../pipelines/published/objects.ts";
import type { Leaf } from "../../../pipelines/record/leaf.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { cardOf } from "../../helpers/public-record.ts";

const DAY = "2026-11-21";
const TABLE = "ab".repeat(32);
const close = (index: number, freeze: number, more: object) => ({
  ...{ kind: "evidence", index, seq: freeze, at: `${DAY}T23:00:00.000Z`, day: DAY, freeze, part: 1, parts: 1 },
  ...{ holds: "nothing", bucket: null, rows: 0, positions: {}, below: null, key: null },
  ...{ sha256: null, bytes: 0, unpacked_sha256: null, unpacked_bytes: 0, ...more },
});
const grade = {
  ...{
    kind: "grade",
    index: 1,
    seq: 0,
    at: `${DAY}T23:00:00.000Z`,
    day: DAY,
    raw_band: "B",
    headline: true,
    why: "B.",
  },
  inputs: { positions: {}, digest: "", kin: TABLE },
  card: { ...cardOf({ url: "https://a.example/x" }, { computed_at: `${DAY}T06:00:00.000Z` }), signature: "x" },
};

/** A file of tables that holds the empty one only. */
const text = Buffer.from(`{"add":[],"kin":"${NO_RELATED_PARTIES_SHA256}","remove":[]}\n`);
const packed = compress(text);
const file = {
  ...{ holds: "kin", rows: 1, below: 2, key: evidenceKey(DAY, "kin", sha256hex(text)) },
  ...{ sha256: sha256hex(packed), bytes: packed.length, unpacked_sha256: sha256hex(text), unpacked_bytes: text.length },
};

async function verdictAfter(leaves: readonly object[]): Promise<CardVerdict> {
  const source = { name: "one file", get: async () => packed, close: async () => undefined };
  const gathering = new RecordGatherer(source, "all", leaves.length, false);
  for (const leaf of leaves) await gathering.add(leaf as Leaf);
  const verdicts: CardVerdict[] = [];
  await recomputeGathered(source, gathering.finish(), (verdict) => verdicts.push(verdict));
  return verdicts[0]!;
}

test("a card's table of related parties may come after its day was closed; a file that should hold it and does not is a fault", async () => {
  const leaves = [close(0, 0, {}), grade];
  const says = `the table of related parties ${TABLE} is not published yet`;
  expect(await verdictAfter(leaves)).toMatchObject({ verdict: "pending", says });
  expect(await verdictAfter([...leaves, close(2, 1, file)])).toMatchObject({
    ...{ verdict: "differs", difference: { field: "inputs.kin", got: TABLE } },
  });
});

describe("a wrong card is not pending for ever", () => {
  const next = { day: addDays(DAY, 1), at: `${addDays(DAY, 2)}T07:00:00.000Z` };

  test("by a table that no leaf and no file ever holds", async () => {
    const leaves = [close(0, 0, {}), grade, close(2, 0, next)];
    expect(await verdictAfter(leaves)).toMatchObject({
      ...{ verdict: "differs", difference: { field: "inputs.kin", got: TABLE } },
    });
  });

  test("by a table under a day to come", async () => {
    const leaves = [close(0, 0, {}), { ...grade, day: "2999-01-01" }, close(2, 0, next)];
    expect(await verdictAfter(leaves)).toMatchObject({
      ...{ verdict: "differs", difference: { field: "inputs.kin", got: TABLE } },
    });
  });

  test("by a moment after its leaf", async () => {
    const computed_at = "2999-01-01T00:00:00.000Z";
    const card = { ...grade.card, computed_at };
    expect(await verdictAfter([close(0, 0, {}), { ...grade, card }])).toMatchObject({
      ...{ verdict: "differs", difference: { field: "card.computed_at", got: computed_at } },
    });
  });
});

describe("a leaf of the table of related parties", () => {
  const thief = { cap: "cap_00000000000000000000000000", domain: "evil.example", pay_to: "0xabc" };
  const table = sha256hex(`${JSON.stringify(thief)}\n`);
  const change = (index: number, more: object) => ({
    ...{ kind: "kin", index, seq: index, at: `${DAY}T05:00:00.000Z`, computed_at: `${DAY}T05:00:00.000Z` },
    ...{ kin: table, add: [thief], remove: [], ...more },
  });

  test("names the hash of the table after it", async () => {
    const gathering = new RecordGatherer(
      { name: "none", get: async () => null, close: async () => {} },
      "all",
      2,
      false,
    );
    await gathering.add(change(0, {}) as Leaf);
    expect(gathering.finish().relatedParties.has(table)).toBe(true);
    await gathering.add(change(1, { kin: NO_RELATED_PARTIES_SHA256, add: [], remove: [thief.cap] }) as Leaf);
    expect(gathering.finish().relatedParties.table).toEqual([]);
  });

  test.each<[string, object]>([
    ["of another table", { kin: TABLE }],
    ["of the table before it", { kin: NO_RELATED_PARTIES_SHA256 }],
    ["of the same rows under another address", { add: [{ ...thief, pay_to: "0xabd" }] }],
  ])("is refused with the hash %s", async (_, more) => {
    const gathering = new RecordGatherer(
      { name: "none", get: async () => null, close: async () => {} },
      "all",
      1,
      false,
    );
    await expect(gathering.add(change(0, more) as Leaf)).rejects.toThrow(Unproven);
  });
});
