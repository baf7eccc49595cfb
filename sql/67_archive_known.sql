-- Records of the waiting room that a file holds, on their way out: what the totals need of them is staged, one partition at a
-- time, as a segment is, in which an offset names one record.
-- grain: one record
-- reads: temp archive_owed, late, shape; the variables archive_type, archive_part
-- writes: temp stage, temp shape_here, temp touched, late
CREATE OR REPLACE TEMP TABLE stage AS
SELECT * FROM late WHERE type = getvariable('archive_type') AND part = getvariable('archive_part') AND event_id IN (SELECT record_id FROM archive_owed);
CREATE OR REPLACE TEMP TABLE shape_here AS SELECT id, name, text, FALSE AS is_new FROM shape WHERE id IN (SELECT shape FROM stage);
CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT cap FROM stage;
DELETE FROM late WHERE type = getvariable('archive_type') AND part = getvariable('archive_part') AND event_id IN (SELECT record_id FROM archive_owed);
