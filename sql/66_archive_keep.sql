-- Ids of a file that was just made and the partitions that they are in, for the moment when its rows leave.
-- grain: one row of the file
-- reads: temp archive_source; rows from ($first_cap, $first_id) to ($last_cap, $last_id), inclusive
-- writes: $path (Parquet file)
COPY (SELECT event_id AS record_id, part FROM archive_source
  WHERE (cap > $first_cap OR cap = $first_cap AND event_id >= $first_id) AND (cap < $last_cap OR cap = $last_cap AND event_id <= $last_id))
TO ($path) (FORMAT parquet, COMPRESSION uncompressed)
