-- Shapes that no record has any more leave the lake, once rows have.
-- grain: one shape
-- reads: event, late
-- writes: shape
DELETE FROM shape WHERE id NOT IN (
  SELECT shape FROM event WHERE shape IS NOT NULL UNION ALL SELECT shape FROM late WHERE shape IS NOT NULL);
