-- Rows of a file that was read back which are in partitions that have not followed its manifest yet.
-- grain: one row of the file
-- reads: temp archive_ids, temp archive_parts; the variable archive_what (67_archive_parts)
-- writes: temp archive_told, temp archive_owed
-- partition = first bits of sha256(key) (records.md, Topics)
CREATE OR REPLACE TEMP TABLE archive_told AS
WITH caps AS (
  SELECT c.capability_id, p.part FROM (SELECT DISTINCT capability_id FROM archive_ids) c JOIN archive_parts p
    ON p.part = (('0x' || sha256(c.capability_id)[1:2])::INTEGER >> 2) >> json_extract(getvariable('archive_what'), '$.shift')::INTEGER)
SELECT i.record_id, c.part FROM archive_ids i JOIN caps c USING (capability_id);
CREATE OR REPLACE TEMP VIEW archive_owed AS FROM archive_told
