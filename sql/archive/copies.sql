-- name: days
-- Days whose archived records may have a copy among the staged records (those of temp stage, which are being loaded).
-- The ids of these days are needed to recognise the copies: a copy may have been observed one day before or after the
-- archived record. `known` = the ids of that day are in left_id already.
-- grain: one (topic, partition, type, UTC day)
-- reads: temp stage, filed, left_day
-- writes: nothing
SELECT DISTINCT s.topic, s.part, f.type, strftime(f.day, '%Y-%m-%d') AS day, l.day IS NOT NULL AS known
FROM (SELECT DISTINCT topic, part, type, observed_at::DATE AS day FROM stage WHERE is_probe(type)) s
JOIN filed f ON f.type = s.type AND f.part = s.part AND f.day BETWEEN s.day - 1 AND s.day + 1
LEFT JOIN left_day l ON l.type = f.type AND l.day = f.day AND l.part = f.part
ORDER BY ALL;

-- name: forget
-- Deletes the ids of archived records of all days but $days, for the record types $types.
-- grain: one (type, UTC day)
-- reads: $part, $types and $days (JSON arrays)
-- writes: left_id, left_day
DELETE FROM left_id WHERE part = $part AND type IN (FROM texts_of($types)) AND day::VARCHAR NOT IN (FROM texts_of($days));
DELETE FROM left_day WHERE part = $part AND type IN (FROM texts_of($types)) AND day::VARCHAR NOT IN (FROM texts_of($days));

-- name: ids
-- Reads the ids of one day's archived records from the segments: of those below the offsets up to which the archive
-- has them and the lake is loaded.
-- grain: one record that is in a file of the archive
-- reads: the segments $files (a glob); filed, positions; $type, $day, $part
-- writes: left_id
INSERT INTO left_id
SELECT DISTINCT r.type, $day::DATE, r.part, event_id, coalesce(cap, r.key)
FROM read_parquet($files) r JOIN filed f ON f.type = r.type AND f.part = r.part AND f.day = $day::DATE
  JOIN positions p ON p.topic = r.topic AND p.part = r.part
WHERE r.type = $type AND r.part = $part AND on_day(observed_at, $day) AND "offset" < least(f.next, p.next);
