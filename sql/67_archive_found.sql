-- Where the rows of a file are in this lake: among its rows, in the waiting room, and how many of them must be (those of the
-- partitions that it has).
-- grain: one row
-- reads: temp archive_ids, event, late, positions; $type, $day, $topic, $shift (6 - log2 of the partitions)
-- writes: nothing
SELECT
  (SELECT count(*) FROM event WHERE type = $type AND observed_at >= $day::DATE AND observed_at < $day::DATE + INTERVAL 1 DAY
    AND event_id IN (SELECT record_id FROM archive_ids))::DOUBLE AS here,
  (SELECT count(*) FROM late WHERE type = $type AND event_id IN (SELECT record_id FROM archive_ids))::DOUBLE AS waiting,
  -- partition = first 6 bits of sha256(key), shifted (records.md, Topics)
  (SELECT count(*) FROM archive_ids WHERE (('0x' || sha256(capability_id)[1:2])::INTEGER >> 2) >> $shift IN
    (SELECT part FROM positions WHERE topic = $topic))::DOUBLE AS owed
