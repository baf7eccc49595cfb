import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import type { AppendedRecord, Log, NewRecord } from "../../../infra/log/log.ts";
import type { Ownership } from "../../../infra/log/ownership.ts";
import type { Store } from "../../../infra/store/store.ts";
import { FollowedRecord } from "../../../pipelines/4-publish/followed.ts";
import { archiveManifestKey, dayOfManifest } from "../../../pipelines/record/archive.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import type { Pipeline } from "../../../pipelines/roles/pipeline.ts";
import type { Owner } from "../../../pipelines/roles/protocol/owner.ts";
import { proveWhole } from "../../helpers/oracle.ts";
import { archivedIds, fileKeyOf, ofKind } from "../../helpers/published.ts";
import { handshake, later } from "../2-ingest/records.ts";
import { TRUST } from "../4-publish/world.ts";
import { Deployment, gradeAll } from "./deployment.ts";
import { dayOf, placed, SELLERS } from "./records.ts";

/** One process' share of the partitions. */
export type Share = Pick<Ownership, "held" | "heard" | "onChange">;

/** A log, two stores, and processes that share the partitions of the log. */
export interface ArchiveEngine {
  log: Log;
  stores: { privateStore: Store; publicStore: Store };
  /** So many more processes; resolves when the partitions are dealt out among all. */
  join(count: number): Promise<Share[]>;
  /** One process ends; resolves when the others have its partitions. */
  leave(one: Share): Promise<void>;
  /** Closes what the story does not: it closes the stores itself. */
  close(): Promise<void>;
}

export const START = "2026-10-05T00:00:00.000Z";
export const FIRST = START.slice(0, 10);
const DAYS = 4;
const DAY = 86_400_000;
/** Small, so that a day has several files. */
const ROWS_A_FILE = 10;
const LONG_MS = 900_000;
const at = (days: number, ms = 0): Date => new Date(later(START, days * DAY + ms));

/**
 * The story of the archive, over any engine: days come of age, one of the owners ends between what it wrote down and the
 * publisher's file, late records follow, and a new owner begins with an empty disk. Beside it `touchstone start` archives
 * the same log over directories, undisturbed, and an observer's lake follows what was filed.
 */
export function archiveStory(open: (dir: string, clock: FixedClock) => Promise<ArchiveEngine>, count: number): void {
  const clock = new FixedClock(START);
  const acked: AppendedRecord[] = [];
  let dir: string;
  let engine: ArchiveEngine;
  let shared: Deployment;
  let alone: Deployment;
  let start: Pipeline;
  let observer: Pipeline;
  let shares: Share[];
  let owners: Owner[];
  const append = async (records: readonly NewRecord[]) => void acked.push(...(await engine.log.append(records)));

  /** Owners write down, the publisher names: evidence of what is closed, then the archive of what is old enough. */
  async function round(by: readonly Owner[]): Promise<void> {
    for (const owner of by) await owner.makeEvidence(clock.now());
    await shared.publishing().publishEvidence();
    for (let files = 1; files > 0; ) {
      for (const owner of by) await owner.makeArchive(clock.now());
      files = (await shared.publishing().publishArchive(shared.filing({ rowsPerFile: ROWS_A_FILE }))).files;
    }
  }

  const ownLake = (): Lake => alone.lakes[0]!;
  const observed = (): Lake => alone.lakes[1]!;
  /** Of the owners that have not ended. */
  const sharedLakes = (): Lake[] => shared.lakes.slice(1);
  const evict = async (): Promise<number> => {
    const { archive } = await new FollowedRecord(alone.publicStore, () => TRUST).current();
    return observer.evictArchived(archive);
  };

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "archive-story-"));
    engine = await open(dir, clock);
    shared = await Deployment.over(join(dir, "shared"), engine.log, clock, engine.stores);
    alone = await Deployment.open(join(dir, "alone"), engine.log, clock);
    start = await alone.pipeline({ rowsPerFile: ROWS_A_FILE });
    observer = await alone.pipeline();
    for (let day = 0; day < DAYS; day++) await append(dayOf(START, day));
    shares = await engine.join(count);
    owners = [];
    for (const ownership of shares) owners.push(await shared.owner([], { ownership }));
    clock.set(at(DAYS, -1));
    await start.grade(clock.now());
    await gradeAll(owners, clock.now());
    await shared.publishing().takeRuns();
  }, LONG_MS);
  afterAll(async () => {
    await shared.close();
    await alone.close();
    await engine.close();
    await rm(dir, { recursive: true, force: true });
  }, LONG_MS);

  test("nothing leaves an observer's lake before it is filed", async () => {
    await observer.ingest();
    const before = await tablesOf([observed()]);
    expect(before).toEqual(await tablesOf([ownLake()]));
    expect(await evict()).toBe(0);
    expect(await tablesOf([observed()])).toEqual(before);
  });

  test("an owner ends after it wrote its rows down: they are filed, and leave the lake of whoever has them then", {
    timeout: LONG_MS,
  }, async () => {
    clock.set(at(112));
    await start.ingest();
    await start.archiveOldDays(clock.now());
    for (const owner of owners) await owner.makeEvidence(clock.now());
    await shared.publishing().publishEvidence();
    for (const owner of owners) await owner.makeArchive(clock.now());
    await engine.leave(shares[0]!);
    await round(owners.slice(1));
    expect(await filesOf(shared)).toEqual(await filesOf(alone));
    expect(await tablesOf(sharedLakes())).toEqual(await tablesOf([ownLake()]));
  });

  test("what was filed leaves an observer's lake, and nothing else", async () => {
    const before = await tablesOf([observed()]);
    const left = await evict();
    const after = await tablesOf([observed()]);
    expect(left).toBe(SELLERS.length * 3 * 2);
    expect(after).toEqual(await tablesOf([ownLake()]));
    const gone = before.event!.length - after.event!.length;
    expect([gone, await evict()]).toEqual([left, 0]);
    const paid = (tables: typeof before) => tables.event!.filter((row) => row.includes('"paid.intent"'));
    expect(paid(after)).toEqual(paid(before));
  });

  test("records of a filed day that come late get a further file, beside the next day's", {
    timeout: LONG_MS,
  }, async () => {
    const late = SELLERS.slice(0, 4).map(({ name }) =>
      placed(handshake(name, later(START, DAY - 1_000), { price: "0.990000" })),
    );
    await append(late);
    clock.set(at(113));
    await start.ingest();
    await start.archiveOldDays(clock.now());
    await round(owners.slice(1));
    const files = await filesOf(alone);
    const days = new Set(files.map(({ manifest }) => dayOfManifest(manifest)));
    expect([...days].sort()).toEqual([0, 1, 2].map((n) => addDays(FIRST, n)));
    const first = files.filter(({ manifest }) => manifest.subject === "liveness_probes" && manifest.from === START);
    expect(first.map(({ manifest }) => manifest.rows)).toEqual([10, 10, 7, late.length]);
    // Cards were graded on the last day, which is not old enough.
    expect(files.some(({ manifest }) => manifest.subject === "grades" && manifest.rows > 0)).toBe(false);
    const ids = await archivedIds(shared.publicStore, await shared.leaves());
    expect(ids).toHaveLength(SELLERS.length * 3 * 3 + late.length);
    for (const { eventId } of late) expect(ids).toContain(eventId);
  });

  test("its files and manifests are those of one undisturbed process, byte for byte, and so is what is left", async () => {
    expect(await filesOf(shared)).toEqual(await filesOf(alone));
    const want = await tablesOf([ownLake()]);
    expect(want.seen).toHaveLength(SELLERS.length);
    expect(await tablesOf(sharedLakes())).toEqual(want);
    await evict();
    expect(await tablesOf([observed()])).toEqual(want);
  });

  test("a new owner with an empty disk has rows and totals at once, and nothing to file", {
    timeout: LONG_MS,
  }, async () => {
    const [ownership] = await engine.join(1);
    for (const one of shares.slice(1)) await engine.leave(one);
    const fresh = await shared.owner([], { ownership: ownership! });
    await fresh.ingest();
    expect(await tablesOf([shared.lakes.at(-1)!])).toEqual(await tablesOf([ownLake()]));
    expect(await fresh.makeArchive(clock.now())).toEqual({ removed: 0, rows: 0 });
  });

  test("every acknowledged record is once in segments, in lake or archive, in evidence and tree; the audit is clean", {
    timeout: LONG_MS,
  }, async () => {
    const common = { log: engine.log, trust: TRUST, acked, closedBefore: addDays(FIRST, DAYS), audited: false };
    await proveWhole({ ...common, ...shared, lakes: [{ lake: shared.lakes.at(-1)! }] });
    await proveWhole({ ...common, ...alone, lakes: alone.lakes.map((lake) => ({ lake })) });
  });
}

/** Everything that is published of the archive. */
async function filesOf(one: Deployment) {
  const textAt = async (key: string) => Buffer.from((await one.publicStore.get(key))!.bytes).toString("base64");
  return Promise.all(
    ofKind(await one.leaves(), "archive").map(async (leaf) => ({
      ...{ manifest: leaf.manifest, sha256: leaf.sha256, positions: leaf.positions, supersedes: leaf.supersedes },
      file: await textAt(fileKeyOf(leaf)),
      signed: await textAt(archiveManifestKey(leaf.manifest.id)),
    })),
  );
}

/** Everything that these lakes hold together, but for the order that records came in. */
async function tablesOf(lakes: readonly Lake[]): Promise<Record<string, string[]>> {
  const tables: Record<string, string[]> = {};
  const samples = "(SELECT * EXCLUDE (row) FROM every_sample)";
  for (const table of ["event", samples, "seen", "quoted", "payee", "endpoint", "listing", "paid_intent"]) {
    const query = `SELECT to_json(t)::VARCHAR AS row FROM ${table} t`;
    const rows = (await Promise.all(lakes.map((lake) => lake.all<{ row: string }>(query)))).flat();
    tables[table] = rows.map(({ row }) => row).sort();
  }
  return tables;
}
