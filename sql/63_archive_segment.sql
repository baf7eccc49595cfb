-- What one segment has of them, below the positions that the file was frozen at.
-- grain: one record of the log
-- reads: $segment (Parquet file); $type, $day, $next, $part
-- writes: temp archive_chain
INSERT INTO archive_chain SELECT event_id, coalesce(cap, key), $part, observed_at, "offset",
  whole_body(body, pieces_of(shape), measured, block, minute, sha)
FROM segment_rows($segment)
WHERE type = $type AND observed_at >= $day::DATE AND observed_at < $day::DATE + INTERVAL 1 DAY AND "offset" < $next
