-- The line of asks: urls that somebody asked about and that were not knocked on since, fairly by registrable domain.
-- An ask is open when no handshake of its capability, and no look for it, is younger than the day before it: what was found
-- wanting is not looked at again for 24 hours. Each domain's oldest ask comes first, then each one's second; no more than
-- $per_domain of a domain are begun within an hour. After 30 days an ask has had its time. $now is unix ms.
-- grain: one asked capability
-- reads: asked, looked, seen, endpoint
-- writes: nothing
WITH last_look AS (SELECT cap, max(t) AS t FROM looked GROUP BY cap),
 open AS (
  SELECT a.cap, min({t: a.t, id: a.id, body: a.body}) AS first FROM asked a LEFT JOIN seen s USING (cap) LEFT JOIN last_look l USING (cap)
  WHERE a.t >= epoch_ms($now) - INTERVAL 30 DAY
    AND coalesce(greatest(s.last_seen, l.t) < a.t - INTERVAL 24 HOUR, TRUE)
  GROUP BY a.cap),
 begun AS (
  SELECT e.domain, count(*) AS n FROM looked l JOIN endpoint e USING (cap)
  WHERE l.t > epoch_ms($now) - INTERVAL 1 HOUR GROUP BY e.domain),
 placed AS (
  SELECT o.cap, o.first, e.domain, row_number() OVER (PARTITION BY e.domain ORDER BY o.first.t, o.first.id) AS turn
  FROM open o JOIN endpoint e USING (cap))
SELECT p.cap, epoch_ms(p.first.t)::DOUBLE AS t, p.first.body AS body
FROM placed p LEFT JOIN begun b USING (domain)
WHERE p.turn + coalesce(b.n, 0) <= $per_domain
ORDER BY p.turn, p.first.t, p.first.id LIMIT $most
