-- Lines that were made outside, in their places.
-- grain: one record
-- reads: $lines (JSON array of {event_id, cap, line})
-- writes: temp archive_lines
UPDATE archive_lines SET line = m.line
FROM (SELECT unnest(from_json($lines, '[{"event_id": "VARCHAR", "cap": "VARCHAR", "line": "VARCHAR"}]'), recursive := true)) m
WHERE archive_lines.event_id = m.event_id AND archive_lines.cap = m.cap
