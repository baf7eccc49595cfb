-- name: gather
-- Selects, for one chunk of endpoints, the observations in the grading window that no correction withdrew, and the
-- facts that fold.ts does not compute from them: payee, domain, disputes, the hashes of the newest answers, and the
-- calls that buyers published.
-- grain: grade_rows one observation; grade_buyers one (endpoint, part), the values as a list; grade_chunk, grade_evidence,
--   grade_payees, grade_endpoints one endpoint
-- reads: in_window (grade/due), grade_withdrawn, grade_due, site; $chunk, $window_start, $now (unix ms), $block_ms, $worst_blocks,
--   $evidence_rows
-- writes: temp macro grade_rows (a macro, since storing the rows would cost more than reading them again), grade_chunk,
--   grade_buyers, grade_evidence, grade_payees, grade_endpoints
CREATE OR REPLACE TEMP TABLE grade_chunk AS SELECT cap, ep, n, paid FROM grade_due WHERE chunk = $chunk;

CREATE OR REPLACE TEMP MACRO grade_rows(since, until) AS TABLE
SELECT c.ep, s.*, is_counted(s.kind, s.fault, s.settled) AS counted
FROM in_window(since, until) s JOIN (SELECT cap, ep FROM grade_chunk) c USING (cap) ANTI JOIN grade_withdrawn w ON w.row = s.row;

-- Calls that buyers published: for each payer, the worst blocks (spans of six hours). A failure counts only once one
-- of our own calls reproduced it.
CREATE OR REPLACE TEMP TABLE grade_buyers AS
WITH calls AS (
  SELECT ep, payer, epoch_ms(t) // $block_ms AS b, min(coalesce(live, FALSE)::INTEGER)::DOUBLE AS liveness,
    min(CASE WHEN live THEN honest::INTEGER END)::DOUBLE AS honesty,
    min(CASE WHEN settled THEN CASE WHEN delivered THEN coalesce(delivery, 0.0) ELSE 0.0 END END) AS delivery,
    min(CASE WHEN settled AND outcome IS NOT NULL THEN CASE WHEN delivered THEN outcome ELSE 0.0 END END) AS outcome,
    min(CASE WHEN settled AND delivered THEN schema_ok::INTEGER END)::DOUBLE AS schema_conformance
  FROM grade_rows($window_start, $now) WHERE counted AND kind = 2 GROUP BY ep, payer, b),
worst AS (
  SELECT ep, part, x FROM (UNPIVOT calls ON liveness, honesty, delivery, outcome, schema_conformance INTO NAME part VALUE x)
  QUALIFY row_number() OVER (PARTITION BY ep, part, payer ORDER BY x) <= $worst_blocks)
SELECT ep, part, list(x) AS xs FROM worst GROUP BY ep, part;

CREATE OR REPLACE TEMP TABLE grade_evidence AS
SELECT ep, arg_max(response_sha256, newest, $evidence_rows) AS evidence FROM (
  SELECT ep, response_sha256, max({t: t, id: obs_id}) AS newest
  FROM grade_rows($window_start, $now) WHERE counted AND kind = 1 AND delivered AND response_sha256 IS NOT NULL
  GROUP BY ep, response_sha256)
GROUP BY ep;

CREATE OR REPLACE TEMP TABLE grade_payees AS
SELECT ep, min(address_of(pay_to)) <> max(address_of(pay_to)) AS changed FROM grade_rows($window_start, $now) WHERE counted AND kind < 2 GROUP BY ep;

CREATE OR REPLACE TEMP TABLE grade_endpoints AS
WITH buyers AS (SELECT ep, list({part: part, xs: xs}) AS buyers FROM grade_buyers GROUP BY ep)
SELECT d.ep, d.cap, site.pay_to, site.domain, coalesce(site.disputed, FALSE) AS disputed,
  d.cap IN (SELECT cap FROM grade_withdrawn) AS withdrew, coalesce(changed, FALSE) AS pay_to_changed, evidence, buyers
FROM grade_chunk d LEFT JOIN site USING (cap) LEFT JOIN grade_payees USING (ep) LEFT JOIN grade_evidence USING (ep)
  LEFT JOIN buyers USING (ep);

-- name: packed
-- The rows of the chunk as plain numbers, for the arithmetic of pipelines/3-grade/fold.ts. `facts` is the time since
-- the start of the window in ms, times $scale, plus the row's flags at the bits that packed.ts defines. In the flags,
-- honest and schema_ok are 2 if unknown. A missing latency, price or outcome is $none.
-- grain: one observation
-- reads: grade_rows; $window_start, $now (unix ms), $scale, $none, a bit for each flag
-- writes: nothing
SELECT ep,
  ((epoch_ms(t) - $window_start) * $scale + kind * $kind + coalesce(live, FALSE)::INTEGER * $live
    + coalesce(settled, FALSE)::INTEGER * $settled + coalesce(delivered, FALSE)::INTEGER * $delivered
    + coalesce(refunded, FALSE)::INTEGER * $refunded + coalesce(honest::INTEGER, 2) * $honest + coalesce(schema_ok::INTEGER, 2) * $schema
    + coalesce(input IN ('example', 'known_answer'), FALSE)::INTEGER * $example
    + CASE WHEN fault IS NULL THEN 0 WHEN fault = 'blocked' THEN $blocked WHEN fault = 'bad_input' THEN $bad_input
      WHEN fault = 'unconfirmed' THEN $unconfirmed ELSE $fault END)::DOUBLE AS facts,
  coalesce(latency_ms, $none) AS latency_ms, coalesce(price, $none) AS price,
  coalesce(w, 1.0) AS w, coalesce(delivery, 0.0) AS delivery, coalesce(outcome, $none) AS outcome
FROM grade_rows($window_start, $now);

-- name: endpoints
-- The endpoints of the chunk from $first to $end (exclusive), as JSON text, which the engine returns several times
-- faster than objects.
-- grain: one endpoint, ascending by ep
-- reads: grade_endpoints; $first, $end (of ep)
-- writes: nothing
SELECT to_json(e)::VARCHAR AS row FROM grade_endpoints e WHERE ep >= $first AND ep < $end ORDER BY ep;

-- name: newest
-- The newest `honest` and the newest price of endpoints that have several rows at their latest time. Of these rows,
-- the one with the greatest id counts as the newest.
-- grain: one endpoint of those asked for
-- reads: grade_rows; $window_start, $now (unix ms), $tied (JSON array)
-- writes: nothing
SELECT ep,
  arg_max(honest, {t: t, id: obs_id}) FILTER (live AND fault IS DISTINCT FROM 'blocked' AND honest IS NOT NULL) AS honest_now,
  arg_max(price, {t: t, id: obs_id}) FILTER (price > 0) AS price_now
FROM grade_rows($window_start, $now) SEMI JOIN (SELECT unnest(from_json($tied, '["UINTEGER"]')) AS ep) USING (ep)
WHERE counted AND kind < 2 GROUP BY ep;
