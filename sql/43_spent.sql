-- Micro-units of every payment that was ever signed, whether it settled or not.
-- grain: one row
-- reads: paid_intent
-- writes: nothing
SELECT coalesce(sum(price_micro), 0)::BIGINT AS micro FROM paid_intent
