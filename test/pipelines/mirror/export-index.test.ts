import { spawnSync } from "node:child_process";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { exportIndex, openHintedIndex, openMirroredRecord } from "../../../pipelines/mirror/export-index.ts";
import { Unproven } from "../../../pipelines/published/errors.ts";
import { DirectorySource } from "../../../pipelines/published/source.ts";
import { indexLineOf } from "../../helpers/market-index.ts";
import { runs } from "../../helpers/programs.ts";
import { PublicRecord } from "../../helpers/public-record.ts";
import { keysOf, Mirror, publishAll, sourceDir } from "./testbed.ts";

let record: PublicRecord;
let mirror: Mirror;
let file: string;

beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "e", 40);
  mirror = await Mirror.open();
  await mirror.run(new DirectorySource(sourceDir(record)), { keys: keysOf(record) });
  file = join(mirror.dir, "index.parquet");
});

afterAll(async () => {
  await mirror.close();
  await record.close();
});

const open = async ({ publicStore, stateStore }: Mirror) =>
  openHintedIndex(await openMirroredRecord(publicStore, stateStore));

describe("the index as Parquet", () => {
  test("two independent readers see every endpoint with its letter and its signed card", async () => {
    const index = await open(mirror);
    expect(await exportIndex(index, file)).toBe(40);
    const own = await asyncBufferFromFile(file);
    const rows = await parquetReadObjects({ file: own, compressors });
    const lines = [...record.committer.fold.caps.values()].map((cap) => indexLineOf(cap)!);
    expect(rows.map(({ url }) => url).sort()).toEqual(lines.map(({ url }) => url).sort());
    for (const line of lines) {
      const row = rows.find(({ capability_id }) => capability_id === line.capability_id)!;
      expect(row.band).toBe(line.band);
      expect(row.tier ?? null).toBe(line.tier);
      expect(Number(row.sample_count)).toBe(line.sample_count);
      expect(row.composite ?? null).toBe(line.card?.composite ?? null);
      expect(row.correctness_lower ?? null).toBe(line.card?.components?.correctness.lower ?? null);
      expect(row.flags ?? []).toEqual(line.card?.flags ?? []);
      expect(row.card ? JSON.parse(String(row.card)) : null).toEqual(line.card);
    }
    const { key_value_metadata } = await parquetMetadataAsync(own);
    expect(key_value_metadata).toContainEqual({ key: "tree_size", value: String(index.treeSize) });

    const duck = await (await DuckDBInstance.create(":memory:")).connect();
    const sums = await duck.runAndReadAll(
      `select count(*)::int n, count(card)::int cards, sum(composite) composite from read_parquet('${file}')`,
    );
    const [n, cards, composite] = sums.getRows()[0]!;
    expect(n).toBe(40);
    expect(cards).toBe(lines.filter(({ card }) => card).length);
    expect(composite).toBeCloseTo(
      lines.reduce((sum, { card }) => sum + (card?.composite ?? 0), 0),
      9,
    );
    duck.closeSync();
  });

  test("the command does it in a process of its own, and says where to look", () => {
    const file = join(mirror.dir, "by-command.parquet");
    const args = [...runs("touchstone.ts"), "export", mirror.dir, file, "--json"];
    const { stdout, status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect([status, stderr]).toEqual([0, ""]);
    expect(JSON.parse(stdout)).toMatchObject({ rows: 40, file });
  });

  test("a byte that rotted on the mirror's disk is found, named, and leaves no file", async () => {
    const rotten = await Mirror.open(mirror);
    try {
      const folder = join(rotten.dir, "public", "index", "shard");
      const shard = (await readdir(folder))[0]!;
      await writeFile(join(folder, shard), Buffer.from("not what it was"));
      const index = await open(rotten);
      const out = join(rotten.dir, "rotten.parquet");
      await expect(exportIndex(index, out)).rejects.toThrow(Unproven);
      await expect(exportIndex(index, out)).rejects.toThrow(shard);
      expect((await readdir(rotten.dir)).filter((name) => name.startsWith("rotten"))).toEqual([]);
    } finally {
      await rotten.close();
    }
  });

  test("a folder that nobody mirrored into is refused with what to do", async () => {
    const empty = await Mirror.open();
    try {
      await expect(open(empty)).rejects.toMatchObject({ code: "usage" });
    } finally {
      await empty.close();
    }
  });
});
