-- Endpoints in stretches of their order that are read at once, and what the lines of each have to be. A stretch has some $rows
-- rows or $bytes bytes of text, whichever is fewer rows. Of a cut body its shape is read once, and of each record what was
-- cut out of it.
-- grain: one stretch, ascending
-- reads: temp archive_alike, shape
-- writes: nothing
WITH caps AS (SELECT cap, sum(n) AS n, sum(bytes + coalesce(strlen(text), 0)) AS bytes, bit_xor(digest) AS digest, bit_xor(look) AS look
   FROM archive_alike LEFT JOIN shape s ON s.id = archive_alike.shape GROUP BY cap),
 placed AS (SELECT *, sum(n) OVER before - n AS row_at, sum(bytes) OVER before - bytes AS byte_at FROM caps
   WINDOW before AS (ORDER BY cap ROWS UNBOUNDED PRECEDING))
SELECT min(cap) AS first, max(cap) AS last, sum(n)::DOUBLE AS rows, bit_xor(digest)::VARCHAR AS digest, bit_xor(look)::VARCHAR AS look
FROM placed GROUP BY greatest(row_at // $rows, byte_at // $bytes) ORDER BY first
