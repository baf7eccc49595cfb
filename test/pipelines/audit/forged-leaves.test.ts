import { describe, expect, test } from "vitest";
import { evidenceFileOf } from "../../../pipelines/published/files.ts";
import { evidenceKey } from "../../../pipelines/published/objects.ts";
import type { EvidenceLeaf } from "../../../pipelines/record/leaf.ts";
import { archiveDraft } from "../../helpers/archive-draft.ts";
import { SIGNERS } from "../4-publish/world.ts";
import { CAP, ForgedRecord, findingOf, type LeafMembers, PAID, paidLine } from "./forged.ts";

/** Signed leaves and lines with days, times and keys that are none: each is a problem, and the audit goes on to its end. */
const AT = "2026-10-06T00:00:00.000Z";
const HASH = "cd".repeat(32);

const evidence = (day: string, unpacked_sha256 = HASH): LeafMembers => ({
  ...{ kind: "evidence", at: AT, day, freeze: 0, part: 1, parts: 1, holds: "rows", bucket: 5, rows: 1, positions: {} },
  ...{ below: null, key: evidenceKey(day, 5, unpacked_sha256), sha256: "ab".repeat(32), bytes: 10 },
  ...{ unpacked_sha256, unpacked_bytes: 10 },
});
const archive = (from: string): LeafMembers => {
  const { draft } = archiveDraft(SIGNERS.cards, "grades", "2026-07-01", "");
  return { ...draft, at: AT, manifest: { ...draft.manifest, from } };
};
const schedule = { kind: "schedule", at: AT, day: "2026-10-06", salt_hash: HASH, covered_root: HASH, covered: 0 };

test.each<[string, LeafMembers, string]>([
  ["evidence of a day that is a path", evidence("../../etc"), "not a day"],
  ["evidence of a day with a space", evidence("a day"), "not a day"],
  ["evidence of a day that does not exist", evidence("2026-99-99"), "not a day"],
  ["a schedule of no day", { ...schedule, day: "2026-02-30" }, "not a day"],
  ["a salt of no day", { ...schedule, opens: { day: "yesterday", salt: HASH } }, "not a day"],
  ["an archive file from no day", archive("2026-99-99T00:00:00.000Z"), "not from a time to a time"],
  ["a time without a form", { ...schedule, at: "2026-10-06T99" }, "not a time"],
  ["a time that does not exist", { ...schedule, at: "2026-10-06T24:00:00.000Z" }, "not a time"],
])("a leaf with %s is a problem, and the audit ends with a verdict", async (_, leaf, says) => {
  const record = new ForgedRecord();
  record.add({ ...schedule, at: "2026-10-05T00:00:00.000Z", day: "2026-10-05" });
  // Archive and evidence are held against each other, day by day.
  await record.close("2026-07-01", "2026-10-05T00:00:00.000Z");
  record.add(leaf);
  const report = await record.audit();
  expect([report.proven, findingOf(report, "leaves").problems[0]]).toEqual([
    false,
    { key: "leaf 3", expected: expect.any(String), got: says },
  ]);
  expect(report.findings.map(({ check }) => check)).toContain("cards, recomputed");
});

const grade = (change: (leaf: LeafMembers) => object) => async () => {
  const record = new ForgedRecord();
  const lines = [paidLine(0)];
  record.grade(lines, "2026-10-05T22:00:00.000Z", { [PAID]: 1 });
  for (const leaf of record.leaves) if (leaf.kind === "grade") Object.assign(leaf, change(leaf));
  await record.close("2026-10-05", "2026-10-06T06:00:00.000Z", lines);
  await record.close("2026-10-06", "2026-10-07T06:00:00.000Z");
  return record;
};
const computedAt = (computed_at: string) =>
  grade(({ card }) => ({ card: { ...(card as object), computed_at, signature: "" } }));

test.each<[string, () => Promise<ForgedRecord>, string, RegExp]>([
  ["a day that is none", grade(() => ({ day: "zz" })), "leaves", /^leaf 1$/],
  ["a time that does not exist", computedAt("2026-13-45T00:00:00.000Z"), "cards, recomputed", /card\.computed_at$/],
  ["a time before all years", computedAt("-271821-04-20T00:00:00.000Z"), "cards, recomputed", /card\.computed_at$/],
])("a card with %s is a problem, and the audit ends with a verdict", async (_, make, check, key) => {
  const report = await (await make()).audit();
  expect([report.proven, findingOf(report, check).problems[0]!.key]).toEqual([false, expect.stringMatching(key)]);
});

test.each(["../../../../etc/passwd", "zz".repeat(32)])("a file named by the hash %s is named by no key", (hash) => {
  expect(() => evidenceFileOf(evidence("2026-10-05", hash) as unknown as EvidenceLeaf)).toThrow(/a key of evidence/);
});

describe("a line of the evidence that cannot be graded", () => {
  const amendment = (field: string, value: unknown) => ({
    ...{ of: paidLine(0).obs_id, capability_id: CAP, topic: PAID, position: 0, observed_at: paidLine(0).t },
    ...{ field, value },
  });
  test.each<[string, object | string]>([
    ["a text that is no text", JSON.stringify(amendment("response_sha256", "\ud800"))],
    ["a sample of no time", paidLine(1, { t: "2026-13-45T00:00:00.000Z" })],
    ["an amendment to no number", amendment("w", {})],
    ["an amendment to no price", amendment("price", [])],
    ["an amendment of the time", amendment("t", 7)],
    ["an amendment to no payee", amendment("pay_to", { a: 1 })],
  ])("%s ends no audit", async (_, line) => {
    const record = new ForgedRecord();
    const lines = [paidLine(0)];
    record.grade(lines, "2026-10-05T22:00:00.000Z", { [PAID]: 1 });
    await record.close("2026-10-05", "2026-10-06T06:00:00.000Z", [...lines, line]);
    await record.close("2026-10-06", "2026-10-07T06:00:00.000Z");
    const report = await record.audit();
    expect(
      findingOf(report, "cards, recomputed").checked + findingOf(report, "cards, recomputed").not_run,
    ).toBeGreaterThan(0);
  });
});
