-- Ids that were kept when a file was made.
-- grain: one line
-- reads: the Parquet file named by the variable archive_path
-- writes: temp archive_ids
CREATE OR REPLACE TEMP TABLE archive_ids AS SELECT record_id, capability_id FROM read_parquet(getvariable('archive_path'))
