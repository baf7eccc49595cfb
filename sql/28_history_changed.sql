-- Buckets with a record that the history does not know yet; `$before` is a JSON array of {topic, part, next}: how far it knew.
-- grain: one bucket
-- reads: $before, event
-- writes: nothing
WITH known AS (
  SELECT b.* FROM (SELECT unnest(from_json($before, '[{"topic": "VARCHAR", "part": "INTEGER", "next": "BIGINT"}]')) AS b)),
 fresh AS (
  SELECT DISTINCT e.cap FROM event e LEFT JOIN known k ON k.topic = e.topic AND k.part = e.part
  WHERE e.cap IS NOT NULL AND e.topic IN ('observations.free', 'observations.paid', 'observations.mcp', 'corrections')
    AND e.log_offset >= coalesce(k.next, 0))
SELECT DISTINCT (('0x' || sha256(cap)[1:2])::INTEGER // 4)::INTEGER AS bucket FROM fresh ORDER BY bucket
