-- A segment again, with records that an older reader had rejected.
-- grain: one record of one partition, in offset order
-- reads: $old and $found (Parquet segments)
-- writes: $segment (Parquet file, zstd)
COPY (SELECT * FROM read_parquet([$old, $found]) ORDER BY "offset") TO ($segment) (FORMAT parquet, COMPRESSION zstd);
