-- Three order statistics of the latency of each stratum: p95 and the times that bound it from both sides.
-- grain: one (endpoint, stratum) of enough blocks; stratum 0 = time to the 402, 1 = paid time to the last byte
-- reads: grade_own, grade_blocks, grade_paid; p95, tail_quantile and the lines
-- writes: grade_latency
CREATE OR REPLACE TEMP TABLE grade_strata AS
WITH blocks AS (
  SELECT ep, 0::UTINYINT AS kind, count(*)::DOUBLE AS w FROM grade_blocks WHERE timed > 0 GROUP BY ep
  UNION ALL SELECT ep, 1, count(*) FROM grade_paid WHERE timed > 0 GROUP BY ep)
SELECT ep, kind, blocks.w, quantile_disc(ms, param('tail_quantile')) AS tail_from
FROM grade_own JOIN blocks USING (ep, kind) WHERE ms IS NOT NULL AND blocks.w >= need_high(blocks.w) GROUP BY ep, kind, blocks.w;

-- A row weighs 1/(rows of its stratum in its block). Only the slow end is sorted: all three statistics lie there.
CREATE OR REPLACE TEMP TABLE grade_crowded AS
SELECT ep, b, 0::UTINYINT AS kind, timed FROM grade_blocks WHERE timed > 1
UNION ALL SELECT ep, b, 1, timed FROM grade_paid WHERE timed > 1;
CREATE OR REPLACE TEMP TABLE grade_tail AS
SELECT o.ep, o.kind, s.w, o.ms, 1.0 / coalesce(c.timed, 1) AS v
FROM grade_own o JOIN grade_strata s ON o.ep = s.ep AND o.kind = s.kind AND o.ms >= s.tail_from
LEFT JOIN grade_crowded c ON c.ep = o.ep AND c.b = o.b AND c.kind = o.kind;

-- Where the slow rows are crowded into few blocks, that end weighs too little to hold the lowest statistic: take all.
INSERT INTO grade_tail
WITH short AS (SELECT ep, kind, w FROM grade_tail GROUP BY ep, kind, w HAVING sum(v) <= need_low(w) + 1)
SELECT o.ep, o.kind, short.w, o.ms, 1.0 / coalesce(c.timed, 1)
FROM grade_own o JOIN short USING (ep, kind) JOIN grade_strata s ON o.ep = s.ep AND o.kind = s.kind AND o.ms < s.tail_from
LEFT JOIN grade_crowded c ON c.ep = o.ep AND c.b = o.b AND c.kind = o.kind;

CREATE OR REPLACE TEMP TABLE grade_latency AS
WITH slower AS (SELECT ep, kind, w, ms, sum(v) OVER (PARTITION BY ep * 2 + kind ORDER BY ms) AS s,
    sum(v) OVER (PARTITION BY ep * 2 + kind) AS v FROM grade_tail),
upto AS (SELECT ep, kind, w, ms, r6(w - v + s) AS s FROM slower)
SELECT ep, kind, w, min(ms) FILTER (s >= param('p95') * w - param('epsilon')) AS p95,
  min(ms) FILTER (s >= need_high(w)) AS high, min(ms) FILTER (s >= w - need_low(w)) AS low
FROM upto GROUP BY ep, kind, w;
