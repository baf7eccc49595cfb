-- A line that was made outside, in its place.
-- grain: one record
-- reads: $event_id, $cap, $line
-- writes: temp archive_lines
UPDATE archive_lines SET line = $line WHERE event_id = $event_id AND cap = $cap
