-- Days before $until with records that no freeze has read, oldest first: days after $newest (the newest frozen one), and
-- frozen days that records came late for.
-- grain: one UTC day
-- reads: event; $until, $newest (days), $read and $ends (JSON arrays of {topic, part, next}: how far freezes have read, and how
--   far the lake is loaded)
-- writes: nothing
WITH ends AS (SELECT unnest(from_json($ends, '[{"topic": "VARCHAR", "part": "USMALLINT", "next": "BIGINT"}]'), recursive := true)),
 done AS (SELECT unnest(from_json($read, '[{"topic": "VARCHAR", "part": "USMALLINT", "next": "BIGINT"}]'), recursive := true))
SELECT DISTINCT strftime(e.observed_at, '%Y-%m-%d') AS day
FROM event e JOIN ends USING (topic, part) LEFT JOIN done USING (topic, part)
WHERE e.type <> 'paid.commitment' AND e.observed_at < $until::DATE AND e.log_offset < ends.next
  AND (e.observed_at >= $newest::DATE + INTERVAL 1 DAY OR e.log_offset >= coalesce(done.next, 0))
ORDER BY day
