-- Capabilities with news since they were last graded.
-- grain: one capability
-- reads: dirty
-- writes: nothing
SELECT DISTINCT cap FROM dirty ORDER BY cap
