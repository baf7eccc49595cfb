-- Inputs that we made up and that passed: when the very same one fails later, the input is not to blame (section 1 of the
-- method). The newest $most of them.
-- grain: one (capability, request)
-- reads: samples, withdrawn, event
-- writes: nothing
WITH passed AS (
  SELECT cap, obs_id, t FROM samples ANTI JOIN withdrawn USING (obs_id)
  WHERE kind = 1 AND input = 'synthetic' AND fault IS NULL AND delivered AND coalesce(delivery, 0) >= 0.5 AND coalesce(outcome, 1) >= 0.5)
SELECT e.cap, json_extract_string(e.body, '$.request_sha256') AS request_sha256
FROM event e JOIN passed p ON p.obs_id = e.event_id AND p.cap = e.cap
WHERE e.type = 'paid.intent' AND e.observed_at >= (SELECT min(t) FROM passed)
GROUP BY ALL ORDER BY max(e.observed_at) DESC, e.cap LIMIT $most
