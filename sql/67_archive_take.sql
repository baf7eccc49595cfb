-- What hangs on the rows of a file leaves the lake with them. The totals of their endpoints stay: they hold these rows since they
-- were loaded.
-- grain: one row of the file
-- reads: temp archive_owed; the variable archive_day
-- writes: samples, withdrawal, withdrawn
-- Few rows are withdrawn, and few handshakes have a sample that is written down (20_samples): those of the file are looked up
-- among them, so that no table of all ids is built for some.
DELETE FROM samples WHERE kind = 0 AND t >= getvariable('archive_day')::DATE AND t < getvariable('archive_day')::DATE + INTERVAL 1 DAY
  AND obs_id IN (SELECT record_id FROM archive_owed WHERE record_id IN (SELECT obs_id FROM samples WHERE kind = 0
    AND t >= getvariable('archive_day')::DATE AND t < getvariable('archive_day')::DATE + INTERVAL 1 DAY));
DELETE FROM withdrawal WHERE obs_id IN (SELECT record_id FROM archive_owed WHERE record_id IN (SELECT obs_id FROM withdrawal));
DELETE FROM withdrawn WHERE obs_id IN (SELECT record_id FROM archive_owed WHERE record_id IN (SELECT obs_id FROM withdrawn));
