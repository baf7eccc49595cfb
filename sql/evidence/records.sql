-- name: days
-- Days before $until with records that no close of a day has read, oldest first: days after $newest (the newest closed
-- one), and closed days that records came late for.
-- grain: one UTC day
-- reads: event; $until, $newest (days), $read and $ends (JSON arrays of {topic, part, next}: how far closes have read, and how
--   far the lake is loaded)
-- writes: nothing
WITH ends AS (FROM positions_of($ends)),
 done AS (FROM positions_of($read))
SELECT DISTINCT strftime(e.observed_at, '%Y-%m-%d') AS day
FROM event e JOIN ends USING (topic, part) LEFT JOIN done USING (topic, part)
WHERE e.type NOT IN ('paid.commitment', 'web.receipt') AND e.observed_at < $until::DATE AND e.log_offset < ends.next
  AND (e.observed_at >= $newest::DATE + INTERVAL 1 DAY OR e.log_offset >= coalesce(done.next, 0))
ORDER BY day;

-- name: of_day
-- The records that the evidence of one UTC day is made of, bucket by bucket: observed on that day, below $ends and not below
-- what an earlier close of that day had read ($known), and for each paid call that one of them speaks of, its other records.
-- grain: one record of the log; those that speak of one thing (`about`) stand together, things ascending by id
-- reads: event, the segments of that day ($files, a glob) for what the records say, paid_intent, paid_result, settlement,
--   paid_followup, paid_published; $day, $ends (JSON array of {topic, part, next}), $known (JSON array of {bucket,
-- topic, next})
-- writes: nothing
WITH ends AS (FROM positions_of($ends)),
 known AS (SELECT unnest(from_json($known, '[{"bucket": "INTEGER", "topic": "VARCHAR", "next": "BIGINT"}]'), recursive := true)),
 -- Copies and records above the ends are there too: which one counts is the lake's to say.
 body AS (
  SELECT topic, part, "offset" AS log_offset, body FROM read_parquet($files)
  WHERE on_day(observed_at, $day)),
 day_event AS (
  SELECT e.event_id, e.type, e.cap, e.topic, e.log_offset, e.observed_at, b.body, ends.next AS until,
    bucket_of(e.cap) AS bucket,
    coalesce(CASE WHEN e.type IN ('paid.result', 'settlement') THEN json_extract_string(b.body, '$.intent')
      WHEN e.type IN ('paid.followup', 'mcp.paid') THEN json_extract_string(b.body, '$.of')
      WHEN e.topic = 'corrections' THEN coalesce(json_extract_string(b.body, '$.record_id'), e.cap) END, e.event_id) AS about
  FROM event e JOIN ends USING (topic, part) JOIN body b USING (topic, part, log_offset)
  -- A commitment is no sample, nor is a receipt: their leaves say all that is public of them. What a retry brought changes none.
  WHERE e.type NOT IN ('paid.commitment', 'web.receipt') AND NOT is_retried(e.type, b.body) AND on_day(e.observed_at, $day) AND e.log_offset < ends.next),
 member AS (
  SELECT * EXCLUDE (until) FROM day_event d
  WHERE log_offset >= coalesce((SELECT max(next) FROM known k WHERE k.bucket = d.bucket AND k.topic = d.topic), 0)),
 told AS (SELECT DISTINCT about, cap, bucket FROM member WHERE topic = 'observations.paid'),
 spoken AS (
  SELECT i.event_id, t.* FROM paid_intent i JOIN told t ON i.event_id = t.about AND i.cap = t.cap
  UNION SELECT r.event_id, t.* FROM paid_result r JOIN told t ON r.intent = t.about AND r.cap = t.cap
  UNION SELECT s.event_id, t.* FROM settlement s JOIN told t ON s.intent = t.about AND s.cap = t.cap
  UNION SELECT f.event_id, t.* FROM paid_followup f JOIN told t ON f.intent = t.about AND f.cap = t.cap
  UNION SELECT p.event_id, t.* FROM paid_published p JOIN told t ON p.event_id = t.about AND p.cap = t.cap),
 other AS (
  SELECT e.event_id, e.type, e.cap, e.topic, e.log_offset, e.observed_at, e.body, s.bucket, s.about
  FROM event e JOIN spoken s ON e.event_id = s.event_id AND e.cap = s.cap JOIN ends USING (topic, part)
  WHERE e.topic = 'observations.paid' AND e.log_offset < ends.next
    AND NOT EXISTS (FROM member m WHERE m.topic = e.topic AND m.cap = e.cap AND m.log_offset = e.log_offset))
SELECT bucket, about, event_id, type, cap, topic, log_offset::DOUBLE AS log_offset, epoch_ms(observed_at)::DOUBLE AS t, body, TRUE AS member
FROM member
UNION ALL
SELECT bucket, about, event_id, type, cap, topic, log_offset::DOUBLE, epoch_ms(observed_at)::DOUBLE, body, FALSE FROM other
ORDER BY bucket, about, cap, topic, log_offset;
