-- What of an endpoint is not arithmetic over its rows: where it lives, its newest answers, what buyers say of it.
-- grain: one endpoint of the chunk
-- reads: grade_due, grade_rows (a view), grade_buyers, grade_withdrawn, site; chunk, evidence_rows
-- writes: grade_endpoints, and grade_evidence, grade_payees on the way
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
