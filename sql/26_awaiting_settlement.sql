-- Intents with a result of which the chain may still have something to say: the Transfer was not seen and may still be found
-- (the signature had not expired an hour before the newest record of a paid call was appended), or it was seen and is not
-- final (looked for until a week after). All of these are real time, whatever clock the record's own times come from.
-- grain: one intent, with its newest Transfer or NULL
-- reads: paid_intent, paid_result, settlement, paid_followup, event
-- writes: nothing
WITH newest AS (SELECT epoch(max(appended_at))::BIGINT AS s FROM event WHERE topic = 'observations.paid'),
 answered AS (
  SELECT i.event_id, i.cap, i.t, i.valid_before FROM paid_intent i
  SEMI JOIN paid_result r ON r.intent = i.event_id AND r.cap = i.cap AND r.t >= i.t - INTERVAL 1 DAY
  ANTI JOIN (SELECT intent, cap FROM paid_followup WHERE kind = 'finality') f ON f.intent = i.event_id AND f.cap = i.cap
  WHERE i.valid_before + 7 * 86400 >= (FROM newest)),
 awaiting AS (
  SELECT a.event_id, a.cap, a.t, max({t: s.t, id: s.event_id}).id AS seen
  FROM answered a LEFT JOIN settlement s ON s.intent = a.event_id AND s.cap = a.cap
  GROUP BY a.event_id, a.cap, a.t, a.valid_before
  HAVING NOT coalesce(bool_or(s.final), FALSE) AND (count(s.event_id) > 0 OR a.valid_before + 3600 >= (FROM newest)))
SELECT e.event_id, e.cap, e.observed_at, e.body, m.body AS settlement
FROM event e JOIN awaiting a ON a.event_id = e.event_id AND a.cap = e.cap
  LEFT JOIN event m ON m.event_id = a.seen AND m.cap = a.cap AND m.type = 'settlement' AND m.observed_at >= a.t - INTERVAL 1 DAY
WHERE e.type = 'paid.intent'
QUALIFY row_number() OVER (PARTITION BY e.event_id, e.cap ORDER BY m.observed_at) = 1
ORDER BY e.observed_at, e.event_id
