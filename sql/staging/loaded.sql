-- name: known
-- The segments of a list that are loaded already.
-- grain: one live segment
-- reads: loaded; $files (JSON array)
-- writes: nothing
SELECT file FROM loaded WHERE file IN (FROM texts_of($files))

-- name: gone
-- Deletes the segments of one partition that other segments replaced.
-- grain: one segment that is not live any more
-- reads: $topic, $part, $gone (JSON array of files)
-- writes: loaded
DELETE FROM loaded WHERE topic = $topic AND part = $part AND file IN (FROM texts_of($gone));

-- name: positions
-- Records how far partitions are loaded.
-- grain: one partition of a topic
-- reads: $ends (JSON array of {topic, part, next})
-- writes: positions
-- A segment that replaces others ends below what is loaded already, so a position must not decrease.
INSERT INTO positions SELECT topic, part, max(next) FROM positions_of($ends) GROUP BY ALL
ON CONFLICT DO UPDATE SET next = greatest(positions.next, excluded.next);

-- name: has
-- The loaded files of one partition, and how far the partition is loaded.
-- grain: one loaded file; one row without a file where there is none
-- reads: loaded, positions
-- writes: nothing
SELECT l.file, p.next FROM (SELECT (SELECT next FROM positions WHERE topic = $topic AND part = $part) AS next) p
LEFT JOIN (SELECT file FROM loaded WHERE topic = $topic AND part = $part) l ON TRUE;

-- name: other_days
-- Loaded segments of a partition without a record of a UTC day, of all topics.
-- grain: one live segment
-- reads: loaded; $part, $day
-- writes: nothing
SELECT topic, file FROM loaded WHERE part = $part
  AND NOT coalesce(since < $day::DATE + INTERVAL 1 DAY AND until >= $day::DATE, FALSE);

-- name: day
-- Loaded segments of a partition with records of a UTC day, or of the day before or after it, which may have copies of them.
-- grain: one live segment, ascending; first, last = its offsets, taken from its file name
-- reads: loaded; $topic, $part, $day
-- writes: nothing
SELECT regexp_extract(file, '/0*(\d+)-0*(\d+)-[0-9a-f]+\.parquet$', 1)::DOUBLE AS first,
  regexp_extract(file, '/0*(\d+)-0*(\d+)-[0-9a-f]+\.parquet$', 2)::DOUBLE AS last
FROM loaded WHERE topic = $topic AND part = $part AND since < $day::DATE + 2 AND until >= $day::DATE - 1 ORDER BY first;
