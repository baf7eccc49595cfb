-- Rows of a file that are in partitions which have not followed its manifest yet, as they were kept when it was made.
-- grain: one row of the file
-- reads: the Parquet file named by the variable archive_path, temp archive_parts
-- writes: temp archive_owed
CREATE OR REPLACE TEMP TABLE archive_owed AS
SELECT record_id, part FROM read_parquet(getvariable('archive_path')) JOIN archive_parts USING (part)
