-- name: open
-- The queue of asks (requests to probe a url that is not in the record), shared out by registrable domain.
-- An ask is due from the time at which it was made, or from its `not_before` if that is later. It stays open until its
-- capability is probed, or an ask for the capability is processed (`looked`). It is not open either if that happened
-- in the $rest_ms before it became due, so that a url that failed is not tried again at once; this does not apply to a
-- re-test that a seller requested. The oldest ask of each domain comes first, then the second of each. In an hour, at
-- most $per_domain asks of one domain are begun, and at most $per_platform of all names under one hosting platform. An
-- ask expires after $kept_ms. $now is unix ms.
-- grain: one asked capability
-- reads: asked, looked, seen, endpoint
-- writes: nothing
WITH last_look AS (SELECT cap, max(t) AS t FROM looked GROUP BY cap),
 turn AS (
  SELECT cap, id, body, greatest(t, TRY_CAST(json_extract_string(body, '$.not_before') AS TIMESTAMP)) AS t,
   CASE WHEN json_extract(body, '$.retest') IS NULL THEN to_milliseconds($rest_ms) ELSE INTERVAL 0 HOUR END AS rest FROM asked
  WHERE t >= epoch_ms($now) - to_milliseconds($kept_ms)),
 open AS (
  SELECT a.cap, min({t: a.t, id: a.id, body: a.body}) AS first FROM turn a LEFT JOIN seen s USING (cap) LEFT JOIN last_look l USING (cap)
  WHERE a.t <= epoch_ms($now) AND coalesce(greatest(s.last_seen, l.t) < a.t - a.rest, TRUE)
  GROUP BY a.cap),
 queued AS (
  SELECT o.cap, o.first, e.domain, e.platform, row_number() OVER (PARTITION BY e.domain ORDER BY o.first.t, o.first.id) AS turn
  FROM open o JOIN endpoint e USING (cap)),
 placed AS (
  SELECT *, row_number() OVER (PARTITION BY platform ORDER BY turn, first.t, first.id) AS platform_turn FROM queued)
SELECT p.cap, epoch_ms(p.first.t)::DOUBLE AS t, p.first.body AS body
FROM placed p LEFT JOIN begun_before($now) b USING (domain) LEFT JOIN begun_under($now) u USING (platform)
WHERE p.turn + coalesce(b.n, 0) <= $per_domain AND p.platform_turn + coalesce(u.n, 0) <= $per_platform
ORDER BY p.turn, p.first.t, p.first.id LIMIT $most;

-- name: unprobed
-- Endpoints listed since $since (unix ms) that were never probed, and for which no ask was processed (`looked`) in the
-- day before $now: the newest first, shared out by registrable domain and within the hourly bounds of asks.
-- grain: one listed capability
-- reads: listing, looked, seen, endpoint
-- writes: nothing
WITH fresh AS (
  SELECT cap, min(t) AS t FROM listing WHERE NOT gone GROUP BY cap HAVING min(t) >= epoch_ms($since)),
 queued AS (
  SELECT c.cap, c.t, e.url, e.method, e.domain, e.platform, row_number() OVER (PARTITION BY e.domain ORDER BY c.t DESC, c.cap) AS turn
  FROM fresh c JOIN endpoint e USING (cap) ANTI JOIN (FROM seen WHERE last_seen IS NOT NULL) s USING (cap)
    ANTI JOIN (FROM looked WHERE t > epoch_ms($now) - INTERVAL 1 DAY) l USING (cap)
  WHERE NOT e.ours),
 placed AS (SELECT *, row_number() OVER (PARTITION BY platform ORDER BY turn, t DESC, cap) AS platform_turn FROM queued)
SELECT q.cap, epoch_ms(q.t)::DOUBLE AS t, q.url, q.method
FROM placed q LEFT JOIN begun_before($now) b USING (domain) LEFT JOIN begun_under($now) u USING (platform)
WHERE q.turn + coalesce(b.n, 0) <= $per_domain AND q.platform_turn + coalesce(u.n, 0) <= $per_platform
ORDER BY q.turn, q.t DESC, q.cap LIMIT $most;

-- name: demand
-- Demand for an endpoint in the seven UTC days before $day: the number of clients that checked it, plus, for an
-- endpoint that was not in the record, the number of days with an ask. Re-tests that a seller requested do not count,
-- since a seller could cause paid calls to itself with them. An ask with one HTTP method counts for all methods with
-- which the endpoint was found.
-- grain: one capability
-- reads: demand, asked, looked
-- writes: nothing
WITH checked AS (
  SELECT cap, clients AS n FROM demand WHERE day >= $day::DATE - 7 AND day < $day::DATE),
 days AS (
  SELECT DISTINCT cap, t::DATE AS day FROM asked WHERE t >= $day::DATE - INTERVAL 7 DAY AND t < $day::DATE
    AND json_extract(body, '$.retest') IS NULL),
 found AS (SELECT DISTINCT cap, unnest(found) AS found FROM looked WHERE t >= $day::DATE - INTERVAL 8 DAY),
 by_asks AS (
  SELECT cap, 1 AS n FROM days UNION ALL
  SELECT f.found AS cap, 1 AS n FROM days d JOIN found f ON f.cap = d.cap WHERE f.found <> d.cap)
SELECT cap, sum(n)::BIGINT AS n FROM (FROM checked UNION ALL FROM by_asks) GROUP BY cap;
