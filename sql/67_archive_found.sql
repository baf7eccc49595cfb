-- Where the rows of a file are in this lake, partition by partition: among its rows, or in the waiting room.
-- grain: one partition that has not followed the manifest yet
-- reads: temp archive_owed, temp archive_parts, event, late; $type, $day
-- writes: nothing
SELECT p.part, count(o.record_id)::DOUBLE AS owed, count(e.event_id)::DOUBLE AS here, count(l.event_id)::DOUBLE AS waiting
FROM archive_parts p LEFT JOIN archive_owed o USING (part)
  LEFT JOIN (SELECT event_id FROM event WHERE type = $type AND observed_at >= $day::DATE
    AND observed_at < $day::DATE + INTERVAL 1 DAY) e ON e.event_id = o.record_id
  LEFT JOIN (SELECT event_id FROM late WHERE type = $type) l ON l.event_id = o.record_id
GROUP BY p.part ORDER BY p.part
