-- Endpoints with news since this was asked last; whoever asks empties the table in the same transaction.
-- grain: one capability
-- reads: stale
-- writes: nothing
SELECT DISTINCT cap FROM stale
