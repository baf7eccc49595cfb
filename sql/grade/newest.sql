-- The newest answer and the newest quote where two rows of one moment differ: the greatest id is the newest.
-- grain: one endpoint of those asked for
-- reads: grade_rows (a view); $tied (JSON array)
-- writes: nothing
SELECT ep,
  arg_max(honest, {t: t, id: obs_id}) FILTER (live AND fault IS DISTINCT FROM 'blocked' AND honest IS NOT NULL) AS honest_now,
  arg_max(price, {t: t, id: obs_id}) FILTER (price > 0) AS price_now
FROM grade_rows SEMI JOIN (SELECT unnest(from_json($tied, '["UINTEGER"]')) AS ep) USING (ep)
WHERE counted AND kind < 2 GROUP BY ep;
