-- Neighbouring segments as one.
-- grain: one record of one partition, in offset order
-- reads: $files (JSON array of paths of Parquet segments)
-- writes: $segment (Parquet file, zstd)
COPY (FROM read_parquet(from_json($files, '["VARCHAR"]')) ORDER BY "offset") TO ($segment) (FORMAT parquet, COMPRESSION zstd);
