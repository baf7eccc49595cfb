-- Where the rows of a file are among those of this lake.
-- grain: one row of the file; place = of the row in its table, as long as this transaction
-- reads: temp archive_owed, event; the variables archive_type, archive_day
-- writes: temp archive_here
CREATE OR REPLACE TEMP TABLE archive_here AS
SELECT e.rowid AS place, o.part FROM event e JOIN archive_owed o ON o.record_id = e.event_id
WHERE e.type = getvariable('archive_type') AND e.observed_at >= getvariable('archive_day')::DATE
  AND e.observed_at < getvariable('archive_day')::DATE + INTERVAL 1 DAY
