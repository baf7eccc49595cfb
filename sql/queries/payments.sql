-- name: open
-- Paid intents (records made before a payment is sent) without a result: the process ended before it wrote one.
-- grain: one intent
-- reads: paid_intent, paid_result, event
-- writes: nothing
WITH open AS (
  SELECT i.event_id, i.cap FROM paid_intent i
  ANTI JOIN paid_result r ON r.intent = i.event_id AND r.cap = i.cap AND r.t >= since_call(i.t))
SELECT e.event_id, e.cap, e.observed_at, e.body FROM event e JOIN open o ON o.event_id = e.event_id AND o.cap = e.cap
WHERE e.type = 'paid.intent' ORDER BY e.observed_at, e.event_id;

-- name: awaiting
-- Intents with a result whose settlement is not known to be final. Either the Transfer was not seen and may still be
-- found, since its signature expired no earlier than an hour before the newest record of a paid call was appended. Or
-- the Transfer was seen and is not final; it is watched until a week after that expiry. These times are real time,
-- even if the clock of the record is simulated.
-- grain: one intent, with its newest Transfer or NULL
-- reads: paid_intent, paid_result, settlement, paid_followup, event
-- writes: nothing
WITH newest AS (SELECT epoch(max(appended_at))::BIGINT AS s FROM event WHERE topic = 'observations.paid'),
 answered AS (
  SELECT i.event_id, i.cap, i.t, i.valid_before FROM paid_intent i
  SEMI JOIN paid_result r ON r.intent = i.event_id AND r.cap = i.cap AND r.t >= since_call(i.t)
  ANTI JOIN (SELECT intent, cap FROM paid_followup WHERE kind = 'finality') f ON f.intent = i.event_id AND f.cap = i.cap
  WHERE i.valid_before + 7 * 86400 >= (FROM newest)),
 awaiting AS (
  SELECT a.event_id, a.cap, a.t, max({t: s.t, id: s.event_id}).id AS seen
  FROM answered a LEFT JOIN settlement s ON s.intent = a.event_id AND s.cap = a.cap
  GROUP BY a.event_id, a.cap, a.t, a.valid_before
  HAVING NOT coalesce(bool_or(s.final), FALSE) AND (count(s.event_id) > 0 OR a.valid_before + 3600 >= (FROM newest)))
SELECT e.event_id, e.cap, e.observed_at, e.body, m.body AS settlement
FROM event e JOIN awaiting a ON a.event_id = e.event_id AND a.cap = e.cap
  LEFT JOIN event m ON m.event_id = a.seen AND m.cap = a.cap AND m.type = 'settlement' AND m.observed_at >= since_call(a.t)
WHERE e.type = 'paid.intent'
QUALIFY row_number() OVER (PARTITION BY e.event_id, e.cap ORDER BY m.observed_at) = 1
ORDER BY e.observed_at, e.event_id;

-- name: undelivered
-- Payments that settled, delivered nothing and were not refunded: the newest $most of the record's last $days days,
-- without calls that failed by a fault of ours.
-- grain: one intent, with its Transfer (a final one is preferred to one that was only seen)
-- reads: samples, paid_intent, settlement, event; $days, $most
-- writes: nothing
WITH undelivered AS (
  SELECT obs_id, cap, t FROM samples
  WHERE kind = 1 AND is_unserved(settled, delivered, refunded) AND fault IS DISTINCT FROM 'ours'
    AND t >= (SELECT max(t) FROM paid_intent) - to_days($days)
  ORDER BY t DESC, obs_id LIMIT $most),
 seen AS (
  SELECT o.obs_id, o.cap, o.t, min({later: NOT s.final, t: s.t, id: s.event_id}).id AS id
  FROM undelivered o JOIN settlement s ON s.intent = o.obs_id AND s.cap = o.cap GROUP BY o.obs_id, o.cap, o.t)
SELECT e.event_id, e.cap, e.observed_at, e.body, m.body AS settlement
FROM event e JOIN seen s ON e.event_id = s.obs_id AND e.cap = s.cap
  JOIN event m ON m.event_id = s.id AND m.cap = s.cap AND m.type = 'settlement' AND m.observed_at >= since_call(s.t)
WHERE e.type = 'paid.intent' AND e.observed_at >= (SELECT min(t) FROM undelivered) AND m.observed_at >= (SELECT since_call(min(t)) FROM undelivered)
QUALIFY row_number() OVER (PARTITION BY e.event_id, e.cap ORDER BY m.observed_at) = 1
ORDER BY e.observed_at, e.event_id;

-- name: refunds
-- The refunds of the last 100 days of the record: which transaction paid which intent back, from payee to wallet.
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
ORDER BY ALL;

-- name: retried
-- Returns one row if, since $since, a used payment proof was sent to the endpoint $cap once more, to see how it
-- answers a retry.
-- grain: at most one row
-- reads: retried; $cap, $since
-- writes: nothing
SELECT 1 AS known FROM retried WHERE cap = $cap AND t >= $since::TIMESTAMP LIMIT 1;

-- name: payees
-- The payee of each endpoint's newest settlement since $since that matched the quoted terms, and when the other buyers
-- of that payee were last read from the chain.
-- grain: one capability
-- reads: settlement, paid_intent, event, buyers; $since
-- writes: nothing
WITH newest AS (
  SELECT cap, max({t: t, id: event_id, intent: intent}) AS last FROM settlement
  WHERE as_quoted AND t >= $since::TIMESTAMP GROUP BY cap),
 paid AS (
  SELECT n.cap, i.url, json_extract_string(e.body, '$.network') AS network, json_extract_string(e.body, '$.asset') AS asset,
    lower(json_extract_string(e.body, '$.to')) AS pay_to
  FROM newest n JOIN paid_intent i ON i.event_id = n.last.intent AND i.cap = n.cap
    JOIN event e ON e.event_id = n.last.id AND e.cap = n.cap AND e.type = 'settlement' AND e.observed_at >= $since::TIMESTAMP)
SELECT p.cap, any_value(p.url) AS url, p.network, p.asset, p.pay_to, max(b.t) AS read
FROM paid p LEFT JOIN buyers b ON b.cap = p.cap AND b.network = p.network AND b.asset = p.asset AND b.pay_to = p.pay_to
GROUP BY p.cap, p.network, p.asset, p.pay_to ORDER BY read NULLS FIRST, p.cap;

-- name: wallets
-- Our own wallets with a paid intent since $since to the address $pay_to.
-- grain: one wallet
-- reads: paid_intent, event; $pay_to, $since
-- writes: nothing
SELECT DISTINCT lower(json_extract_string(e.body, '$.wallet')) AS wallet
FROM paid_intent i JOIN event e ON e.event_id = i.event_id AND e.cap = i.cap AND e.type = 'paid.intent'
WHERE lower(i.pay_to) = lower($pay_to) AND i.t >= $since::TIMESTAMP AND e.observed_at >= $since::TIMESTAMP
ORDER BY wallet;
