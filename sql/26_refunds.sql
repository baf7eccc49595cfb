-- Which Transfer from payee to wallet paid which intent back, of the last 100 days of the record.
-- grain: one (intent, transaction)
-- reads: event, paid_followup
-- writes: nothing
WITH back AS (
  SELECT event_id, cap, intent, t FROM paid_followup
  WHERE kind = 'refund' AND t >= (SELECT max(t) FROM paid_followup) - INTERVAL 100 DAY)
SELECT DISTINCT back.intent, json_extract_string(e.body, '$.refund.tx') AS tx,
  json_extract_string(i.body, '$.quote.pay_to') AS payee, json_extract_string(i.body, '$.wallet') AS wallet
FROM back JOIN event e ON e.event_id = back.event_id AND e.cap = back.cap AND e.type = 'paid.followup'
  JOIN event i ON i.event_id = back.intent AND i.cap = back.cap AND i.type = 'paid.intent'
WHERE json_extract_string(e.body, '$.refund.tx') IS NOT NULL
ORDER BY ALL
