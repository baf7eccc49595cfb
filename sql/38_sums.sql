-- Everything the letter of an endpoint needs, in one row.
-- grain: one endpoint of the chunk
-- reads: what 31 to 37 wrote, samples, withdrawn, thefts, site; now, window_start, theft_before, evidence_rows, cusum_misses
-- writes: grade_sums, and grade_facts, grade_newest, grade_evidence, grade_course, grade_counts, grade_emptied on the way
CREATE OR REPLACE TEMP TABLE grade_facts AS
SELECT ep, max(t) AS seen_last, max(t) FILTER (paid) AS paid_last, max(t) FILTER (answered) AS live_last,
  max(t) FILTER (honest IS NOT NULL) AS told_last, max(t) FILTER (price IS NOT NULL) AS priced_last,
  max(price) FILTER (paid AND settled) AS price_tested,
  count_if(paid)::INTEGER AS signed, count_if(paid AND settled)::INTEGER AS settled, count_if(paid AND delivered)::INTEGER AS served,
  count_if(paid AND settled AND NOT delivered AND refunded)::INTEGER AS refunds,
  min(t) FILTER (paid AND settled AND NOT delivered AND NOT coalesce(refunded, FALSE) AND t > param('theft_before')) AS pending_first,
  count_if(paid AND input IN ('example', 'known_answer'))::INTEGER AS examples,
  coalesce(min(pay_to) <> max(pay_to), FALSE) AS pay_to_changed
FROM grade_own GROUP BY ep;

-- The newest answer and the newest quote; among rows of the same moment the greatest id is the newest.
CREATE OR REPLACE TEMP TABLE grade_newest AS
SELECT ep, arg_max(honest, obs_id) FILTER (t = told_last AND honest IS NOT NULL) AS honest_now,
  arg_max(price, obs_id) FILTER (t = priced_last AND price IS NOT NULL) AS price_now
FROM grade_own JOIN grade_facts USING (ep) WHERE t >= least(told_last, priced_last) GROUP BY ep;

CREATE OR REPLACE TEMP TABLE grade_evidence AS
SELECT ep, arg_max(response_sha256, {t: t, id: obs_id}, param('evidence_rows')) AS evidence
FROM grade_own WHERE paid AND delivered AND response_sha256 IS NOT NULL GROUP BY ep;

-- The course of the paid blocks, deepest check there is, where its misses could add up to an alarm at all.
CREATE OR REPLACE TEMP TABLE grade_course AS
SELECT ep, list(coalesce(outcome, delivery) ORDER BY b) AS course FROM grade_paid GROUP BY ep
HAVING sum(1 - coalesce(outcome, delivery)) >= param('cusum_misses');

-- Flags of the rows that are no samples too.
CREATE OR REPLACE TEMP TABLE grade_counts AS
SELECT ep, count(*)::INTEGER AS read, count_if(counted)::INTEGER AS counted,
  coalesce(bool_or(kind = 2 AND fault = 'unconfirmed'), FALSE) AS unconfirmed
FROM grade_rows GROUP BY ep;

-- Endpoints without a row that counts, and with one that a correction withdrew.
CREATE OR REPLACE TEMP TABLE grade_emptied AS
SELECT DISTINCT s.cap FROM samples s SEMI JOIN (FROM grade_chunk ANTI JOIN grade_facts USING (ep)) USING (cap)
  SEMI JOIN withdrawn USING (obs_id) WHERE s.t >= param('window_start') AND s.t < param('now');

CREATE OR REPLACE TEMP TABLE grade_sums AS
WITH parts AS (
  SELECT ep, list({part: part, w: w, s: s, m: m, bad: bad, starts: starts}) AS parts FROM grade_parts GROUP BY ep),
buyers AS (SELECT ep, list({part: part, xs: xs}) AS buyers FROM grade_buyers GROUP BY ep),
latency AS (
  SELECT ep, list({kind: kind, w: w, p95: p95, high: high, low: low}) AS latency FROM grade_latency GROUP BY ep),
walled AS (SELECT DISTINCT ep FROM grade_walls WHERE NOT excused)
SELECT c.ep, c.cap, coalesce(n.read, 0) AS read, coalesce(n.counted, 0) AS counted, c.cap IN (FROM grade_emptied) AS emptied,
  parts, buyers, latency, p.w AS price_w, p.s AS price_s, coalesce(p.dynamic, FALSE) AS dynamic_price, course,
  took.blocks AS theft_blocks, epoch_ms(took.last) AS theft_last, epoch_ms(f.pending_first) AS pending_first,
  coalesce(f.refunds, 0) AS refunds, coalesce(f.signed, 0) AS signed, coalesce(f.settled, 0) AS settled,
  coalesce(f.served, 0) AS served, coalesce(f.examples, 0) AS examples, epoch_ms(f.seen_last) AS seen_last,
  epoch_ms(f.paid_last) AS paid_last, epoch_ms(f.live_last) AS live_last, newest.honest_now, newest.price_now, f.price_tested,
  c.ep IN (FROM walled) AS walled, coalesce(n.unconfirmed, FALSE) AS unconfirmed,
  coalesce(f.pay_to_changed, FALSE) AS pay_to_changed, coalesce(site.disputed, FALSE) AS disputed, site.pay_to, site.domain, evidence
FROM grade_chunk c LEFT JOIN grade_counts n USING (ep) LEFT JOIN parts USING (ep)
LEFT JOIN buyers USING (ep) LEFT JOIN latency USING (ep) LEFT JOIN grade_price p USING (ep) LEFT JOIN grade_facts f USING (ep)
LEFT JOIN grade_newest newest USING (ep) LEFT JOIN grade_evidence USING (ep) LEFT JOIN grade_course USING (ep)
LEFT JOIN thefts took ON took.cap = c.cap LEFT JOIN site ON site.cap = c.cap;
