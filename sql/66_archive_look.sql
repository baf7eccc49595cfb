-- What the rows of one file of several come to, where the lines came from: of endpoints that are all in it as they were counted,
-- of its first and last one row by row. So files of a large day do not look at all of it each.
-- grain: one row
-- reads: temp archive_alike, temp archive_source; rows from ($first_cap, $first_id) to ($last_cap, $last_id), inclusive
-- writes: nothing
SELECT coalesce(sum(n), 0)::DOUBLE AS rows, coalesce(bit_xor(look), 0)::VARCHAR AS look FROM (
  SELECT n, look FROM archive_alike WHERE cap > $first_cap AND cap < $last_cap
  UNION ALL
  SELECT count(*) AS n, coalesce(bit_xor(hash(event_id)), 0) AS look FROM archive_source
  WHERE cap IN ($first_cap, $last_cap)
    AND (cap > $first_cap OR event_id >= $first_id) AND (cap < $last_cap OR event_id <= $last_id))
