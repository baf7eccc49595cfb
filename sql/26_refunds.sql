-- Which Transfer paid which intent back, of the last 100 days of the record.
-- grain: one (intent, transaction)
-- reads: event, paid_followup
-- writes: nothing
SELECT DISTINCT json_extract_string(e.body, '$.of') AS intent, json_extract_string(e.body, '$.refund.tx') AS tx
FROM event e JOIN (
  SELECT event_id, cap FROM paid_followup
  WHERE kind = 'refund' AND t >= (SELECT max(t) FROM paid_followup) - INTERVAL 100 DAY) f ON f.event_id = e.event_id AND f.cap = e.cap
WHERE e.type = 'paid.followup' AND json_extract_string(e.body, '$.refund.tx') IS NOT NULL
ORDER BY intent, tx
