-- Urls that somebody asked about within a day and that were never knocked on, oldest first. $since is unix ms.
-- grain: one asked capability
-- reads: event, seen
-- writes: nothing
SELECT cap, arg_min(body, observed_at) AS body
FROM event ANTI JOIN seen USING (cap)
WHERE topic = 'asks' AND observed_at >= epoch_ms($since)
GROUP BY cap ORDER BY min(observed_at), cap LIMIT 100
