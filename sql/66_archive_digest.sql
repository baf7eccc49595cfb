-- The same count and digest of the file, and what must be nothing: ids twice, and rows of another day.
-- grain: one row
-- reads: temp archive_ids; $day
-- writes: nothing
SELECT count(*)::DOUBLE AS rows, coalesce(bit_xor(md5_number(record_id)), 0)::VARCHAR AS digest,
  (count(*) - count(DISTINCT record_id))::DOUBLE AS twice,
  count_if(observed_at IS NULL OR observed_at::DATE <> $day::DATE)::DOUBLE AS elsewhere FROM archive_ids
