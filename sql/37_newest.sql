-- The newest answer and the newest quote where two rows of one moment differ: the greatest id is the newest.
-- grain: one endpoint of those asked for
-- reads: grade_said (a view); eps (JSON array)
-- writes: nothing
WITH said AS (FROM grade_said SEMI JOIN (SELECT unnest(from_json(param('eps'), '["UINTEGER"]')) AS ep) USING (ep) WHERE own)
SELECT ep, arg_max(honest, {t: t, id: obs_id}) FILTER (honest IS NOT NULL) AS honest_now,
  arg_max(price, {t: t, id: obs_id}) FILTER (price IS NOT NULL) AS price_now
FROM said GROUP BY ep;
