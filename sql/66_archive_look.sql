-- What the rows of one file of several come to, where the lines came from.
-- grain: one row
-- reads: temp archive_source; rows from ($first_cap, $first_id) to ($last_cap, $last_id), inclusive
-- writes: nothing
SELECT count(*)::DOUBLE AS rows, bit_xor(hash(event_id))::VARCHAR AS look FROM archive_source
WHERE (cap > $first_cap OR cap = $first_cap AND event_id >= $first_id) AND (cap < $last_cap OR cap = $last_cap AND event_id <= $last_id)
