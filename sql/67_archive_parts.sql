-- Partitions of this lake that have not followed a manifest yet.
-- grain: one partition
-- reads: positions, archived; the variable archive_what, a JSON object {arc_id, topic, shift: 6 - log2 of the log's partitions}
-- writes: temp archive_parts
CREATE OR REPLACE TEMP TABLE archive_parts AS
SELECT part FROM positions WHERE topic = json_extract_string(getvariable('archive_what'), '$.topic')
  AND part NOT IN (SELECT part FROM archived WHERE arc_id = json_extract_string(getvariable('archive_what'), '$.arc_id'));
