-- What of an endpoint is not arithmetic over its rows: where it lives, its newest answers, what buyers say of it.
-- grain: one endpoint of the chunk
-- reads: grade_due, grade_said (a view), grade_buyers, grade_withdrawn, site; chunk, evidence_rows
-- writes: grade_endpoints, and grade_evidence on the way
CREATE OR REPLACE TEMP TABLE grade_evidence AS
SELECT ep, coalesce(min(pay_to) <> max(pay_to), FALSE) AS pay_to_changed,
  arg_max(response_sha256, {t: t, id: obs_id}, param('evidence_rows'))
    FILTER (paid AND delivered AND response_sha256 IS NOT NULL) AS evidence
FROM grade_said WHERE own GROUP BY ep;

CREATE OR REPLACE TEMP TABLE grade_endpoints AS
WITH buyers AS (SELECT ep, list({part: part, xs: xs}) AS buyers FROM grade_buyers GROUP BY ep)
SELECT d.ep, d.cap, d.n, d.paid, site.pay_to, site.domain, coalesce(site.disputed, FALSE) AS disputed,
  d.cap IN (SELECT cap FROM grade_withdrawn) AS withdrew, coalesce(pay_to_changed, FALSE) AS pay_to_changed, evidence, buyers
FROM grade_due d LEFT JOIN site USING (cap) LEFT JOIN grade_evidence USING (ep) LEFT JOIN buyers USING (ep)
WHERE d.chunk = param('chunk');
