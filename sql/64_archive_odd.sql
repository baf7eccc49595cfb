-- Records whose line has to be made outside of the engine.
-- grain: one record
-- reads: temp archive_lines, temp archive_source
-- writes: nothing
SELECT s.event_id, s.cap, epoch_ms(s.observed_at)::DOUBLE AS t, s.body
FROM archive_source s SEMI JOIN (FROM archive_lines WHERE contains(line, '\u00')) USING (event_id, cap)
