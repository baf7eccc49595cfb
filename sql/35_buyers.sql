-- Calls that buyers published and one of ours reproduced: the worst blocks of each payer.
-- grain: one (endpoint, part): the values as a list
-- reads: grade_rows; worst_blocks
-- writes: grade_buyers
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
