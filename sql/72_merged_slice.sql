-- What the next file has to hold, counted in the table: rows, a digest of their ids that knows no order, and the last place.
-- grain: one row
-- reads: temp archive_merged; at most $most rows after ($cap, $id) in the order of (capability, record)
-- writes: nothing
WITH members AS (
  SELECT cap, event_id FROM archive_merged WHERE cap > $cap OR cap = $cap AND event_id > $id ORDER BY cap, event_id LIMIT $most)
SELECT count(*)::DOUBLE AS rows, coalesce(bit_xor(md5_number(event_id)), 0)::VARCHAR AS digest,
  max({cap: cap, id: event_id}).cap AS last_cap, max({cap: cap, id: event_id}).id AS last_id FROM members
