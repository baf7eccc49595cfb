-- Records of a stretch of endpoints, some hundred endpoints in one value: a value costs its reader as much as many records do. A
-- bundle has all endpoints whose capabilities begin with the same archive_bundled characters. In it records stand by their shape:
-- the capability, the form (archive_forms) or, where bodies are cut here, the shape itself, its usual hash, how many records
-- there are, and of each its id, its time (Unix ms) and what was cut out of it, in no order; no hash where it is the usual one.
-- What is read back out of one value is parted by characters that no JSON text holds.
-- grain: one bundle, ascending by bytes; look_high, look_low = upper and lower 32 bits of a checksum of the ids, knowing no order
-- reads: temp archive_source, temp archive_usual, temp archive_forms, temp archive_shaped; the variable archive_bundled; endpoints
--   $first to $last, inclusive
-- writes: nothing
WITH grouped AS (
  SELECT cap, s.shape, any_value(u.sha) AS sha, count(*) AS n, bit_xor(hash(event_id)) AS look,
    string_agg(concat(event_id, e'\x1f', epoch_ms(observed_at), e'\x1f', measured, e'\x1f',
      CASE WHEN s.sha IS DISTINCT FROM u.sha THEN coalesce(lower(hex(s.sha)), 'none') END, e'\x1e'), '') AS records
  FROM archive_source s JOIN archive_usual u ON u.id = s.shape WHERE body IS NULL AND cap BETWEEN $first AND $last GROUP BY cap, s.shape),
 whole AS (
  SELECT cap, shape, count(*) AS n, bit_xor(hash(event_id)) AS look,
    string_agg(concat(event_id, e'\x1f', epoch_ms(observed_at), e'\x1f', measured, e'\x1f', slot, e'\x1f', sha, e'\x1e'), '') AS records
  FROM archive_shaped WHERE cap BETWEEN $first AND $last GROUP BY cap, shape),
 told AS (
  SELECT cap, n, look, concat(cap, e'\x1d', form, e'\x1d\x1d', lower(hex(sha)), e'\x1d', n, e'\x1d', records) AS text
  FROM grouped LEFT JOIN archive_forms ON id = shape
  UNION ALL
  SELECT cap, n, look, concat(cap, e'\x1d\x1d', shape, e'\x1d\x1d', n, e'\x1d', records) FROM whole)
SELECT count, (look >> 32)::DOUBLE AS look_high, (look & 4294967295)::DOUBLE AS look_low, bundle FROM (
  SELECT left(cap, getvariable('archive_bundled')) AS name, sum(n)::DOUBLE AS count, bit_xor(look) AS look, encode(string_agg(text, '')) AS bundle
  FROM told GROUP BY name)
ORDER BY name
