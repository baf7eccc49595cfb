-- name: verdicts
-- Verdicts of our own blind calls (from wallets that sellers do not know to be ours) on failures that buyers published
-- and that have no verdict yet (method, section 3). reproduced: one of our calls failed in the same way.
-- not_reproduced: at least $passes calls, not all in one block (six hours), did not fail in that way. Only the first
-- blind calls after the failure are considered, as many as a verdict needs, since a failure weeks later does not
-- reproduce it.
-- grain: one published call with a verdict
-- reads: samples, withdrawn, paid_intent, event; $passes (of the method)
-- writes: nothing
WITH waiting AS (SELECT obs_id, cap, t, delivered FROM samples ANTI JOIN withdrawn USING (obs_id) WHERE kind = 2 AND fault = 'unconfirmed'),
 blind AS (
  SELECT s.obs_id, s.cap, s.t, s.delivered, i.slot_block AS block,
    NOT is_passed(s.delivered, s.delivery, NULL) OR s.schema_ok IS FALSE AS failed
  FROM samples s SEMI JOIN waiting w ON w.cap = s.cap ANTI JOIN withdrawn x ON x.obs_id = s.obs_id
    JOIN paid_intent i ON i.event_id = s.obs_id AND i.cap = s.cap
    JOIN event e ON e.event_id = s.obs_id AND e.cap = s.cap AND e.type = 'paid.intent'
  WHERE s.kind = 1 AND s.fault IS NULL AND s.settled AND (e.body->>'$.blind')::BOOLEAN),
 tried AS (
  SELECT w.obs_id, w.cap, b.failed AND b.delivered = w.delivered AS alike, b.block,
    row_number() OVER course AS n, min(b.block) OVER (PARTITION BY w.obs_id, w.cap) AS first_block
  FROM waiting w JOIN blind b ON b.cap = w.cap AND b.t > w.t
  WINDOW course AS (PARTITION BY w.obs_id, w.cap ORDER BY b.t, b.obs_id)),
 enough AS (SELECT obs_id, cap, min(n) AS n FROM tried WHERE n >= $passes AND block <> first_block GROUP BY ALL)
SELECT t.obs_id AS "of", t.cap, CASE WHEN bool_or(t.alike) THEN 'reproduced' ELSE 'not_reproduced' END AS kind
FROM tried t LEFT JOIN enough e ON e.obs_id = t.obs_id AND e.cap = t.cap
WHERE e.n IS NULL OR t.n <= e.n
GROUP BY t.obs_id, t.cap HAVING bool_or(t.alike) OR count(e.n) > 0
ORDER BY t.cap, t.obs_id LIMIT 1000
