import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { MAX_BATCH_RECORDS, type NewRecord } from "../../../infra/log/log.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { createMetrics } from "../../../infra/telemetry.ts";
import { BATCH_ROWS } from "../../../pipelines/2-ingest/batch.ts";
import { GROUP_BATCHES, INGESTED } from "../../../pipelines/2-ingest/load.ts";
import { garbage, handshake } from "./records.ts";
import { openTestLake, openTestWorld, PARTITIONS, type World } from "./world.ts";

/**
 * A pass over more batches of one partition than a full group has, which are loaded as two groups: one batch is read while
 * another is committed, one group is parsed while another is written, and every boundary is one where a record could be
 * lost.
 */
const NAMES = Array.from({ length: 64 }, (_, i) => `large${i}`)
  .filter((name) => handshake(name, "2025-01-01T00:00:00.000Z").partition === 1)
  .slice(0, 8);
const RECORDS = GROUP_BATCHES * BATCH_ROWS + 5_000;
const FIRST = Date.parse("2025-01-01T00:00:00.000Z");

let world: World;
beforeAll(async () => {
  world = await openTestWorld();
  let batch: NewRecord[] = [];
  for (let i = 0; i < RECORDS; i++) {
    const time = new Date(FIRST + Math.floor(i / NAMES.length) * 60_000).toISOString();
    batch.push(handshake(NAMES[i % NAMES.length]!, time, { terms: null }));
    if (batch.length === MAX_BATCH_RECORDS || i === RECORDS - 1) {
      await world.append(...batch);
      batch = [];
    }
    if (i === BATCH_ROWS) await world.append(garbage("large0", "{"));
  }
});
afterAll(() => world.close());

const ROWS =
  "SELECT count(*) AS rows, sum(hash(s::VARCHAR)::HUGEINT)::VARCHAR AS digest FROM (SELECT * EXCLUDE (row) FROM every_sample) s";

test("every record once, whatever batch it fell into", async () => {
  expect(await world.ingest.pass()).toMatchObject({ rows: RECORDS });
  const [found] = await world.lake.all(
    `SELECT count(*)::INTEGER AS events, count(DISTINCT event_id)::INTEGER AS ids, (SELECT count(*) FROM every_sample)::INTEGER AS samples,
       (SELECT sum(probes) FROM seen)::INTEGER AS probes FROM event`,
  );
  expect(found).toEqual({ events: RECORDS, ids: RECORDS, samples: RECORDS, probes: RECORDS });
  const positions = await world.ingest.positions();
  for (const topic of INGESTED) {
    for (let partition = 0; partition < PARTITIONS; partition++) {
      expect(positions[topic]?.[partition] ?? 0).toBe((await world.log.bounds(topic, partition)).end);
    }
  }
  expect(await world.metrics.text()).toMatch(/touchstone_ingest_rejected_total\{.*\} 1\n/);
});

test("a lake made from the chain of commits has the same rows", async () => {
  const before = await world.lake.all(ROWS);
  expect(await world.ingest.rebuild()).toEqual({ rows: RECORDS });
  expect(await world.lake.all(ROWS)).toEqual(before);
});

test("another ingester ends at the same positions, with the same rows, and leaves no file, also where a commit failed", async () => {
  const dir = await mkdtemp(join(tmpdir(), "large-"));
  const store = await openDirectoryStore(join(dir, "private"));
  const lake = await openTestLake(join(dir, "lake.duckdb"));
  const metrics = createMetrics();
  try {
    let commits = 0;
    const create: typeof store.create = async (key, ...rest) => {
      // The batch after this one has been read already.
      if (rest[1]?.contentType === "application/json" && ++commits === 3) throw new Error("no disk");
      return store.create(key, ...rest);
    };
    const failing = Object.assign(Object.create(store) as typeof store, { create });
    const left = async () => (await readdir(lake.workDir)).filter((name) => /lines|parquet/.test(name));
    await expect((await world.rival({ lake, metrics, privateStore: failing })).pass()).rejects.toThrow("no disk");
    expect([commits, await left()]).toEqual([3, []]);
    const ingest = await world.rival({ lake, metrics, privateStore: store });
    const { positions, rows } = await ingest.pass();
    expect(positions).toEqual(await world.ingest.positions());
    // It goes on behind the commit that stood.
    expect([rows > 0, rows < RECORDS]).toEqual([true, true]);
    expect(await lake.all(ROWS)).toEqual(await world.lake.all(ROWS));
    const text = await metrics.text();
    expect(text).toMatch(/touchstone_ingest_rejected_total\{.*\} 1\n/);
    // Nothing that was on its way is left.
    expect(await left()).toEqual([]);
  } finally {
    await lake.close();
    await store.close();
    await rm(dir, { recursive: true, force: true });
  }
});

test("segments are parsed while those before them are written, and are not loaded if these are not", async () => {
  const dir = await mkdtemp(join(tmpdir(), "large-"));
  const store = await openDirectoryStore(join(dir, "private"));
  const lake = await openTestLake(join(dir, "lake.duckdb"));
  try {
    let loads = 0;
    let hasParsed = false;
    let parsed = () => {};
    const isSecondParsed = new Promise<void>((resolve) => {
      parsed = () => {
        hasParsed = true;
        resolve();
      };
    });
    const transaction: Lake["transaction"] = (work, stage) => {
      const load = stage ? ++loads : 0;
      const parse: typeof stage =
        load === 2
          ? (connection) => stage!({ ...connection, run: (...of) => connection.run(...of).then(parsed) })
          : stage;
      return lake.transaction(async (tx) => {
        if (load === 2) throw new Error("written without those before");
        const done = await work(tx);
        if (load !== 1) return done;
        // Where it is never parsed, the end of this wait is what says so.
        await Promise.race([isSecondParsed, setTimeout(300_000)]);
        throw new Error("no room");
      }, parse);
    };
    const failing = Object.assign(Object.create(lake) as Lake, { transaction });
    for (const name of ["run", "all", "batches", "onOneThread", "replace"] as const)
      Object.assign(failing, { [name]: lake[name].bind(lake) });
    await expect((await world.rival({ lake: failing, privateStore: store })).pass()).rejects.toThrow("no room");
    expect([loads, hasParsed]).toEqual([2, true]);
    expect(await lake.all("SELECT file FROM loaded UNION ALL SELECT event_id FROM event")).toEqual([]);
    expect((await readdir(lake.workDir)).filter((name) => /lines|parquet/.test(name))).toEqual([]);
    await (await world.rival({ lake, privateStore: store })).pass();
    expect(await lake.all(ROWS)).toEqual(await world.lake.all(ROWS));
  } finally {
    await lake.close();
    await store.close();
    await rm(dir, { recursive: true, force: true });
  }
});
