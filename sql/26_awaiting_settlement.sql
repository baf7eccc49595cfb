-- Intents with a result whose Transfer was not seen and may still be found: the signature had not expired an hour before the
-- newest record of a paid call was appended. Both are real time, whatever clock the record's own times come from.
-- grain: one intent
-- reads: paid_intent, paid_result, settlement, paid_followup, event
-- writes: nothing
WITH awaiting AS (
  SELECT i.event_id, i.cap FROM paid_intent i
  SEMI JOIN paid_result r ON r.intent = i.event_id AND r.cap = i.cap AND r.t >= i.t - INTERVAL 1 DAY
  ANTI JOIN settlement s ON s.intent = i.event_id AND s.cap = i.cap
  ANTI JOIN (SELECT intent, cap FROM paid_followup WHERE kind = 'finality') f ON f.intent = i.event_id AND f.cap = i.cap
  WHERE i.valid_before + 3600 >= (SELECT epoch(max(appended_at))::BIGINT FROM event WHERE topic = 'observations.paid'))
SELECT e.event_id, e.cap, e.observed_at, e.body FROM event e JOIN awaiting a ON a.event_id = e.event_id AND a.cap = e.cap
WHERE e.type = 'paid.intent' ORDER BY e.observed_at, e.event_id
