-- Texts that the cut bodies of a stretch of endpoints share, and the hash that most of each have.
-- grain: one shape
-- reads: temp archive_alike, temp archive_usual, shape; endpoints $first to $last, inclusive
-- writes: nothing
SELECT id::DOUBLE AS id, text, lower(hex(sha)) AS sha FROM shape JOIN archive_usual USING (id)
WHERE id IN (SELECT shape FROM archive_alike WHERE shape IS NOT NULL AND cap BETWEEN $first AND $last)
