-- name: known
-- Which of some segments are loaded already.
-- grain: one live segment
-- reads: loaded; $files (JSON array)
-- writes: nothing
SELECT file FROM loaded WHERE file IN (FROM texts_of($files))

-- name: files
-- Segments are loaded.
-- grain: one live segment
-- reads: the segment files $paths (JSON array); $segments (JSON array of {topic, part, file, rows, path})
-- writes: loaded
INSERT INTO loaded
SELECT s.topic, s.part, s.file, s.rows, min(r.observed_at), max(r.observed_at)
FROM (SELECT unnest(from_json($segments, '[{"topic": "VARCHAR", "part": "USMALLINT", "file": "VARCHAR", "rows": "BIGINT", "path": "VARCHAR"}]'),
  recursive := true)) s
LEFT JOIN read_parquet(from_json($paths, '["VARCHAR"]'), filename = 'path') r USING (path) GROUP BY ALL;

-- name: gone
-- Files of one partition that others replaced.
-- grain: one segment that is live no more
-- reads: $topic, $part, $gone (JSON array of files)
-- writes: loaded
DELETE FROM loaded WHERE topic = $topic AND part = $part AND file IN (FROM texts_of($gone));

-- name: positions
-- How far partitions are loaded.
-- grain: one partition of a topic
-- reads: $ends (JSON array of {topic, part, next})
-- writes: positions
-- A segment that was replaced lies below what is loaded already: a position never goes back.
INSERT INTO positions SELECT topic, part, max(next) FROM positions_of($ends) GROUP BY ALL
ON CONFLICT DO UPDATE SET next = greatest(positions.next, excluded.next);
