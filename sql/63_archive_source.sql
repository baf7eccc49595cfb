-- The rows of one subject and UTC day that lie below the frozen positions.
-- grain: one record of the log
-- reads: event; the variables archive_type, archive_day, archive_ends (JSON array of {part, next})
-- writes: temp archive_source
CREATE OR REPLACE TEMP TABLE archive_ends AS
SELECT unnest(from_json(getvariable('archive_ends'), '[{"part": "USMALLINT", "next": "BIGINT"}]'), recursive := true);
-- A type has one topic, so a partition's number says which one is meant: to compare topics of a million rows takes as long as to
-- gather them.
CREATE OR REPLACE TEMP VIEW archive_source AS
SELECT e.event_id, e.cap, part, e.observed_at, e.body, e.shape, e.measured, e.sha
FROM event e JOIN archive_ends n USING (part)
WHERE e.type = getvariable('archive_type') AND e.observed_at >= getvariable('archive_day')::DATE
  AND e.observed_at < getvariable('archive_day')::DATE + INTERVAL 1 DAY AND e.log_offset < n.next;
