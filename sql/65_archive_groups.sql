-- Records of a stretch of endpoints by their shape: the shape once, and of each record its id, its time and what was cut out
-- of it, in no order. What is read back out of one value is parted by characters that no JSON text holds.
-- grain: one (capability, shape), in no order; look = a checksum of the ids, knowing no order
-- reads: temp archive_shaped; endpoints $first to $last, inclusive
-- writes: nothing
SELECT cap, shape, count(*)::DOUBLE AS count, bit_xor(hash(event_id))::VARCHAR AS look,
  encode(string_agg(concat(event_id, e'\x1f', strftime(observed_at, '%Y-%m-%dT%H:%M:%S.%gZ'), e'\x1f', measured, e'\x1f', slot,
    e'\x1f', sha, e'\x1e'), '')) AS records
FROM archive_shaped WHERE cap BETWEEN $first AND $last GROUP BY cap, shape
