-- How far each day's dearest quote lies above the lowest quote of the days before.
-- grain: one endpoint
-- reads: grade_own; window_start, baseline_days, price_tolerance, price_zero_ratio, quotes_a_day
-- writes: grade_price, and grade_quoted on the way
-- days: a bit for every day with a quote.
CREATE OR REPLACE TEMP TABLE grade_quoted AS
SELECT ep, min(price) AS lowest, max(price) AS dearest,
  bit_or(1::HUGEINT << (t::DATE - param('window_start')::DATE)::HUGEINT) AS days
FROM grade_own WHERE price IS NOT NULL GROUP BY ep;

-- Nearly every price never moves: then each day with a quote within the baseline before it is a sample of 1, and moving
-- the bits over each other counts them. Only prices that move are looked at day by day.
CREATE OR REPLACE TEMP TABLE grade_price AS
WITH still AS (
  SELECT ep, bit_count(days & list_aggregate(list_transform(range(1, param('baseline_days') + 1), lambda k: days << k::HUGEINT), 'bit_or'))::DOUBLE AS w
  FROM grade_quoted WHERE lowest = dearest),
quotes AS (SELECT ep, t::DATE AS day, price FROM grade_own SEMI JOIN (FROM grade_quoted WHERE lowest < dearest) USING (ep) WHERE price IS NOT NULL),
days AS (SELECT ep, day, max(price) AS dearest, min(price) AS lowest FROM quotes GROUP BY ep, day),
ratios AS (
  SELECT ep, r6(dearest / min(lowest) OVER (PARTITION BY ep ORDER BY day
    RANGE BETWEEN to_days(param('baseline_days')) PRECEDING AND INTERVAL 1 DAY PRECEDING)) AS r FROM days),
many AS (
  SELECT DISTINCT ep FROM quotes SEMI JOIN (FROM days WHERE lowest < dearest) USING (ep, day)
  GROUP BY ep, day HAVING count(DISTINCT price) > param('quotes_a_day'))
SELECT ep, w, w AS s, FALSE AS dynamic FROM still
UNION ALL SELECT ep, count(r)::DOUBLE, r6(sum(CASE WHEN r <= param('price_tolerance') THEN 1.0
  ELSE greatest(0.0, 1.0 - ln(r) / ln(param('price_zero_ratio'))) END)), ep IN (FROM many) FROM ratios GROUP BY ep;
