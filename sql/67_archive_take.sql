-- The rows of a file leave the lake. The totals of their endpoints stay: they hold these rows since they were loaded.
-- grain: one row of the file
-- reads: temp archive_owed; the variables archive_type, archive_day
-- writes: event, samples, withdrawal, withdrawn
DELETE FROM samples WHERE kind = 0 AND t >= getvariable('archive_day')::DATE
  AND t < getvariable('archive_day')::DATE + INTERVAL 1 DAY AND obs_id IN (SELECT record_id FROM archive_owed);
DELETE FROM withdrawal WHERE obs_id IN (SELECT record_id FROM archive_owed);
DELETE FROM withdrawn WHERE obs_id IN (SELECT record_id FROM archive_owed);
DELETE FROM event WHERE type = getvariable('archive_type') AND observed_at >= getvariable('archive_day')::DATE
  AND observed_at < getvariable('archive_day')::DATE + INTERVAL 1 DAY AND event_id IN (SELECT record_id FROM archive_owed);
