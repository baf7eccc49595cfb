-- Days before $until whose rows may leave the lake and have not.
-- grain: one (type, UTC day)
-- reads: event
-- writes: nothing
SELECT DISTINCT type, strftime(observed_at, '%Y-%m-%d') AS day FROM event
WHERE observed_at < $until::DATE AND type IN ('handshake', 'mcp.probe') ORDER BY ALL
