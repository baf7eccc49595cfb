-- What no file of the day holds is a row like any other, that came late: it is staged as if it had just been loaded, one
-- partition at a time.
-- grain: one record
-- reads: late; the variables archive_type, archive_day, archive_part
-- writes: temp stage, event, late
CREATE OR REPLACE TEMP TABLE stage AS
SELECT * FROM late WHERE type = getvariable('archive_type') AND observed_at::DATE = getvariable('archive_day')::DATE
  AND part = getvariable('archive_part');
INSERT INTO event BY NAME FROM stage;
DELETE FROM late WHERE type = getvariable('archive_type') AND observed_at::DATE = getvariable('archive_day')::DATE
  AND part = getvariable('archive_part');
