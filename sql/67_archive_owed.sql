-- Partitions of this lake that have not followed a manifest yet, and the rows of its file that are theirs.
-- grain: archive_parts = one partition; archive_owed = one row of the file
-- reads: temp archive_ids, positions, archived; the variable archive_what, a JSON object {arc_id, topic, shift: 6 - log2 of
--   the log's partitions}
-- writes: temp archive_parts, temp archive_owed
CREATE OR REPLACE TEMP TABLE archive_parts AS
SELECT part FROM positions WHERE topic = json_extract_string(getvariable('archive_what'), '$.topic')
  AND part NOT IN (SELECT part FROM archived WHERE arc_id = json_extract_string(getvariable('archive_what'), '$.arc_id'));
-- partition = first bits of sha256(key) (records.md, Topics)
CREATE OR REPLACE TEMP TABLE archive_owed AS
WITH caps AS (
  SELECT c.capability_id, p.part FROM (SELECT DISTINCT capability_id FROM archive_ids) c JOIN archive_parts p
    ON p.part = (('0x' || sha256(c.capability_id)[1:2])::INTEGER >> 2) >> json_extract(getvariable('archive_what'), '$.shift')::INTEGER)
SELECT i.record_id, c.part FROM archive_ids i JOIN caps c USING (capability_id);
