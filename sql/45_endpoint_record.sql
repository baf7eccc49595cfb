-- What one segment of the commit chain holds under one key, or under every key.
-- grain: one record of the log, in offset order
-- reads: $segment (Parquet file)
-- writes: nothing
SELECT event_id, type, key, observed_at, "offset" AS log_offset,
  whole_body(body, pieces_of(shape), measured, block, minute, sha) AS body
FROM segment_rows($segment)
WHERE $key IS NULL OR key = $key ORDER BY "offset"
