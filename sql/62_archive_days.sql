-- Days before $until whose rows may leave the lake and have not.
-- grain: one (type, UTC day)
-- reads: event
-- writes: nothing
SELECT type, strftime(day, '%Y-%m-%d') AS day
FROM (SELECT DISTINCT type, observed_at::DATE AS day FROM event WHERE observed_at < $until::DATE AND type IN ('handshake', 'mcp.probe'))
ORDER BY ALL
