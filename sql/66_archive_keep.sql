-- Ids of a file that was just made, for the moment when its rows leave.
-- grain: one line
-- reads: temp archive_lines; rows $first to $next, exclusive
-- writes: $path (Parquet file)
COPY (SELECT event_id AS record_id, cap AS capability_id FROM archive_lines WHERE rowid >= $first AND rowid < $next)
TO ($path) (FORMAT parquet, COMPRESSION lz4)
