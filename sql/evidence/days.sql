-- Days before $until with records that no close of a day has read, oldest first: days after $newest (the newest closed
-- one), and closed days that records came late for.
-- grain: one UTC day
-- reads: event; $until, $newest (days), $read and $ends (JSON arrays of {topic, part, next}: how far closes have read, and how
--   far the lake is loaded)
-- writes: nothing
WITH ends AS (FROM positions_of($ends)),
 done AS (FROM positions_of($read))
SELECT DISTINCT strftime(e.observed_at, '%Y-%m-%d') AS day
FROM event e JOIN ends USING (topic, part) LEFT JOIN done USING (topic, part)
WHERE e.type <> 'paid.commitment' AND e.observed_at < $until::DATE AND e.log_offset < ends.next
  AND (e.observed_at >= $newest::DATE + INTERVAL 1 DAY OR e.log_offset >= coalesce(done.next, 0))
ORDER BY day
