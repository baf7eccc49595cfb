-- name: waiting
-- Number of probes of days before $until that are still in the lake, and so in no archive file yet.
-- grain: one (type, UTC day, partition)
-- reads: event, positions; $until (day)
-- writes: nothing
SELECT e.type, strftime(e.observed_at, '%Y-%m-%d') AS day, e.part::INTEGER AS part, count(*)::DOUBLE AS rows
FROM event e JOIN positions p USING (topic, part)
WHERE e.observed_at < $until::DATE AND is_probe(e.type) AND e.log_offset < p.next
GROUP BY ALL ORDER BY ALL;

-- name: hanging
-- Removes the rows of other tables that refer to the archived rows of one partition. The totals of endpoints do not
-- change, since they count archived rows too.
-- grain: leaving = one withdrawn row that is removed
-- reads: event; $type, $day, $part, $next
-- writes: withdrawal, withdrawn, left_id, left_day; temp leaving
CREATE OR REPLACE TEMP TABLE leaving AS
SELECT event_id FROM event WHERE part = $part::USMALLINT AND type = $type AND on_day(observed_at, $day) AND log_offset < $next::BIGINT
  AND event_id IN (SELECT obs_id FROM withdrawal UNION SELECT obs_id FROM withdrawn);
DELETE FROM withdrawal WHERE obs_id IN (SELECT event_id FROM leaving);
DELETE FROM withdrawn WHERE obs_id IN (SELECT event_id FROM leaving);
-- The day has more archived rows now, so its ids are read again when they are needed.
DELETE FROM left_id WHERE type = $type AND day = $day::DATE AND part = $part::USMALLINT;
DELETE FROM left_day WHERE type = $type AND day = $day::DATE AND part = $part::USMALLINT;

-- name: count
-- Number of rows of one partition that are archived and still in the lake.
-- grain: one row
-- reads: event; $type, $day, $part, $next
-- writes: nothing
SELECT count(*) AS n FROM event WHERE part = $part::USMALLINT AND type = $type AND on_day(observed_at, $day) AND log_offset < $next::BIGINT;

-- name: rows
-- Removes the archived rows of one partition from the lake: those that `count` counts in the same transaction.
-- grain: one row that is removed
-- reads: $type, $day, $part, $next
-- writes: event
DELETE FROM event WHERE part = $part::USMALLINT AND type = $type AND on_day(observed_at, $day) AND log_offset < $next::BIGINT;

-- name: note
-- Records which manifests (descriptions of archive files) were applied to one partition, that is, whose rows were
-- removed.
-- grain: one manifest
-- reads: $ids (JSON array of ids of manifests); $type, $day, $part, $next, $removed
-- writes: archived
INSERT OR IGNORE INTO archived SELECT text, $type, $day::DATE, $part, $next, $removed FROM texts_of($ids);
