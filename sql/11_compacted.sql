-- Neighbouring segments as one.
-- grain: one record of one partition, in offset order
-- reads: the variable files (a list of Parquet segments)
-- writes: $segment (Parquet file, zstd)
COPY (SELECT * FROM read_parquet(getvariable('files'), union_by_name = true) ORDER BY "offset") TO ($segment) (FORMAT parquet, COMPRESSION zstd);
