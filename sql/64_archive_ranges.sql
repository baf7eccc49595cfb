-- Endpoints in stretches of their order that are read at once, and what the lines of each have to be. A stretch has some $rows
-- rows or $bytes bytes of text, whichever is fewer rows, and whole bundles (65_archive_bundles). Of cut bodies it has of each
-- record what was cut out of it.
-- grain: one stretch, ascending
-- reads: temp archive_alike; the variable archive_bundled
-- writes: nothing
WITH bundles AS (SELECT left(cap, getvariable('archive_bundled')) AS bundle, min(cap) AS first, max(cap) AS last, sum(n) AS n, sum(bytes) AS bytes,
    bit_xor(digest) AS digest, bit_xor(look) AS look FROM archive_alike GROUP BY bundle),
 placed AS (SELECT *, sum(n) OVER before - n AS row_at, sum(bytes) OVER before - bytes AS byte_at FROM bundles
   WINDOW before AS (ORDER BY bundle ROWS UNBOUNDED PRECEDING))
SELECT min(first) AS first, max(last) AS last, sum(n)::DOUBLE AS rows, bit_xor(digest)::VARCHAR AS digest, bit_xor(look)::VARCHAR AS look
FROM placed GROUP BY greatest(row_at // $rows, byte_at // $bytes) ORDER BY first
