-- The next records whose line has to be made outside of the engine.
-- grain: one record; at most $most after ($cap, $id)
-- reads: temp archive_lines, temp archive_source
-- writes: nothing
SELECT s.event_id, s.cap, epoch_ms(s.observed_at)::DOUBLE AS t, s.body
FROM archive_source s JOIN (SELECT event_id, cap FROM archive_lines
  WHERE contains(line, '\u00') AND (cap > $cap OR cap = $cap AND event_id > $id) ORDER BY cap, event_id LIMIT $most) USING (event_id, cap)
ORDER BY s.cap, s.event_id
