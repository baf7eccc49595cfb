-- Archived days that records wait for, and the partitions of those.
-- grain: one (type, UTC day)
-- reads: late
-- writes: nothing
SELECT type, strftime(observed_at, '%Y-%m-%d') AS day, list_sort(list(DISTINCT part))::INTEGER[] AS parts FROM late GROUP BY ALL ORDER BY ALL
