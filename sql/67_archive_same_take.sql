-- Those rows leave the lake: as many as were counted a moment ago, in the same transaction.
-- grain: one row of the file
-- reads: temp archive_ends, temp archive_parts, temp archive_span; the variables archive_type, archive_day
-- writes: event
-- What 63_archive_source and 67_archive_same say, said of the table: to take rows by their places takes twice as long.
DELETE FROM event USING archive_ends n, archive_span
WHERE event.part = n.part AND event.part IN (SELECT part FROM archive_parts)
  AND type = getvariable('archive_type') AND observed_at >= getvariable('archive_day')::DATE
  AND observed_at < getvariable('archive_day')::DATE + INTERVAL 1 DAY AND log_offset < n.next
  AND (cap > first_cap OR cap = first_cap AND event_id >= first_id) AND (cap < last_cap OR cap = last_cap AND event_id <= last_id)
