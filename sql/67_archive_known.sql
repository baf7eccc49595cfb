-- Records of the waiting room that a file holds, on their way out: what the totals need of them is staged.
-- grain: one record
-- reads: temp archive_owed, late; the variable archive_type
-- writes: temp stage, temp touched, late
CREATE OR REPLACE TEMP TABLE stage AS
SELECT * FROM late WHERE type = getvariable('archive_type') AND event_id IN (SELECT record_id FROM archive_owed);
CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT cap FROM stage;
DELETE FROM late WHERE type = getvariable('archive_type') AND event_id IN (SELECT record_id FROM archive_owed);
