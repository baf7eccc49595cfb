-- name: done_on
-- Planned calls of a UTC day that were made: handshakes, probes of tools and paid intents whose slot (planned time)
-- lies in blocks (spans of six hours) $first to $end (exclusive). A call runs in its slot, or later after a pause, at
-- most a week late.
-- grain: one event id
-- reads: event, paid_intent; $day, $first, $end
-- writes: nothing
SELECT event_id FROM (
  SELECT event_id, observed_at AS t, block FROM event WHERE is_probe(type)
  UNION ALL SELECT event_id, t, slot_block FROM paid_intent)
WHERE block >= $first AND block < $end AND t BETWEEN $day::DATE - INTERVAL 1 DAY AND $day::DATE + INTERVAL 8 DAY;

-- name: passed_inputs
-- The newest $most synthetic inputs (made from a schema) with which a call passed. If an equal input fails later, the
-- input is not at fault (section 1 of the method).
-- grain: one (capability, request)
-- reads: samples, withdrawn, event
-- writes: nothing
WITH passed AS (
  SELECT cap, obs_id, t FROM samples ANTI JOIN withdrawn USING (obs_id)
  WHERE kind = 1 AND input = 'synthetic' AND fault IS NULL AND is_passed(delivered, delivery, outcome))
SELECT e.cap, json_extract_string(e.body, '$.request_sha256') AS request_sha256
FROM event e JOIN passed p ON p.obs_id = e.event_id AND p.cap = e.cap
WHERE e.type = 'paid.intent' AND e.observed_at >= (SELECT min(t) FROM passed)
GROUP BY ALL ORDER BY max(e.observed_at) DESC, e.cap LIMIT $most;
