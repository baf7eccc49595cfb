-- Payments that settled, brought nothing and were not paid back: the newest ten thousand of the last 90 days of the record.
-- Calls that are our own fault accuse nobody, so nobody owes anything for them.
-- grain: one intent, with its Transfer (what is final goes before what was only seen)
-- reads: samples, paid_intent, settlement, event
-- writes: nothing
WITH owed AS (
  SELECT obs_id, cap, t FROM samples
  WHERE kind = 1 AND settled AND NOT coalesce(delivered, FALSE) AND NOT coalesce(refunded, FALSE) AND fault IS DISTINCT FROM 'ours'
    AND t >= (SELECT max(t) FROM paid_intent) - INTERVAL 90 DAY
  ORDER BY t DESC, obs_id LIMIT 10000),
 seen AS (
  SELECT o.obs_id, o.cap, o.t, min({later: NOT s.final, t: s.t, id: s.event_id}).id AS id
  FROM owed o JOIN settlement s ON s.intent = o.obs_id AND s.cap = o.cap GROUP BY o.obs_id, o.cap, o.t)
SELECT e.event_id, e.cap, e.observed_at, e.body, m.body AS settlement
FROM event e JOIN seen s ON e.event_id = s.obs_id AND e.cap = s.cap
  JOIN event m ON m.event_id = s.id AND m.cap = s.cap AND m.type = 'settlement' AND m.observed_at >= s.t - INTERVAL 1 DAY
WHERE e.type = 'paid.intent' AND e.observed_at >= (SELECT min(t) FROM owed) AND m.observed_at >= (SELECT min(t) - INTERVAL 1 DAY FROM owed)
QUALIFY row_number() OVER (PARTITION BY e.event_id, e.cap ORDER BY m.observed_at) = 1
ORDER BY e.observed_at, e.event_id
