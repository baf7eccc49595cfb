-- name: days
-- Asked prices, latencies and counts of each endpoint for each day, for the charts of the endpoint's page. Calls with
-- a fault of ours and withdrawn rows are left out; money is in micro-units. `$buckets` is a JSON array of numbers of
-- buckets (64 groups of endpoints), `$since` is unix ms.
-- grain: one capability and UTC day with a row; ascending by bucket, capability, day
-- reads: $since, $buckets, endpoint, every_sample, withdrawn
-- writes: nothing
WITH home AS (SELECT cap, bucket_of(cap) AS bucket FROM endpoint),
 wanted AS (SELECT cap, bucket FROM home SEMI JOIN (SELECT unnest(from_json($buckets, '["INTEGER"]')) AS bucket) USING (bucket)),
 used AS (
  SELECT bucket, cap, t, obs_id, kind, fault IS NOT DISTINCT FROM 'blocked' AS wall, coalesce(delivered, FALSE) AS delivered,
    latency_ms, asked_micro AS micro
  FROM every_sample JOIN wanted USING (cap) ANTI JOIN withdrawn USING (obs_id)
  WHERE t >= epoch_ms($since) AND kind < 2 AND fault IS DISTINCT FROM 'ours')
SELECT bucket, cap AS capability_id, (t::DATE - DATE '1970-01-01')::INTEGER AS day,
  min(micro) AS price_low, max(micro) AS price_high, arg_max(micro, {t: t, id: obs_id}) FILTER (micro IS NOT NULL) AS price_last,
  quantile_disc(latency_ms, 0.5) FILTER (kind = 0 AND NOT wall) AS terms_ms_median,
  quantile_disc(latency_ms, 0.95) FILTER (kind = 0 AND NOT wall) AS terms_ms_p95,
  quantile_disc(latency_ms, 0.5) FILTER (kind = 1 AND delivered) AS paid_ms_median,
  quantile_disc(latency_ms, 0.95) FILTER (kind = 1 AND delivered) AS paid_ms_p95,
  count(*) FILTER (kind = 0)::DOUBLE AS probes, count(latency_ms) FILTER (kind = 0)::DOUBLE AS answered,
  count(*) FILTER (kind = 1)::DOUBLE AS paid, count(*) FILTER (kind = 1 AND delivered)::DOUBLE AS delivered
FROM used GROUP BY bucket, cap, day ORDER BY bucket, cap, day;

-- name: changed
-- Buckets (groups of endpoints) with records that the history does not include yet. `$before` is a JSON array of
-- {topic, part, next}: the offsets up to which the history was made.
-- grain: one bucket
-- reads: $before, event
-- writes: nothing
WITH known AS (
  FROM positions_of($before)),
 fresh AS (
  SELECT DISTINCT e.cap FROM event e LEFT JOIN known k ON k.topic = e.topic AND k.part = e.part
  WHERE e.cap IS NOT NULL AND e.topic IN ('observations.free', 'observations.paid', 'observations.mcp', 'corrections')
    AND e.log_offset >= coalesce(k.next, 0))
SELECT DISTINCT bucket_of(cap) AS bucket FROM fresh ORDER BY bucket;
