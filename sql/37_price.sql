-- How far each day's dearest quote lies above the lowest quote of the days before.
-- grain: one endpoint
-- reads: grade_own; baseline_days, price_tolerance, price_zero_ratio, quotes_a_day
-- writes: grade_price
CREATE OR REPLACE TEMP TABLE grade_price AS
WITH quotes AS (SELECT ep, t::DATE AS day, price FROM grade_own WHERE price IS NOT NULL),
days AS (SELECT ep, day, max(price) AS dearest, min(price) AS lowest FROM quotes GROUP BY ep, day),
ratios AS (
  SELECT ep, r6(dearest / min(lowest) OVER (PARTITION BY ep ORDER BY day
    RANGE BETWEEN to_days(param('baseline_days')) PRECEDING AND INTERVAL 1 DAY PRECEDING)) AS r FROM days),
moved AS (SELECT ep, max(n) > param('quotes_a_day') AS dynamic FROM (
  SELECT ep, count(DISTINCT price) AS n FROM quotes SEMI JOIN (FROM days WHERE dearest > lowest) USING (ep, day) GROUP BY ep, day) GROUP BY ep)
SELECT ep, count(r)::DOUBLE AS w, r6(sum(CASE WHEN r <= param('price_tolerance') THEN 1.0
  ELSE greatest(0.0, 1.0 - ln(r) / ln(param('price_zero_ratio'))) END)) AS s, coalesce(any_value(dynamic), FALSE) AS dynamic
FROM ratios LEFT JOIN moved USING (ep) GROUP BY ep;
