-- Which planned calls of a UTC day were made: handshakes, probes of tools and intents whose slot lies on it (four blocks a day).
-- grain: one event id
-- reads: event
-- writes: nothing
SELECT event_id FROM event
WHERE type IN ('handshake', 'mcp.probe', 'paid.intent') AND coalesce(block, json_extract(body, '$.slot.block')::BIGINT) // 4 = date_diff('day', DATE '1970-01-01', $day::DATE)
  -- A call runs in its slot, or late after a pause; nobody catches up for longer than a week.
  AND observed_at BETWEEN $day::DATE - INTERVAL 1 DAY AND $day::DATE + INTERVAL 8 DAY
