import { type DuckDBConnection, DuckDBInstance } from "@duckdb/node-api";
import { sql } from "../../../infra/lake/sql.ts";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";

export interface Site {
  cap: string;
  pay_to: string | null;
  domain: string | null;
  ours?: boolean;
  disputed?: boolean;
}

const TABLES = `
CREATE TABLE samples (cap VARCHAR, obs_id VARCHAR, t TIMESTAMP, kind UTINYINT, payer VARCHAR, w DOUBLE, fault VARCHAR,
  live BOOLEAN, honest BOOLEAN, settled BOOLEAN, delivered BOOLEAN, refunded BOOLEAN, delivery DOUBLE, outcome DOUBLE,
  schema_ok BOOLEAN, latency_ms DOUBLE, price DOUBLE, input VARCHAR, response_sha256 VARCHAR, pay_to VARCHAR);
CREATE VIEW every_sample AS SELECT rowid AS row, * FROM samples;
CREATE TABLE withdrawn (obs_id VARCHAR);
CREATE TABLE site (cap VARCHAR, pay_to VARCHAR, domain VARCHAR, ours BOOLEAN, disputed BOOLEAN);`;

const ROW = `[{"cap":"VARCHAR","obs_id":"VARCHAR","t":"TIMESTAMP","kind":"UTINYINT","payer":"VARCHAR","w":"DOUBLE","fault":"VARCHAR",
  "live":"BOOLEAN","honest":"BOOLEAN","settled":"BOOLEAN","delivered":"BOOLEAN","refunded":"BOOLEAN","delivery":"DOUBLE",
  "outcome":"DOUBLE","schema_ok":"BOOLEAN","latency_ms":"DOUBLE","price":"DOUBLE","input":"VARCHAR","response_sha256":"VARCHAR",
  "pay_to":"VARCHAR"}]`;

/** The tables that grading reads, on a database of its own in memory. */
export class TestLake {
  readonly conn: DuckDBConnection;
  readonly #instance: DuckDBInstance;

  private constructor(instance: DuckDBInstance, conn: DuckDBConnection) {
    this.#instance = instance;
    this.conn = conn;
  }

  static async open(): Promise<TestLake> {
    const instance = await DuckDBInstance.create(":memory:", { threads: "2" });
    const conn = await instance.connect();
    for (const statements of [TABLES, sql("tables/rules"), sql("tables/grade")]) await conn.run(statements);
    return new TestLake(instance, conn);
  }

  async add(cap: string, rows: readonly Sample[]): Promise<void> {
    const json = JSON.stringify(rows.map((row) => ({ ...row, cap, t: row.t.toISOString().slice(0, -1) })));
    await this.conn.run(`INSERT INTO samples BY NAME SELECT unnest(from_json($json, '${ROW}'), recursive := true)`, {
      json,
    });
  }

  async withdraw(ids: readonly string[]): Promise<void> {
    await this.conn.run(`INSERT INTO withdrawn SELECT unnest(from_json($json, '["VARCHAR"]'))`, {
      json: JSON.stringify(ids),
    });
  }

  async place({ cap, pay_to, domain, ours = false, disputed = false }: Site): Promise<void> {
    await this.conn.run("INSERT INTO site VALUES ($cap, $pay_to, $domain, $ours, $disputed)", {
      cap,
      pay_to,
      domain,
      ours,
      disputed,
    });
  }

  close(): void {
    this.conn.closeSync();
    this.#instance.closeSync();
  }
}
