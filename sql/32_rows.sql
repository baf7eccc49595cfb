-- The observations of one chunk of endpoints in the window, corrections taken out, and our own ones as samples.
-- grain: one observation
-- reads: samples, withdrawn, grade_due; now, window_start, block_ms, chunk, chunk_first, chunk_last
-- writes: grade_chunk(ep, cap), grade_rows, grade_own (a view)
CREATE OR REPLACE TEMP TABLE grade_chunk AS
SELECT (row_number() OVER (ORDER BY cap))::INTEGER AS ep, cap FROM grade_due WHERE chunk = param('chunk');

-- counted: everything but our own fault, a synthetic input that moved no money, and a published call not reproduced.
-- The range on cap lets a table that is kept in order of cap skip what lies outside the chunk.
CREATE OR REPLACE TEMP TABLE grade_rows AS
SELECT c.ep, s.obs_id, s.t, s.kind, s.payer, s.w, s.fault, s.live, s.honest, s.settled, s.delivered, s.refunded, s.delivery,
  s.outcome, s.schema_ok, s.latency_ms, s.price, s.input, s.response_sha256, s.pay_to,
  (epoch_ms(s.t) // param('block_ms'))::INTEGER AS b,
  s.fault IS NOT DISTINCT FROM 'blocked' AS blocked,
  s.fault IS NULL OR (s.kind < 2 AND (s.fault = 'blocked' OR (s.fault = 'bad_input' AND coalesce(s.settled, FALSE)))) AS counted
FROM samples s JOIN grade_chunk c USING (cap) ANTI JOIN withdrawn USING (obs_id)
WHERE s.t >= param('window_start') AND s.t < param('now') AND s.cap BETWEEN param('chunk_first') AND param('chunk_last');

-- What each of our own counted rows says of each part; NULL where it says nothing. A payment that brought no bytes is
-- a 0 of correctness whatever the reason. Silence has no latency: it is counted in liveness.
CREATE OR REPLACE TEMP VIEW grade_own AS
SELECT ep, obs_id, t, b, kind, kind = 1 AS paid, settled, refunded, input, response_sha256, pay_to,
  least(coalesce(w, 1.0), 1.0) AS w, blocked AND kind = 0 AS wall, coalesce(live, FALSE) AND NOT blocked AS answered,
  CASE WHEN live AND NOT blocked THEN honest END AS honest,
  coalesce(delivered, FALSE) AS delivered,
  CASE WHEN kind = 1 THEN CASE WHEN delivered THEN coalesce(delivery, 0.0) ELSE 0.0 END END AS delivery,
  CASE WHEN kind = 1 AND outcome IS NOT NULL THEN CASE WHEN delivered THEN outcome ELSE 0.0 END END AS outcome,
  CASE WHEN kind = 1 AND delivered THEN schema_ok END AS schema_ok,
  CASE WHEN NOT blocked AND CASE kind WHEN 0 THEN live ELSE delivered END THEN latency_ms END AS ms,
  CASE WHEN price > 0 THEN price END AS price
FROM grade_rows WHERE counted AND kind < 2;
