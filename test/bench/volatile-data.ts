import type { Lake } from "../../infra/lake/duckdb.ts";

/** The last moment of the made-up record; cards were computed within the day before it. */
export const END = new Date("2026-11-15T12:00:00Z");

/**
 * A lake as ingest would have left it: endpoints with a listing each, handshakes and paid calls in the order of time, a few
 * corrected ones. Made by the engine, so that a million endpoints take minutes and not a day.
 */
export const volatileData = (endpoints: number, rows: number): readonly string[] => [
  "CREATE MACRO u(i, k) AS (hash(i * 131 + k) >> 11)::DOUBLE / 9007199254740992.0",
  `CREATE TABLE made AS SELECT e, 'cap_' || upper(left(md5('cap' || e), 26)) AS cap, 0.9 + 0.1 * u(e, 1) AS p_live,
    '0x' || left(sha256('pay' || (e // 3)), 40) AS pay_to, round(.001 * pow(10, 3 * u(e, 2)) * 1e6)::BIGINT AS micro,
    'https://shop' || (e // 5) || '.example/paid/' || e AS url, 'shop' || (e // 5) || '.example' AS host FROM range(${endpoints}) r(e)`,
  `INSERT INTO endpoint SELECT cap, url, 'GET', NULL, host, host, host, FALSE FROM made`,
  `INSERT INTO samples BY NAME
  WITH looks AS (
    SELECT m.*, e * ${rows} + i AS n, TIMESTAMP '2026-08-17 12:00:00' + to_seconds(floor(u(n, 24) * 90 * 86400)::BIGINT) AS t,
      u(n, 25) > p_live AS down, (CASE WHEN u(n, 26) < .1 THEN 1 ELSE 0 END)::UTINYINT AS kind FROM made m, range(${rows}) r(i))
  SELECT cap, 'rec_' || upper(left(md5('rec' || n), 26)) AS obs_id, t, kind, 1.0 AS w, NOT down AS live, TRUE AS honest,
    kind = 1 AND NOT down AS settled, CASE WHEN kind = 1 THEN NOT down END AS delivered, FALSE AS refunded,
    CASE WHEN kind = 1 AND NOT down THEN 1.0 END AS delivery, 100 + 900 * u(n, 27) AS latency_ms,
    CASE WHEN NOT down THEN micro / 1e6 END AS price, CASE WHEN NOT down THEN pay_to END AS pay_to FROM looks ORDER BY t, n`,
  `INSERT INTO event BY NAME SELECT obs_id AS event_id, CASE WHEN kind = 1 THEN 'paid.intent' ELSE 'handshake' END AS type, cap AS key, cap,
    CASE WHEN kind = 1 THEN 'observations.paid' ELSE 'observations.free' END AS topic, 0 AS part, row_number() OVER (ORDER BY t) AS log_offset,
    t AS observed_at, t AS appended_at, CASE WHEN kind = 1 THEN '{}' END AS body, fault, live, honest, latency_ms,
    round(price * 1e6)::BIGINT AS price_micro, pay_to FROM samples ORDER BY t`,
  `INSERT INTO seen BY NAME SELECT cap, count(*) FILTER (kind = 0) AS probes, count(*) FILTER (kind = 0) AS answered,
    count(*) FILTER (kind = 0 AND live) AS asked, min(t) AS first_seen, max(t) AS last_seen, count(*) FILTER (kind = 1) AS paid_calls,
    max(t) AS terms_t, max(obs_id) AS terms_id, any_value(round(price * 1e6)::BIGINT) AS price_micro, any_value(pay_to) AS pay_to,
    [{network: 'eip155:8453', asset: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913', payable: TRUE,
      pay_to: any_value(pay_to), price: printf('%.6f', any_value(price))}] AS offers, ['x402'] AS protocols,
    '[{"defect":"network_form","says":"the name of the other version"}]' AS terms_defects, '[]' AS differs FROM samples GROUP BY cap`,
  // A probe's sample is its event.
  "DELETE FROM samples WHERE kind = 0",
  "INSERT INTO quoted SELECT cap, micro FROM made",
  "INSERT INTO payee SELECT cap, pay_to, terms_t FROM seen WHERE pay_to IS NOT NULL",
  `INSERT INTO listing SELECT 'rec_l' || left(md5('l' || e), 25), cap, TIMESTAMP '2026-08-17', e, 'catalogue', url, FALSE, TRUE,
    '{"normalised_url":"' || url || '","offers":[{"network":"eip155:8453","price":"0.01"}],"class":"any"}', '[]' FROM made`,
  `INSERT INTO correction SELECT 'rec_c' || left(md5('c' || e), 25), cap, TIMESTAMP '2026-11-15', 'c' || e, NULL, 'ours',
    TIMESTAMP '2026-11-10' FROM made WHERE e % 1000 = 1`,
  `INSERT INTO correction_record SELECT event_id, 'correction', cap, 0, 0, t, json_object('id', id, 'record_id', NULL, 'fault', 'ours', 'says', 'x',
    'issued_at', '2026-11-10T00:00:00.000Z') FROM correction`,
  `INSERT INTO withdrawal SELECT obs_id, s.cap, issued_at FROM every_sample s JOIN correction c ON c.cap = s.cap AND s.t < c.issued_at`,
  "INSERT INTO withdrawn SELECT obs_id FROM withdrawal",
  "INSERT INTO positions VALUES ('observations.free', 0, 1)",
  "CHECKPOINT",
];

export async function fillLake(lake: Lake, endpoints: number, rows: number): Promise<void> {
  for (const statement of volatileData(endpoints, rows)) await lake.run(statement);
}
