-- Archived days that records wait for.
-- grain: one (type, UTC day)
-- reads: late
-- writes: nothing
SELECT DISTINCT type, strftime(observed_at, '%Y-%m-%d') AS day FROM late ORDER BY ALL
