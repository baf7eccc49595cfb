-- name: ever
-- Micro-units of every payment that was ever signed, whether it settled or not.
-- grain: one row
-- reads: paid_intent
-- writes: nothing
SELECT coalesce(sum(price_micro), 0)::BIGINT AS micro FROM paid_intent;

-- name: day
-- Micro-units of the payments signed on a UTC day, whether they settled or not.
-- grain: one (capability, url, payee)
-- reads: paid_intent
-- writes: nothing
SELECT cap, url, pay_to, sum(price_micro)::BIGINT AS micro FROM paid_intent
WHERE on_day(t, $day) GROUP BY cap, url, pay_to;

-- name: month
-- Payments signed on the $days UTC days up to and including $day, in micro-units: what was signed, what settled, what
-- was lost by a fault of ours (or because nobody watched the end of the call), and what was refunded.
-- grain: one (day, capability, url, payee)
-- reads: paid_intent, samples; $day, $days
-- writes: nothing
SELECT i.t::DATE::VARCHAR AS day, i.url, i.pay_to, count(*)::INTEGER AS calls, sum(i.price_micro)::BIGINT AS signed,
  coalesce(sum(i.price_micro) FILTER (s.settled), 0)::BIGINT AS settled,
  coalesce(sum(i.price_micro) FILTER (s.obs_id IS NULL OR s.fault = 'ours'), 0)::BIGINT AS lost,
  coalesce(sum(i.price_micro) FILTER (s.refunded), 0)::BIGINT AS refunded
FROM paid_intent i LEFT JOIN samples s ON s.obs_id = i.event_id AND s.cap = i.cap
WHERE i.t >= $day::DATE - $days::INTEGER + 1 AND i.t < $day::DATE + INTERVAL 1 DAY
GROUP BY i.t::DATE, i.cap, i.url, i.pay_to;
