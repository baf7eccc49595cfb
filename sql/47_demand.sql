-- How much an endpoint was asked for in the seven UTC days before $day: clients that checked it, and for one that nobody
-- knew the days on which somebody asked. What was asked for under one verb counts for the verbs that the look found.
-- grain: one capability
-- reads: demand, asked, looked
-- writes: nothing
WITH checked AS (
  SELECT cap, clients AS n FROM demand WHERE day >= $day::DATE - 7 AND day < $day::DATE),
 days AS (
  SELECT DISTINCT cap, t::DATE AS day FROM asked WHERE t >= $day::DATE - INTERVAL 7 DAY AND t < $day::DATE),
 found AS (SELECT DISTINCT cap, unnest(knocked) AS found FROM looked WHERE t >= $day::DATE - INTERVAL 8 DAY),
 meant AS (
  SELECT cap, 1 AS n FROM days UNION ALL
  SELECT f.found AS cap, 1 AS n FROM days d JOIN found f ON f.cap = d.cap WHERE f.found <> d.cap)
SELECT cap, sum(n)::BIGINT AS n FROM (FROM checked UNION ALL FROM meant) GROUP BY cap
