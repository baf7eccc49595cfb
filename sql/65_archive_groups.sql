-- Records of a stretch of endpoints by their shape: the shape once, by its number where bodies were cut when they came, and of
-- each record its id, its time (Unix ms) and what was cut out of it, in no order; no hash where it is the shape's usual one.
-- What is read back out of one value is parted by characters that no JSON text holds.
-- grain: one (capability, shape), capabilities ascending by bytes; look_high, look_low = upper and lower 32 bits of a checksum of
--   the ids, knowing no order
-- reads: temp archive_source, temp archive_usual, temp archive_shaped; endpoints $first to $last, inclusive
-- writes: nothing
SELECT cap, shape, shape_id, count, (look >> 32)::DOUBLE AS look_high, (look & 4294967295)::DOUBLE AS look_low, records FROM (
  SELECT cap, NULL::VARCHAR AS shape, s.shape::DOUBLE AS shape_id, count(*)::DOUBLE AS count, bit_xor(hash(event_id)) AS look,
    encode(string_agg(concat(event_id, e'\x1f', epoch_ms(observed_at), e'\x1f', measured, e'\x1f',
      CASE WHEN s.sha IS DISTINCT FROM u.sha THEN coalesce(lower(hex(s.sha)), 'none') END, e'\x1e'), '')) AS records
  FROM archive_source s JOIN archive_usual u ON u.id = s.shape WHERE body IS NULL AND cap BETWEEN $first AND $last GROUP BY cap, s.shape
  UNION ALL
  SELECT cap, shape, NULL, count(*)::DOUBLE, bit_xor(hash(event_id)),
    encode(string_agg(concat(event_id, e'\x1f', epoch_ms(observed_at), e'\x1f', measured, e'\x1f', slot, e'\x1f', sha, e'\x1e'), ''))
  FROM archive_shaped WHERE cap BETWEEN $first AND $last GROUP BY cap, shape
) ORDER BY cap
