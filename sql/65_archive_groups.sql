-- Records of a stretch of endpoints by their shape: the shape once, and of each record its id, its time and what was cut out
-- of it, in any order.
-- grain: one (capability, shape), by capability; digest = of the ids, knowing no order
-- reads: temp archive_shaped; endpoints $first to $last, inclusive
-- writes: nothing
SELECT cap, shape, count(*)::DOUBLE AS count, bit_xor(md5_number(event_id))::VARCHAR AS digest,
  string_agg(concat(event_id, e'\x1f', strftime(observed_at, '%Y-%m-%dT%H:%M:%S.%gZ'), e'\x1f', measured, e'\x1f', slot, e'\x1f', sha),
    e'\x1e') AS records
FROM archive_shaped WHERE cap BETWEEN $first AND $last GROUP BY cap, shape ORDER BY cap
