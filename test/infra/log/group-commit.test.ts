import { describe, expect, it } from "vitest";
import { GroupCommit } from "../../../infra/log/embedded.ts";
import { type AppendedRecord, LogBusy, MAX_BATCH_RECORDS, type NewRecord } from "../../../infra/log/log.ts";
import { record } from "./contract.ts";

/** Commits into arrays; `fails` makes the next commits throw. */
function counting() {
  const commits: number[][] = [];
  const state = { fails: 0 };
  const group = new GroupCommit(async (batches) => {
    if (state.fails-- > 0) throw new Error("no space");
    commits.push(batches.map((b) => b.length));
    return batches.map((b) => b.map((r, i): AppendedRecord => ({ ...r, offset: i })));
  });
  return { group, commits, state };
}

const one = record("asks", 0);
const batch = (n: number): NewRecord[] => Array.from({ length: n }, () => one);

describe("group commit", () => {
  it("commits what arrives in one turn together, and what comes later by itself", async () => {
    const { group, commits } = counting();
    await Promise.all([1, 2, 3].map((n) => group.add(batch(n), n)));
    await group.add(batch(4), 4);
    expect(commits).toEqual([[1, 2, 3], [4]]);
  });

  it("splits a group at a full batch, in the order of arrival, and keeps each append whole", async () => {
    const { group, commits } = counting();
    const sizes = [6_000, 4_000, 1, MAX_BATCH_RECORDS, MAX_BATCH_RECORDS - 1, 2];
    const done = await Promise.all(sizes.map((n) => group.add(batch(n), n)));
    expect(done.map((a) => a.length)).toEqual(sizes);
    expect(commits).toEqual([[6_000, 4_000], [1], [MAX_BATCH_RECORDS], [MAX_BATCH_RECORDS - 1], [2]]);
  });

  it("rejects everything of a group that failed, and nothing else", async () => {
    const { group, commits, state } = counting();
    state.fails = 1;
    const outcomes = await Promise.allSettled([MAX_BATCH_RECORDS - 1, 1, 5].map((n) => group.add(batch(n), n)));
    expect(outcomes.map((o) => o.status)).toEqual(["rejected", "rejected", "fulfilled"]);
    expect(commits).toEqual([[5]]);
  });

  it.each([
    { records: MAX_BATCH_RECORDS, bytes: 1, fit: 20 },
    { records: 1, bytes: 64 * 1024 * 1024, fit: 4 },
  ])(
    "refuses what would pile up: $fit appends of $records records and $bytes bytes fit",
    async ({ records, bytes, fit }) => {
      const { group } = counting();
      const full = batch(records);
      const burst = await Promise.allSettled(Array.from({ length: fit + 2 }, () => group.add(full, bytes)));
      expect(burst.filter((o) => o.status === "fulfilled")).toHaveLength(fit);
      for (const o of burst) if (o.status === "rejected") expect(o.reason).toBeInstanceOf(LogBusy);
      expect(await group.add(full, bytes)).toHaveLength(records);
    },
  );

  it("is drained when nothing waits, also after a failure", async () => {
    const { group, commits, state } = counting();
    await group.whenIdle();
    const ok = group.add(batch(1), 1);
    await group.whenIdle();
    expect(commits).toEqual([[1]]);
    await ok;
    state.fails = 1;
    const failed = expect(group.add(batch(1), 1)).rejects.toThrow("no space");
    await group.whenIdle();
    await failed;
  });
});
