-- Where the rows of a file are in this lake, partition by partition: among its rows, or in the waiting room.
-- grain: one partition that has not followed the manifest yet
-- reads: temp archive_owed, temp archive_parts, temp archive_here, late; $type
-- writes: nothing
SELECT p.part, coalesce(o.n, 0)::DOUBLE AS owed, coalesce(h.n, 0)::DOUBLE AS here, coalesce(l.n, 0)::DOUBLE AS waiting
FROM archive_parts p LEFT JOIN (SELECT part, count(*) AS n FROM archive_owed GROUP BY part) o USING (part)
  LEFT JOIN (SELECT part, count(*) AS n FROM archive_here GROUP BY part) h USING (part)
  LEFT JOIN (SELECT a.part, count(*) AS n FROM archive_owed a JOIN (SELECT event_id FROM late WHERE type = $type) w ON w.event_id = a.record_id
    GROUP BY a.part) l
    USING (part)
ORDER BY p.part
