-- How many of those rows each partition has, and what their ids come to.
-- grain: one partition that has not followed the manifest yet; look = a checksum of the ids, knowing no order
-- reads: temp archive_parts, temp archive_owed
-- writes: nothing
SELECT p.part, coalesce(n, 0)::DOUBLE AS here, coalesce(look, 0)::VARCHAR AS look
FROM archive_parts p LEFT JOIN (SELECT part, count(*) AS n, bit_xor(hash(record_id)) AS look FROM archive_owed GROUP BY part) h USING (part)
ORDER BY p.part
