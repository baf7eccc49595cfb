import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { indexLineOf } from "../../helpers/market-index.ts";
import { cardOf, listingDraft, PublicRecord } from "../../helpers/public-record.ts";
import { publishIndex, publishKeys, specOf } from "../mirror/testbed.ts";

const OFFERS = [
  { network: "eip155:8453", asset: "0xaa", price: "0.012500", pay_to: "0x01" },
  { network: "eip155:137", asset: "0xbb", price: null, pay_to: "0x01" },
  { network: "solana:x", asset: "So1", price: "0.012500", pay_to: null },
];

let record: PublicRecord;
let dir: string;
let file: string;
beforeAll(async () => {
  record = await PublicRecord.open();
  await publishKeys(record);
  const specs = Array.from({ length: 1_500 }, (_, n) => specOf(`n${n}`));
  await record.publish(
    ...specs.map((spec, n) => [{ ...listingDraft(spec), ...(n % 3 === 0 ? { offers: OFFERS } : {}) }]),
    ...specs.slice(0, 9).map((spec) => record.grades([cardOf(spec)], "B.")),
  );
  await publishIndex(record);
  const { table } = record.committer.fold.index!;
  dir = await mkdtemp(join(tmpdir(), "table-"));
  file = join(dir, "index.parquet");
  await writeFile(file, (await record.store.get(table!))!.bytes);
});
afterAll(async () => {
  await record.close();
  await rm(dir, { recursive: true, force: true });
});

const lines = () => [...record.committer.fold.caps.values()].map((cap) => indexLineOf(cap)!);

describe("the index as it is published in Parquet", () => {
  it("has a row for each line, in the order of the shards, as hyparquet reads it", async () => {
    const own = await asyncBufferFromFile(file);
    const rows = await parquetReadObjects({ file: own, compressors });
    expect(rows).toHaveLength(1_500);
    for (const line of lines()) {
      const row = rows.find(({ capability_id }) => capability_id === line.capability_id)!;
      expect(row).toMatchObject({ url: line.url, http_method: line.method, band: line.band, why: line.why });
      expect(row.tier ?? null).toBe(line.tier);
      expect(row.leaf === undefined || row.leaf === null ? null : Number(row.leaf)).toBe(line.leaf);
      expect(row.correctness_lower ?? null).toBe(line.card?.components?.correctness.lower ?? null);
      const isPriced = (line.offers?.length ?? 0) > 0;
      expect([row.price ?? null, row.asset ?? null]).toEqual(isPriced ? [0.0125, "0xaa"] : [null, null]);
      expect(row.networks ?? []).toEqual(isPriced ? ["eip155:8453", "eip155:137", "solana:x"] : []);
      expect(row.pay_tos ?? []).toEqual(isPriced ? ["0x01"] : []);
    }
    const { key_value_metadata } = await parquetMetadataAsync(own);
    expect(key_value_metadata).toContainEqual({
      key: "tree_size",
      value: String(record.committer.fold.index!.tree_size),
    });
  });

  it("is read by DuckDB without options", async () => {
    const duck = await (await DuckDBInstance.create(":memory:")).connect();
    const read = await duck.runAndReadAll(
      `select count(*)::int n, sum(price)::double total, count(distinct host)::int hosts,
         count(*) filter (list_contains(networks, 'eip155:137'))::int polygon, typeof(any_value(as_of)) moment
       from read_parquet('${file}')`,
    );
    expect(read.getRowObjects()).toEqual([
      { n: 1_500, total: expect.closeTo(500 * 0.0125, 9), hosts: 1_500, polygon: 500, moment: "TIMESTAMP" },
    ]);
    duck.closeSync();
  });
});
