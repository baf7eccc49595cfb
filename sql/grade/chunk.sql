-- The observations of one chunk of endpoints in the window, corrections taken out, and what is not arithmetic over them.
-- That is where an endpoint lives, its newest answers, and what buyers say of it.
-- grain: grade_rows one observation; grade_buyers one (endpoint, part), the values as a list; grade_endpoints one endpoint
-- reads: every_sample, grade_withdrawn, grade_due, site; now, window_start, block_ms, chunk, worst_blocks, evidence_rows
-- writes: grade_rows (a view, since writing the rows down would cost more than reading them again), grade_buyers,
--   grade_evidence, grade_payees, grade_endpoints
CREATE OR REPLACE TEMP VIEW grade_rows AS
SELECT c.ep, s.*, (epoch_ms(s.t) // param('block_ms'))::INTEGER AS b,
  is_counted(s.kind, s.fault, s.settled) AS counted
FROM every_sample s JOIN (SELECT cap, ep FROM grade_due WHERE chunk = param('chunk')) c USING (cap)
  ANTI JOIN grade_withdrawn w ON w.row = s.row
WHERE s.t >= param('window_start') AND s.t < param('now');

-- Calls that buyers published and one of ours reproduced: the worst blocks of each payer.
CREATE OR REPLACE TEMP TABLE grade_buyers AS
WITH calls AS (
  SELECT ep, payer, b, min(coalesce(live, FALSE)::INTEGER)::DOUBLE AS liveness,
    min(CASE WHEN live THEN honest::INTEGER END)::DOUBLE AS honesty,
    min(CASE WHEN settled THEN CASE WHEN delivered THEN coalesce(delivery, 0.0) ELSE 0.0 END END) AS delivery,
    min(CASE WHEN settled AND outcome IS NOT NULL THEN CASE WHEN delivered THEN outcome ELSE 0.0 END END) AS outcome,
    min(CASE WHEN settled AND delivered THEN schema_ok::INTEGER END)::DOUBLE AS schema_conformance
  FROM grade_rows WHERE counted AND kind = 2 GROUP BY ep, payer, b),
worst AS (
  SELECT ep, part, x FROM (UNPIVOT calls ON liveness, honesty, delivery, outcome, schema_conformance INTO NAME part VALUE x)
  QUALIFY row_number() OVER (PARTITION BY ep, part, payer ORDER BY x) <= param('worst_blocks'))
SELECT ep, part, list(x) AS xs FROM worst GROUP BY ep, part;

CREATE OR REPLACE TEMP TABLE grade_evidence AS
SELECT ep, arg_max(response_sha256, {t: t, id: obs_id}, param('evidence_rows')) AS evidence
FROM grade_rows WHERE counted AND kind = 1 AND delivered AND response_sha256 IS NOT NULL GROUP BY ep;

CREATE OR REPLACE TEMP TABLE grade_payees AS
SELECT ep, min(pay_to) <> max(pay_to) AS changed FROM grade_rows WHERE counted AND kind < 2 GROUP BY ep;

CREATE OR REPLACE TEMP TABLE grade_endpoints AS
WITH buyers AS (SELECT ep, list({part: part, xs: xs}) AS buyers FROM grade_buyers GROUP BY ep)
SELECT d.ep, d.cap, site.pay_to, site.domain, coalesce(site.disputed, FALSE) AS disputed,
  d.cap IN (SELECT cap FROM grade_withdrawn) AS withdrew, coalesce(changed, FALSE) AS pay_to_changed, evidence, buyers
FROM grade_due d LEFT JOIN site USING (cap) LEFT JOIN grade_payees USING (ep) LEFT JOIN grade_evidence USING (ep)
  LEFT JOIN buyers USING (ep)
WHERE d.chunk = param('chunk');
