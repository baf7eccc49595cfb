import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { createLogger } from "../../../infra/telemetry.ts";
import { NO_RELATED_PARTIES_SHA256, type NonDeliveringSeller } from "../../../pipelines/3-grade/related.ts";
import { relatedPartyDrafts } from "../../../pipelines/4-publish/known.ts";
import { sealGroups } from "../../../pipelines/4-publish/leaves.ts";
import { createClose } from "../../../pipelines/5-archive/evidence.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import type { Leaf } from "../../../pipelines/record/leaf.ts";
import { capOf } from "./world.ts";

const PARTITIONS = 4;
const [EARLY, NOON, LATE] = ["2026-11-21T11:00:00.000Z", "2026-11-21T12:00:00.000Z", "2026-11-21T13:00:00.000Z"];

const thief = (name: string, payTo: string | null = `0x${name}`): NonDeliveringSeller => {
  return { cap: capOf(name), pay_to: payTo, domain: `${name}.example` };
};
const THIEVES = Array.from({ length: 8 }, (_, i) => thief(`thief-${i}`));
const partitionIn = ({ cap }: NonDeliveringSeller): number => partitionOf(cap, PARTITIONS);

/** A run that has read these partitions. */
const run = (
  thieves: readonly NonDeliveringSeller[] | undefined,
  now = NOON,
  read: readonly number[] = [0, 1, 2, 3],
) => ({
  ...{ now, thieves },
  positions: { "observations.paid": Object.fromEntries(read.map((partition) => [String(partition), 5])) },
});

/** Publish what the run changes. @returns the number of leaves */
async function publish(fold: PublishedFold, said: ReturnType<typeof run>): Promise<number> {
  const drafts = relatedPartyDrafts(fold, said, PARTITIONS);
  const { entries, refused } = await sealGroups([drafts], fold.size, fold.nextSeq, NOON);
  expect(refused).toEqual([]);
  for (const { leaf } of entries) fold.apply(leaf);
  return entries.length;
}

const byCap = (a: NonDeliveringSeller, b: NonDeliveringSeller): number => (a.cap < b.cap ? -1 : 1);
const hashOf = (thieves: readonly NonDeliveringSeller[]): string =>
  sha256hex(
    [...thieves]
      .sort(byCap)
      .map(({ cap, domain, pay_to }) => `${canonicalText({ cap, domain, pay_to })}\n`)
      .join(""),
  );

describe("the published table of related parties", () => {
  test("is the thieves of each partition as the newest run of it had them, under the hash of all", async () => {
    const fold = new PublishedFold();
    expect(fold.relatedParties.sha256).toBe(NO_RELATED_PARTIES_SHA256);
    for (const partition of [0, 1, 2, 3]) {
      const own = THIEVES.filter((one) => partitionIn(one) === partition);
      await publish(fold, run(own, NOON, [partition]));
    }
    expect(fold.relatedParties.table).toEqual([...THIEVES].sort(byCap));
    expect(fold.relatedParties.sha256).toBe(hashOf(THIEVES));
    const [gone, moved, ...rest] = THIEVES;
    const next = [{ ...moved!, pay_to: null }, ...rest];
    expect(await publish(fold, run(next, LATE))).toBe(1);
    expect(fold.relatedParties.table).toEqual([...next].sort(byCap));
    expect(fold.relatedParties.table.some(({ cap }) => cap === gone!.cap)).toBe(false);
    expect(fold.relatedParties.sha256).toBe(hashOf(next));
  });

  test("gets no leaf from a run that changes nothing, and none from rows of a partition that it has not read", async () => {
    const fold = new PublishedFold();
    await publish(fold, run(THIEVES));
    expect(await publish(fold, run(THIEVES, LATE))).toBe(0);
    const others = THIEVES.filter((one) => partitionIn(one) !== 0);
    expect(others.length).toBeLessThan(THIEVES.length);
    expect(await publish(fold, run(others, LATE, [1, 2, 3]))).toBe(0);
    expect(await publish(fold, run([], LATE, []))).toBe(0);
    // As runs of form 1 are.
    expect(await publish(fold, run(undefined, LATE))).toBe(0);
  });

  test("keeps a row that a run of a later moment changed", async () => {
    const fold = new PublishedFold();
    await publish(fold, run(THIEVES.slice(0, 1)));
    expect(await publish(fold, run([], EARLY))).toBe(0);
    await publish(fold, run([], LATE));
    expect(await publish(fold, run(THIEVES.slice(0, 1), NOON))).toBe(0);
    expect(fold.relatedParties.table).toEqual([]);
  });

  test("of the longest rows fits into leaves, of which the last names it", async () => {
    const fold = new PublishedFold();
    const long = Array.from({ length: 100 }, (_, i) => ({
      ...thief(`long-${i}`, "\u0001".repeat(200)),
      domain: `${String(i).padStart(4, "0")}${"d".repeat(249)}`,
    }));
    const drafts = relatedPartyDrafts(fold, run(long), PARTITIONS);
    expect(drafts.map(({ kin }) => kin)).toEqual([null, null, hashOf(long)]);
    expect(await publish(fold, run(long))).toBe(3);
    expect(fold.relatedParties.sha256).toBe(hashOf(long));
  });

  test("can be made again as any head had it", async () => {
    const fold = new PublishedFold();
    const had = [THIEVES.slice(0, 2), THIEVES.slice(1, 5), [], THIEVES.slice(5)];
    for (const [i, thieves] of had.entries()) await publish(fold, run(thieves, `2026-11-21T12:00:0${i}.000Z`));
    const names = had.map(hashOf);
    expect(names.every((name) => fold.relatedParties.has(name))).toBe(true);
    expect(fold.relatedParties.has(hashOf(THIEVES))).toBe(false);
    const tables = fold.relatedParties.tables([...names, hashOf(THIEVES)]);
    expect([...tables.keys()].sort()).toEqual([...names].sort());
    for (const [i, name] of names.entries()) expect(tables.get(name)).toEqual([...had[i]!].sort(byCap));
  });
});

test("a table that a run of form 1 kept stands in the evidence of its day, though no leaf names it", async () => {
  const dir = await mkdtemp(join(tmpdir(), "kin-"));
  const privateStore = await openDirectoryStore(dir);
  try {
    const [table, name] = [THIEVES.slice(0, 2), hashOf(THIEVES.slice(0, 2))];
    const fold = new PublishedFold();
    const inputs = { kin: name, positions: {}, digest: "" };
    fold.evidence.apply({ kind: "grade", day: "2026-11-21", index: 4, inputs } as unknown as Leaf);
    const files: Uint8Array[] = [];
    const publisher = { current: async () => fold, putEvidence: async (_: string, bytes: Uint8Array) => bytes };
    const logger = createLogger("silent");
    const put = async (key: string, bytes: Uint8Array) => {
      files.push(bytes);
      return publisher.putEvidence(key, bytes);
    };
    const close = () =>
      createClose({ privateStore, logger, publisher: { ...publisher, putEvidence: put } }, "2026-11-21", 0, []);
    expect((await close())!.drafts).toMatchObject([{ holds: "nothing" }]);
    await privateStore.create(`kin/${name}.json`, Buffer.from(JSON.stringify(table)));
    expect((await close())!.drafts).toMatchObject([{ holds: "kin", rows: 1 }]);
    const line = JSON.parse(decompress(files[0]!).toString("utf8"));
    expect(line).toMatchObject({ kin: name, add: [...table].sort(byCap), remove: [] });
    const { etag } = (await privateStore.get(`kin/${name}.json`))!;
    await privateStore.swap(`kin/${name}.json`, Buffer.from(JSON.stringify(THIEVES)), etag);
    await expect(close()).rejects.toThrow("is not what its name says");
  } finally {
    await privateStore.close();
    await rm(dir, { recursive: true, force: true });
  }
});
