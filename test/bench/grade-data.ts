import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type DuckDBConnection, DuckDBInstance } from "@duckdb/node-api";
import { sql } from "../../infra/lake/sql.ts";
import { SHARED_DESIGN } from "../pipelines/3-grade/vectors.ts";

/**
 * Endpoints of many characters, failures in spells of a block; u(i, k) is the k-th number in [0, 1) of thing i.
 * @param many rows of every fortieth endpoint, at least `rows`
 */
export const synth = (endpoints: number, rows: number, many = rows): string => `
CREATE MACRO u(i, k) AS (hash(i * 131 + k) >> 11)::DOUBLE / 9007199254740992.0;
CREATE TABLE kind_of AS SELECT e::UINTEGER AS ep, 'cap_' || upper(left(md5('cap' || e), 26)) AS cap, '0x' || left(sha256('pay' || (e // 3)), 40) AS pay_to,
  'shop' || (e // 5) || '.example' AS domain, 0.9 + 0.1 * u(e, 1) AS p_live, CASE WHEN u(e, 2) < .6 THEN .97 + .03 * u(e, 3) ELSE u(e, 3) END AS p_right,
  CASE WHEN u(e, 4) < .85 THEN 1 ELSE u(e, 5) END AS p_honest, u(e, 6) < .4 AS truth, u(e, 7) < .5 AS sells, u(e, 8) < .3 AS published,
  exp(5 + 3 * u(e, 9)) AS ms, round(.001 * pow(10, 3 * u(e, 10)), 6) AS price, u(e, 11) < .2 AS moves, u(e, 12) < .05 AS thief,
  u(e, 13) < .8 AS has_schema FROM range(${endpoints}) r(e);
CREATE TABLE samples AS
WITH looks AS (
  SELECT k.*, ep::BIGINT * ${many} + i AS n, u(n, 20) AS uk, u(n, 21) AS uf, u(n, 22) AS us, u(n, 23) AS ur,
    TIMESTAMP '2026-08-17' + to_seconds(floor(u(n, 24) * 91 * 86400)::BIGINT) AS t
  FROM (SELECT *, unnest(range(CASE WHEN ep % 40 = 7 THEN ${many} ELSE ${rows} END)) AS i FROM kind_of) k),
acts AS (
  SELECT *, u(1000000007 + ep::BIGINT * 512 + floor(epoch(t) / 21600)::BIGINT % 512, 25) > p_live AS down,
    (CASE WHEN NOT sells OR down THEN 0 WHEN uk < .25 THEN 1 WHEN published AND uk < .3 THEN 2 ELSE 0 END)::UTINYINT AS kind FROM looks),
ends AS (
  SELECT *, CASE WHEN uf < .01 THEN 'ours' WHEN kind = 0 AND uf < .03 THEN 'blocked' WHEN kind = 1 AND NOT truth AND uf < .02 THEN 'bad_input'
      WHEN kind = 2 AND uf < .5 THEN 'unconfirmed' END AS fault,
    kind > 0 AND us > .02 AND fault IS DISTINCT FROM 'bad_input' AS settled, settled AND NOT (thief AND ur < .05) AS served FROM acts)
SELECT cap, 'rec_' || upper(left(md5('rec' || n), 26)) AS obs_id, t, kind, CASE WHEN kind = 2 THEN 'buyer' || n % 7 END AS payer,
  CASE WHEN kind = 1 AND uk < .02 THEN .25 ELSE 1.0 END::DOUBLE AS w, fault, NOT down AND fault IS DISTINCT FROM 'blocked' AS live, u(n, 26) < p_honest AS honest,
  settled, CASE WHEN kind > 0 THEN served END AS delivered, FALSE AS refunded, CASE WHEN served THEN (ur < .5 + .5 * p_right)::INT::DOUBLE END AS delivery,
  CASE WHEN kind > 0 AND truth THEN (served AND u(n, 27) < p_right)::INT::DOUBLE END AS outcome, CASE WHEN served AND has_schema THEN u(n, 28) < .9 + .1 * p_right END AS schema_ok,
  CASE WHEN down THEN 30000.0 ELSE round(ms * exp(u(n, 29) + u(n, 30) - 1)) END AS latency_ms,
  CASE WHEN NOT down THEN round(price * CASE WHEN moves THEN 1 + .5 * (floor(epoch(t) / 1123200)::BIGINT % 3) ELSE 1 END, 6) END AS price,
  CASE WHEN kind = 1 THEN 'example' END AS input, CASE WHEN served THEN sha256('body' || n) END AS response_sha256, CASE WHEN NOT down THEN pay_to END AS pay_to
FROM ends ORDER BY ep;
CREATE VIEW every_sample AS SELECT rowid AS row, * FROM samples;
CREATE TABLE withdrawn AS SELECT obs_id FROM samples WHERE hash(obs_id) % 997 = 0;
CREATE TABLE site AS SELECT cap, pay_to, domain, FALSE AS ours, FALSE AS disputed FROM kind_of;
CHECKPOINT;`;

/** The same rows as the prototype wants them: whole numbers for endpoints and records. Not timed. */
const FOR_PROTOTYPE = `
CREATE SCHEMA prototype;
CREATE TABLE prototype.site AS SELECT ep, pay_to, domain, FALSE AS ours FROM kind_of;
CREATE TABLE prototype.obs AS SELECT row_number() OVER () AS obs_id, obs_id AS id, k.ep, s.* EXCLUDE (cap, obs_id, pay_to) FROM samples s JOIN kind_of k USING (cap);
CREATE TABLE prototype.withdrawn AS SELECT o.obs_id FROM prototype.obs o JOIN withdrawn w ON w.obs_id = o.id;
ALTER TABLE prototype.obs DROP COLUMN id;
CREATE TABLE prototype.raw_bands (ep UINTEGER, day DATE, band_raw UTINYINT);
USE prototype;`;

export const PROTOTYPE = join(SHARED_DESIGN, "grading-prototype");
/** The run's moment, and the start of its window as the prototype is told it. */
export const NOW = new Date("2026-11-15T12:00:00Z");
const MOMENTS = { $NOW: "TIMESTAMP '2026-11-15 12:00:00'", $WS: "TIMESTAMP '2026-08-17 00:00:00'" };

/** A lake file with made-up observations in `dir`. */
export async function openData(dir: string): Promise<{ conn: DuckDBConnection; close: () => void }> {
  const settings = { threads: "2", memory_limit: "4500MB", temp_directory: join(dir, "spill") };
  const instance = await DuckDBInstance.create(join(dir, "lake.duckdb"), settings);
  const conn = await instance.connect();
  return {
    conn,
    close: () => {
      conn.closeSync();
      instance.closeSync();
    },
  };
}

export async function makeData(conn: DuckDBConnection, endpoints: number, rows: number): Promise<void> {
  for (const statements of [synth(endpoints, rows), sql("tables/rules"), sql("tables/grade")])
    await conn.run(statements);
}

/** The prototype's tables of the same rows, and its statements. */
export async function preparePrototype(conn: DuckDBConnection): Promise<string> {
  await conn.run(FOR_PROTOTYPE);
  await conn.run(readFileSync(join(PROTOTYPE, "00_macros.sql"), "utf8"));
  let text = readFileSync(join(PROTOTYPE, "20_grade.sql"), "utf8");
  for (const [name, value] of Object.entries(MOMENTS)) text = text.replaceAll(name, value);
  return text;
}
