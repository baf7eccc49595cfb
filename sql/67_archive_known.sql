-- Records of the waiting room that a file holds, on their way out: what the totals need of them is staged, one partition at a
-- time, as a segment is, in which an offset names one record.
-- grain: one record
-- reads: temp archive_owed, late; the variables archive_type, archive_part
-- writes: temp stage, late
CREATE OR REPLACE TEMP TABLE stage AS
SELECT * FROM late WHERE type = getvariable('archive_type') AND part = getvariable('archive_part') AND event_id IN (SELECT record_id FROM archive_owed);
DELETE FROM late WHERE type = getvariable('archive_type') AND part = getvariable('archive_part') AND event_id IN (SELECT record_id FROM archive_owed);
