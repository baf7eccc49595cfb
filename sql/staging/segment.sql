-- name: written
-- Writes the lines of a text file, which are records of one partition, as a segment. The lines have no quotes and no
-- escapes, since no field contains the separator (lineOf). Compression level 1 makes the file as small as the default
-- level does, in half of the CPU time.
-- grain: one record of the log, in offset order
-- reads: $lines (text file), $topic, $part
-- writes: $segment (Parquet file, zstd)
COPY (
  SELECT $topic AS topic, $part::USMALLINT AS part, "offset", event_id, type, key, cap, epoch_ms(observed_ms) AS observed_at,
    coalesce(producer, '') AS producer, v, epoch_ms(appended_ms) AS appended_at, body, extra
  FROM read_csv($lines, auto_detect = false, header = false, delim = e'\x1f', quote = '', escape = '', new_line = '\n',
    max_line_size = 4194304, columns = {"offset": 'BIGINT', event_id: 'VARCHAR', type: 'VARCHAR', key: 'VARCHAR', cap: 'VARCHAR',
      observed_ms: 'BIGINT', producer: 'VARCHAR', v: 'USMALLINT', appended_ms: 'BIGINT', body: 'VARCHAR', extra: 'VARCHAR'}))
TO ($segment) (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)

-- name: joined
-- Joins segments that follow each other into one.
-- grain: one record of one partition, in offset order
-- reads: $files (JSON array of paths of Parquet segments)
-- writes: $segment (Parquet file, zstd)
COPY (FROM read_parquet(from_json($files, '["VARCHAR"]')) ORDER BY "offset") TO ($segment) (FORMAT parquet, COMPRESSION zstd);
