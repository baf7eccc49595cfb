import { expect, test } from "vitest";
import type { EvidenceLeaf } from "../../../pipelines/record/leaf.ts";
import { View } from "../../../serving/tables/view.ts";

/** A leaf of one file of a bucket's rows on a day. */
const leafOf = (bucket: number, day: string, freeze = 0): EvidenceLeaf =>
  ({
    ...{ kind: "evidence", day, freeze, bucket, holds: "rows", rows: 1, key: `evidence/${day}/${bucket}.${freeze}` },
    ...{ sha256: "00", bytes: 1, unpacked_sha256: "00", unpacked_bytes: 1 },
  }) as EvidenceLeaf;

test("the newest day with evidence stays the newest when an older day is closed again", () => {
  const { evidence } = View.empty("record.example");
  expect(evidence.newestDay).toBeNull();
  for (const leaf of [leafOf(3, "2026-11-18"), leafOf(3, "2026-11-19"), leafOf(3, "2026-11-17", 1)]) evidence.add(leaf);
  expect(evidence.newestDay).toBe("2026-11-19");
  evidence.add({ ...leafOf(4, "2026-11-20"), holds: "nothing" });
  expect(evidence.newestDay).toBe("2026-11-19");
});
