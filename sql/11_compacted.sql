-- Neighbouring segments as one.
-- grain: one record of one partition, in offset order
-- reads: the variable files (a list of Parquet segments)
-- writes: $segment (Parquet file, zstd)
COPY (SELECT * EXCLUDE (body), body AS uncut FROM segment_rows(getvariable('files')) ORDER BY "offset")
TO ($segment) (FORMAT parquet, COMPRESSION zstd);
