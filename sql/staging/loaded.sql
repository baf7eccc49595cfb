-- name: file
-- A segment is loaded.
-- grain: one live segment
-- reads: the segment file $path; $topic, $part, $file, $rows
-- writes: loaded
INSERT INTO loaded SELECT $topic, $part, $file, $rows, min(observed_at), max(observed_at) FROM read_parquet($path);

-- name: position
-- How far one partition is loaded, and without the files that others replaced.
-- grain: one partition
-- reads: $topic, $part, $next, $gone (JSON array of files)
-- writes: loaded, positions
DELETE FROM loaded WHERE topic = $topic AND part = $part AND file IN (FROM texts_of($gone));
-- A segment that was replaced lies below what is loaded already: a position never goes back.
INSERT INTO positions VALUES ($topic, $part, $next)
ON CONFLICT DO UPDATE SET next = greatest(positions.next, excluded.next);
