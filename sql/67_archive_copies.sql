-- Records of the waiting room that a file holds and that were counted when it was followed: copies, or come back with a
-- segment that was joined again.
-- grain: one record
-- reads: temp archive_ids; the variable archive_type
-- writes: late
DELETE FROM late WHERE type = getvariable('archive_type') AND event_id IN (SELECT record_id FROM archive_ids);
