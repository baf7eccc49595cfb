-- Intents without a result: a process died between them.
-- grain: one intent
-- reads: paid_intent, paid_result, event
-- writes: nothing
WITH open AS (
  SELECT i.event_id, i.cap FROM paid_intent i
  ANTI JOIN paid_result r ON r.intent = i.event_id AND r.cap = i.cap AND r.t >= i.t - INTERVAL 1 DAY)
SELECT e.event_id, e.cap, e.observed_at, e.body FROM event e JOIN open o ON o.event_id = e.event_id AND o.cap = e.cap
WHERE e.type = 'paid.intent' ORDER BY e.observed_at, e.event_id
