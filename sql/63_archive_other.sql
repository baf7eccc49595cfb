-- Rows that another standing file of the day holds.
-- grain: one row
-- reads: temp archive_ids
-- writes: temp archive_others
INSERT INTO archive_others SELECT record_id FROM archive_ids
