-- Those rows are the ones that the file holds.
-- grain: one record of the log
-- reads: temp archive_here
-- writes: temp archive_owed
CREATE OR REPLACE TEMP VIEW archive_owed AS SELECT event_id AS record_id, part FROM archive_here
