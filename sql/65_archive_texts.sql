-- Texts that the cut bodies of a stretch of endpoints share.
-- grain: one shape
-- reads: temp archive_source, shape; endpoints $first to $last, inclusive
-- writes: nothing
SELECT id::DOUBLE AS id, text FROM shape
WHERE id IN (SELECT shape FROM archive_source WHERE body IS NULL AND cap BETWEEN $first AND $last)
