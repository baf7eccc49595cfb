-- name: known
-- The segments of a list that are loaded already. A segment is live until segments that were joined from it and others
-- replace it.
-- grain: one live segment
-- reads: loaded; $files (JSON array)
-- writes: nothing
SELECT file FROM loaded WHERE file IN (FROM texts_of($files))

-- name: gone
-- Deletes from `loaded` the segments of one partition that other segments have replaced.
-- grain: one segment that is not live any more
-- reads: $topic, $part, $gone (JSON array of files)
-- writes: loaded
DELETE FROM loaded WHERE topic = $topic AND part = $part AND file IN (FROM texts_of($gone));

-- name: positions
-- Records up to which offset partitions are loaded.
-- grain: one partition of a topic
-- reads: $ends (JSON array of {topic, part, next})
-- writes: positions
-- A segment that replaces others may end below the offset up to which the partition is loaded already, so a position
-- never decreases.
INSERT INTO positions SELECT topic, part, max(next) FROM positions_of($ends) GROUP BY ALL
ON CONFLICT DO UPDATE SET next = greatest(positions.next, excluded.next);

-- name: has
-- The loaded files of one partition, and the offset up to which the partition is loaded.
-- grain: one loaded file; one row without a file where there is none
-- reads: loaded, positions
-- writes: nothing
SELECT l.file, p.next FROM (SELECT (SELECT next FROM positions WHERE topic = $topic AND part = $part) AS next) p
LEFT JOIN (SELECT file FROM loaded WHERE topic = $topic AND part = $part) l ON TRUE;

-- name: other_days
-- Loaded segments, of all topics, of one partition that have no record of a UTC day.
-- grain: one live segment
-- reads: loaded; $part, $day
-- writes: nothing
SELECT topic, file FROM loaded WHERE part = $part
  AND NOT coalesce(since < $day::DATE + INTERVAL 1 DAY AND until >= $day::DATE, FALSE);

-- name: day
-- Loaded segments of a partition with records of a UTC day, or of the day before or after it, in which copies of these
-- records may be.
-- grain: one live segment, ascending; first, last = its offsets, taken from its file name
-- reads: loaded; $topic, $part, $day
-- writes: nothing
SELECT regexp_extract(file, '/0*(\d+)-0*(\d+)-[0-9a-f]+\.parquet$', 1)::DOUBLE AS first,
  regexp_extract(file, '/0*(\d+)-0*(\d+)-[0-9a-f]+\.parquet$', 2)::DOUBLE AS last
FROM loaded WHERE topic = $topic AND part = $part AND since < $day::DATE + 2 AND until >= $day::DATE - 1 ORDER BY first;
