-- name: days
-- Days before $until with records that are in no evidence file yet, oldest first: days after $newest, the newest
-- closed day (a day is closed when its evidence file is written), and closed days for which records arrived later.
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
-- The records from which the evidence of one UTC day is made, bucket by bucket (a bucket is one of 64 groups of
-- endpoints): those observed on that day at offsets below $ends that no earlier evidence file of the day has ($known),
-- and all other records of the paid calls to which these belong.
-- grain: one record of the log, ordered by bucket and by the id of the call or record that it is `about`
-- reads: event, the segments of that day ($files, a glob) for the bodies, paid_intent, paid_result, settlement, paid_followup,
--   paid_published; $day, $ends (JSON array of {topic, part, next}), $known (JSON array of {bucket, topic, next})
-- writes: nothing
WITH ends AS (FROM positions_of($ends)),
 known AS (SELECT unnest(from_json($known, '[{"bucket": "INTEGER", "topic": "VARCHAR", "next": "BIGINT"}]'), recursive := true)),
 -- The segments also hold copies, and records at or above the ends; the join with `event` leaves these out.
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
  -- Commitments and receipts are left out: they are no samples, and all that is published of them is in their leaves
  -- (entries of the public log). Answers to retries (used payment proofs sent once more) change no sample.
  WHERE e.type NOT IN ('paid.commitment', 'web.receipt') AND NOT is_retried(e.type, b.body) AND on_day(e.observed_at, $day) AND e.log_offset < ends.next),
 member AS (
  SELECT * EXCLUDE (until) FROM day_event d
  WHERE log_offset >= coalesce((SELECT max(next) FROM known k WHERE k.bucket = d.bucket AND k.topic = d.topic), 0)),
 paid_call AS (SELECT DISTINCT about, cap, bucket FROM member WHERE topic = 'observations.paid'),
 of_paid_call AS (
  SELECT i.event_id, c.* FROM paid_intent i JOIN paid_call c ON i.event_id = c.about AND i.cap = c.cap
  UNION SELECT r.event_id, c.* FROM paid_result r JOIN paid_call c ON r.intent = c.about AND r.cap = c.cap
  UNION SELECT s.event_id, c.* FROM settlement s JOIN paid_call c ON s.intent = c.about AND s.cap = c.cap
  UNION SELECT f.event_id, c.* FROM paid_followup f JOIN paid_call c ON f.intent = c.about AND f.cap = c.cap
  UNION SELECT p.event_id, c.* FROM paid_published p JOIN paid_call c ON p.event_id = c.about AND p.cap = c.cap),
 other AS (
  SELECT e.event_id, e.type, e.cap, e.topic, e.log_offset, e.observed_at, e.body, s.bucket, s.about
  FROM event e JOIN of_paid_call s ON e.event_id = s.event_id AND e.cap = s.cap JOIN ends USING (topic, part)
  WHERE e.topic = 'observations.paid' AND e.log_offset < ends.next
    AND NOT EXISTS (FROM member m WHERE m.topic = e.topic AND m.cap = e.cap AND m.log_offset = e.log_offset))
SELECT bucket, about, event_id, type, cap, topic, log_offset::DOUBLE AS log_offset, epoch_ms(observed_at)::DOUBLE AS t, body, TRUE AS member
FROM member
UNION ALL
SELECT bucket, about, event_id, type, cap, topic, log_offset::DOUBLE, epoch_ms(observed_at)::DOUBLE, body, FALSE FROM other
ORDER BY bucket, about, cap, topic, log_offset;
