import { once } from "node:events";
import { createWriteStream, existsSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { type Lake, openLake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { capId, partitionOf } from "../../pipelines/record/ids.ts";
import { NOW, PROTOTYPE, preparePrototype, synth } from "./grade-data.ts";

/** Partitions of the log that the rows would have come from. */
export const PARTITIONS = 8;
/** Rows of every fortieth endpoint: it has paid calls enough for a letter. */
export const MANY_ROWS = 200;
export { NOW };

/** Address of endpoint e: a shop has five. */
export const urlOf = (e: number): string => `https://shop${Math.floor(e / 5)}.example/paid/${e}`;

export const openRaw = (dir: string, memoryLimit: string): Promise<Lake> =>
  openLake(join(dir, "raw.duckdb"), { memoryLimit, threads: 2, init: [sql("tables/settings")] });

export const openFilled = (dir: string, memoryLimit: string): Promise<Lake> =>
  openLake(join(dir, "lake.duckdb"), { memoryLimit, threads: 2, init: INGEST_TABLES });

/** Makes the raw rows, and the address and capability id of each endpoint (`named`). */
export async function makeRaw(raw: Lake, dir: string, endpoints: number, rows: number): Promise<void> {
  await raw.run(synth(endpoints, rows, Math.max(rows, MANY_ROWS)));
  const file = join(dir, "named.csv");
  const out = createWriteStream(file);
  for (let e = 0; e < endpoints; e++) {
    const url = urlOf(e);
    const cap = capId("GET", url);
    if (!out.write(`${e},${cap},${url},${partitionOf(cap, PARTITIONS)}\n`)) await once(out, "drain");
  }
  out.end();
  await once(out, "finish");
  await raw.run(`CREATE TABLE named AS FROM read_csv('${file}', header = false,
    columns = {ep: 'UINTEGER', cap: 'VARCHAR', url: 'VARCHAR', part: 'USMALLINT'}); CHECKPOINT`);
}

/**
 * The tables of the lake as ingest leaves them: probes are events, calls are samples, every endpoint is listed by its
 * seller and was asked. A hundredth of a hundredth of the rows are withdrawn, as in the raw rows.
 */
const FROM_RAW = [
  `CREATE TEMP VIEW probe AS SELECT n.cap AS cap, n.part, s.* EXCLUDE (cap) FROM raw.samples s JOIN raw.kind_of k ON k.cap = s.cap
    JOIN raw.named n ON n.ep = k.ep`,
  `INSERT INTO endpoint SELECT n.cap, n.url, 'GET', NULL, k.domain, k.domain, k.domain, FALSE FROM raw.named n JOIN raw.kind_of k USING (ep)`,
  `INSERT INTO site SELECT n.cap, k.pay_to, k.domain, FALSE, FALSE FROM raw.named n JOIN raw.kind_of k USING (ep)`,
  `INSERT INTO event BY NAME SELECT obs_id AS event_id, 'handshake' AS type, cap, 'observations.free' AS topic, part, 0 AS log_offset,
    t AS observed_at, t AS appended_at, fault, live, honest, latency_ms, round(price * 1e6)::BIGINT AS price_micro, pay_to
    FROM probe WHERE kind = 0`,
  `INSERT INTO samples BY NAME SELECT * EXCLUDE (part) FROM probe WHERE kind > 0`,
  `INSERT INTO seen BY NAME SELECT cap, count(*) FILTER (kind = 0) AS probes, count(*) FILTER (kind = 0) AS answered,
    count(*) FILTER (kind = 0 AND live) AS asked, min(t) AS first_seen, max(t) AS last_seen, count(*) FILTER (kind = 1) AS paid_calls,
    max(t) AS terms_t, max(obs_id) AS terms_id, arg_max(round(price * 1e6)::BIGINT, t) AS price_micro, any_value(pay_to) AS pay_to,
    [{network: 'eip155:8453', asset: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913', payable: TRUE, pay_to: any_value(pay_to),
      price: printf('%.6f', coalesce(arg_max(price, t), 0.01))}] AS offers,
    ['x402'] AS protocols, '[]' AS terms_defects, '[]' AS differs FROM probe GROUP BY cap`,
  "INSERT INTO quoted SELECT cap, price_micro FROM seen WHERE price_micro IS NOT NULL",
  "INSERT INTO payee SELECT cap, pay_to, terms_t FROM seen WHERE pay_to IS NOT NULL",
  `INSERT INTO listing SELECT 'rec_' || upper(left(md5('l' || ep), 26)), cap, TIMESTAMP '2026-08-17', ep, 'catalogue', url, FALSE, TRUE,
    json_object('normalised_url', url, 'class', 'any', 'description', 'Resource ' || ep || ' of a shop',
      'offers', [{network: 'eip155:8453', price: '0.01'}]), '[]' FROM raw.named`,
  "INSERT INTO withdrawn FROM raw.withdrawn",
  `INSERT INTO positions SELECT topic, part, 1000000000 FROM (SELECT DISTINCT part FROM raw.named),
    (VALUES ('observations.free'), ('observations.paid')) v(topic)`,
  "INSERT INTO dirty SELECT cap FROM raw.named",
  "INSERT INTO stale SELECT cap FROM raw.named",
  "DROP VIEW probe",
  "CHECKPOINT",
];

/** @param onStep called before each table is filled */
export async function fillFromRaw(lake: Lake, dir: string, onStep: (text: string) => void): Promise<void> {
  await lake.run(`ATTACH '${join(dir, "raw.duckdb")}' AS raw (READ_ONLY)`);
  for (const statement of FROM_RAW) {
    onStep(statement.slice(0, 24));
    await lake.run(statement);
  }
  await lake.run("DETACH raw");
}

/** What the prototype of the design folder makes of an endpoint's raw rows. */
export interface Recomputed {
  ep: number;
  tier: number;
  letter: string;
  composite: number;
}

/** Letters of some endpoints by the prototype, from the raw rows alone; null without a design folder. */
export async function recomputed(dir: string, eps: readonly number[]): Promise<Recomputed[] | null> {
  if (!existsSync(PROTOTYPE)) return null;
  const instance = await DuckDBInstance.create(":memory:", { threads: "2", memory_limit: "2GB" });
  const conn = await instance.connect();
  try {
    await conn.run(`SET TimeZone = 'UTC'; ATTACH '${join(dir, "raw.duckdb")}' AS raw (READ_ONLY);
      CREATE TABLE kind_of AS SELECT k.* FROM raw.kind_of k WHERE ep IN (${eps.join(",")});
      CREATE TABLE samples AS SELECT s.* FROM raw.samples s SEMI JOIN kind_of USING (cap);
      CREATE TABLE withdrawn AS SELECT w.* FROM raw.withdrawn w SEMI JOIN samples USING (obs_id)`);
    await conn.run(await preparePrototype(conn));
    const rows = await conn.runAndReadAll(
      "SELECT ep::INTEGER AS ep, tier::INTEGER AS tier, letter, composite FROM published WHERE tier IS NOT NULL ORDER BY ep",
    );
    return rows.getRowObjectsJS() as unknown as Recomputed[];
  } finally {
    conn.closeSync();
    instance.closeSync();
  }
}
