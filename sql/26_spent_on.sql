-- Money signed away on a UTC day, settled or not.
-- grain: one (capability, url)
-- reads: paid_intent
-- writes: nothing
SELECT cap, url, sum(price_micro)::BIGINT AS micro FROM paid_intent
WHERE t >= $day::DATE AND t < $day::DATE + INTERVAL 1 DAY GROUP BY cap, url
