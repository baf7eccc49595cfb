-- name: every
-- Marks every endpoint with a sample, or with a row in `site`, as due, that is, to be graded in this run.
-- grain: one capability
-- reads: every_sample, site
-- writes: temp due_caps
CREATE OR REPLACE TEMP TABLE due_caps AS SELECT cap FROM every_sample UNION SELECT cap FROM site;

-- name: given
-- Marks the endpoints of a list as due, that is, to be graded in this run.
-- grain: one capability of $caps (JSON array)
-- reads: $caps
-- writes: temp due_caps
CREATE OR REPLACE TEMP TABLE due_caps AS SELECT text AS cap FROM texts_of($caps);

-- name: chunks
-- Divides the due endpoints into chunks of about $chunk_rows rows, counts the rows of each endpoint in the window, and
-- finds the endpoints that took money and delivered nothing, each with the address that received the newest such
-- payment, since its newest 402 may name another address, or none. This is the only fact about one endpoint that the
-- grading of others uses.
-- grain: grade_withdrawn one row that a correction withdrew; grade_due one endpoint, ep counts it within its chunk from 0;
--   thefts one endpoint that took money and whose theft lies in the window
-- reads: due_caps(cap), every_sample, withdrawn, site; $window_start, $now, $theft_before (unix ms), $chunk_rows, $block_ms
-- writes: temp macro in_window, grade_withdrawn, grade_due, thefts
CREATE OR REPLACE TEMP MACRO in_window(since, until) AS TABLE
  SELECT * FROM every_sample WHERE t >= epoch_ms(since) AND t < epoch_ms(until);

CREATE OR REPLACE TEMP TABLE grade_withdrawn AS
SELECT s.row, cap FROM in_window($window_start, $now) s SEMI JOIN withdrawn USING (obs_id) SEMI JOIN due_caps USING (cap);

CREATE OR REPLACE TEMP TABLE grade_due AS
WITH rows AS (
  SELECT cap, count(*) AS n, count_if(kind = 1) AS paid FROM in_window($window_start, $now) SEMI JOIN due_caps USING (cap) GROUP BY cap),
due AS (
  SELECT cap, coalesce(n, 0) AS n, coalesce(paid, 0) AS paid FROM (SELECT DISTINCT cap FROM due_caps)
  ANTI JOIN (SELECT cap FROM site WHERE ours) USING (cap) LEFT JOIN rows USING (cap)),
chunked AS (SELECT *, ((sum(n) OVER (ORDER BY cap) - n) // $chunk_rows)::INTEGER AS chunk FROM due)
SELECT cap, n::INTEGER AS n, paid::INTEGER AS paid, chunk,
  (row_number() OVER (PARTITION BY chunk ORDER BY cap) - 1)::UINTEGER AS ep FROM chunked;

-- Calls made no later than $theft_before that settled, were watched to their end, delivered nothing and were not
-- refunded. Only our own calls count: a competitor could publish calls that make a seller look like a thief.
CREATE OR REPLACE TEMP TABLE grade_thefts AS
SELECT cap, arg_max(pay_to, {t: t, id: obs_id}) AS pay_to, count(DISTINCT epoch_ms(t) // $block_ms)::INTEGER AS blocks, max(t) AS last
FROM in_window($window_start, $now) s SEMI JOIN grade_due USING (cap) ANTI JOIN grade_withdrawn w ON w.row = s.row
WHERE kind = 1 AND is_unserved(settled, delivered, refunded) AND is_counted(kind, fault, settled) AND t <= epoch_ms($theft_before)
GROUP BY cap;

DELETE FROM thefts WHERE last < epoch_ms($window_start) OR cap IN (SELECT cap FROM grade_due);
INSERT INTO thefts SELECT cap, any_value(g.pay_to), any_value(domain), any_value(blocks), any_value(last)
FROM grade_thefts g LEFT JOIN site USING (cap) GROUP BY cap;
DROP TABLE grade_thefts;

-- name: clear
-- Drops the temporary tables of a grade run, so that the session frees their memory.
-- grain: none
-- reads: nothing
-- writes: drops the temporary tables of grade/due and grade/chunk
DROP TABLE IF EXISTS grade_withdrawn;
DROP TABLE IF EXISTS grade_due;
DROP TABLE IF EXISTS due_caps;
DROP TABLE IF EXISTS grade_chunk;
DROP TABLE IF EXISTS grade_buyers;
DROP TABLE IF EXISTS grade_evidence;
DROP TABLE IF EXISTS grade_payees;
DROP TABLE IF EXISTS grade_endpoints;
