-- The observations of one chunk of endpoints in the window, corrections taken out, and what each of our own says.
-- grain: one observation
-- reads: samples, grade_withdrawn, grade_due; now, window_start, block_ms, chunk
-- writes: grade_rows, grade_said (views, since writing the rows down would cost more than reading them again)
-- counted: everything but our own fault, a synthetic input that moved no money, and a published call not reproduced.
CREATE OR REPLACE TEMP VIEW grade_rows AS
SELECT c.ep, s.*, (epoch_ms(s.t) // param('block_ms'))::INTEGER AS b, s.fault IS NOT DISTINCT FROM 'blocked' AS blocked,
  s.fault IS NULL OR (s.kind < 2 AND (s.fault = 'blocked' OR (s.fault = 'bad_input' AND coalesce(s.settled, FALSE)))) AS counted
FROM samples s JOIN (SELECT cap, ep FROM grade_due WHERE chunk = param('chunk')) c USING (cap)
  ANTI JOIN grade_withdrawn w ON w.row = s.rowid
WHERE s.t >= param('window_start') AND s.t < param('now');

-- What each row says of each part; NULL where it says nothing. A payment that brought no bytes is a 0 of correctness
-- whatever the reason. Silence has no latency: it is counted in liveness.
CREATE OR REPLACE TEMP VIEW grade_said AS
SELECT ep, obs_id, t, counted, counted AND kind < 2 AS own, kind = 1 AS paid, kind = 2 AND fault = 'unconfirmed' AS unconfirmed,
  coalesce(settled, FALSE) AS settled, coalesce(refunded, FALSE) AS refunded, coalesce(delivered, FALSE) AS delivered,
  input IN ('example', 'known_answer') AS example, response_sha256, pay_to,
  least(coalesce(w, 1.0), 1.0) AS w, blocked AND kind = 0 AS wall, coalesce(live, FALSE) AND NOT blocked AS answered,
  CASE WHEN live AND NOT blocked THEN honest END AS honest,
  CASE WHEN delivered THEN coalesce(delivery, 0.0) ELSE 0.0 END AS delivery,
  CASE WHEN outcome IS NOT NULL THEN CASE WHEN delivered THEN outcome ELSE 0.0 END END AS outcome,
  CASE WHEN kind = 1 AND delivered THEN schema_ok END AS schema_ok,
  CASE WHEN NOT blocked AND CASE kind WHEN 0 THEN live ELSE delivered END THEN latency_ms END AS ms,
  CASE WHEN price > 0 THEN price END AS price
FROM grade_rows;
