import { parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { expect } from "vitest";
import { openChain } from "../../../infra/chain/commits.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import type { Log } from "../../../infra/log/log.ts";
import type { Store } from "../../../infra/store/store.ts";
import { readRejected } from "../../../pipelines/2-ingest/batch.ts";
import { INGESTED } from "../../../pipelines/2-ingest/load.ts";

/** Offsets in one Parquet file, read by a reader that is not the one that wrote it. */
async function offsetsIn(bytes: Uint8Array): Promise<number[]> {
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
  const rows = await parquetReadObjects({ file, compressors, columns: ["offset"] });
  return rows.map((row) => Number(row.offset));
}

/**
 * Prove the way from log to lake again: commits tile the log without hole or overlap, every offset is in exactly one
 * live segment or its rejected file, and every event id of a segment stands in the lake once for its day.
 */
export async function proveIngest({ log, store, lake }: { log: Log; store: Store; lake: Lake }): Promise<void> {
  const ids = new Set<string>();
  for (const topic of INGESTED) {
    for (let partition = 0; partition < log.partitions; partition++) {
      const chain = openChain(store, { logId: log.id, topic, partition });
      const { live, next } = await chain.head();
      const { end } = await log.bounds(topic, partition);
      expect(next, `${topic}/${partition}: the chain has all of the log`).toBe(end);
      const found: number[] = [];
      for (const ref of [...live].sort((a, b) => a.first - b.first)) {
        found.push(...(await offsetsIn(await chain.readSegment(ref))));
        if (ref.rejects) found.push(...readRejected(await chain.readSegment(ref.rejects)).map((one) => one.offset));
      }
      const all = Array.from({ length: end }, (_, i) => i);
      expect(
        found.sort((a, b) => a - b),
        `${topic}/${partition}: each offset once`,
      ).toEqual(all);
      const rejected = new Set<string>();
      for (const ref of live) {
        if (ref.rejects)
          for (const one of readRejected(await chain.readSegment(ref.rejects))) rejected.add(String(one.offset));
      }
      for (const record of await log.read(topic, partition, 0, { maxRecords: 10_000 })) {
        if (!rejected.has(String(record.offset))) ids.add(record.eventId);
      }
    }
  }
  const rows = await lake.all<{ event_id: string; n: bigint }>(
    "SELECT event_id, count(*) AS n FROM event GROUP BY event_id, observed_at::DATE",
  );
  expect(rows.filter(({ n }) => n !== 1n)).toEqual([]);
  expect(new Set(rows.map(({ event_id }) => event_id))).toEqual(ids);
}

/** Everything that grading and the planner read, in one comparable piece. */
export async function tablesOf(lake: Lake): Promise<Record<string, unknown[]>> {
  const tables: Record<string, unknown[]> = {};
  // A number of a row says only where it stands in its lake.
  tables.samples = await lake.all("SELECT * EXCLUDE (row) FROM every_sample ORDER BY obs_id");
  for (const [name, order] of [
    ["withdrawn", "obs_id"],
    ["site", "cap"],
    ["seen", "cap"],
    ["quoted", "cap, asked_micro"],
    ["payee", "cap, pay_to"],
    ["endpoint", "cap"],
    ["listing", "event_id"],
  ] as const) {
    tables[name] = await lake.all(`SELECT * FROM ${name} ORDER BY ${order}`);
  }
  return tables;
}
