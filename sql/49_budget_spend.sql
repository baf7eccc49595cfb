-- Payments signed on the thirty UTC days that end with $day: what settled, what was a loss of our own (nobody watched the
-- end, or our fault), and what came back.
-- grain: one (day, capability, url)
-- reads: paid_intent, samples
-- writes: nothing
SELECT i.t::DATE::VARCHAR AS day, i.url, count(*)::INTEGER AS calls, sum(i.price_micro)::BIGINT AS signed,
  coalesce(sum(i.price_micro) FILTER (s.settled), 0)::BIGINT AS settled,
  coalesce(sum(i.price_micro) FILTER (s.obs_id IS NULL OR s.fault = 'ours'), 0)::BIGINT AS lost,
  coalesce(sum(i.price_micro) FILTER (s.refunded), 0)::BIGINT AS refunded
FROM paid_intent i LEFT JOIN samples s ON s.obs_id = i.event_id AND s.cap = i.cap
WHERE i.t >= $day::DATE - 29 AND i.t < $day::DATE + INTERVAL 1 DAY
GROUP BY i.t::DATE, i.cap, i.url
