-- Stores new records of paid calls in their tables, and lists the intents (records of payments, made before these were
-- sent) to which they belong.
-- grain: one record; touched_intent = one intent or published call, also one that is not loaded yet; seen_new = one capability;
--   payee_new = one address of one capability
-- reads: temp stage
-- writes: paid_intent, class_asked, paid_result, settlement, paid_followup, retried, answered, settled_by, buyers, paid_published,
--   commitment_open, receipt_open, temp intent_new, temp touched_intent, temp seen_new, temp quoted_new, temp payee_new
CREATE OR REPLACE TEMP TABLE intent_new AS
SELECT event_id, cap, observed_at AS t, b.slot.block AS slot_block, b.w, b.input, b.url,
  micro_of(b.quote.price) AS price_micro, b.quote.pay_to, b.valid_before, b.first_leg,
  asked_micro_of(b.first_leg.terms.offers) AS asked_micro
FROM (SELECT *, from_json(body, '{"slot": {"block": "INTEGER"}, "w": "DOUBLE", "input": "VARCHAR", "url": "VARCHAR",
  "quote": {"price": "VARCHAR", "pay_to": "VARCHAR"}, "valid_before": "BIGINT",
  "first_leg": {"honest": "BOOLEAN", "differs": "JSON", "terms": {"protocols": ["VARCHAR"],
    "offers": [{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN", "pay_to": "VARCHAR", "price": "VARCHAR"}], "defects": "JSON"}}}') AS b
  FROM stage WHERE type = 'paid.intent');
INSERT INTO paid_intent
SELECT event_id, cap, t, slot_block, w, input, url, price_micro, pay_to, valid_before, first_leg.honest, asked_micro FROM intent_new;

INSERT INTO class_asked
SELECT event_id, cap, observed_at, k.class, k.mapping, k.control
FROM (SELECT *, from_json(json_extract(body, '$.known_answer'), '{"class": "VARCHAR", "mapping": "VARCHAR", "control": "BOOLEAN"}') AS k
  FROM stage WHERE type = 'paid.intent') WHERE k.class IS NOT NULL;

INSERT INTO paid_result
SELECT * EXCLUDE (status, wall, response_bytes), response_bytes > 0 AND status IS DISTINCT FROM 402 AND NOT wall FROM (
  SELECT event_id, cap, observed_at, unnest(from_json(body, '{"intent": "VARCHAR", "watched": "BOOLEAN", "fault": "VARCHAR",
    "live": "BOOLEAN", "honest": "BOOLEAN", "delivered": "BOOLEAN", "delivery": "DOUBLE", "outcome": "DOUBLE",
    "schema_ok": "BOOLEAN", "latency_ms": "DOUBLE", "response_sha256": "VARCHAR", "status": "BIGINT", "wall": "BOOLEAN",
    "response_bytes": "BIGINT"}'))
  FROM stage WHERE type = 'paid.result');

INSERT INTO settlement
SELECT event_id, cap, observed_at, unnest(from_json(body, '{"intent": "VARCHAR", "final": "BOOLEAN", "as_quoted": "BOOLEAN"}'))
FROM stage WHERE type = 'settlement';

INSERT INTO paid_followup
SELECT event_id, cap, observed_at, b.of, b.kind, unnest(b.shown_again)
FROM (SELECT *, from_json(body, '{"of": "VARCHAR", "kind": "VARCHAR", "shown_again": {"watched": "BOOLEAN",
  "delivered": "BOOLEAN", "delivery": "DOUBLE", "outcome": "DOUBLE", "schema_ok": "BOOLEAN", "latency_ms": "DOUBLE",
  "response_sha256": "VARCHAR"}}') AS b FROM stage WHERE type = 'paid.followup' AND NOT is_retried(type, body));

INSERT INTO retried
SELECT cap, observed_at, event_id, b.of, b.retried.outcome
FROM (SELECT *, from_json(body, '{"of": "VARCHAR", "retried": {"outcome": "VARCHAR"}}') AS b FROM stage WHERE type = 'paid.followup')
WHERE b.retried.outcome IS NOT NULL;

INSERT INTO answered
SELECT cap, b.intent, b.answered_time, b.signed_receipt
FROM (SELECT cap, from_json(body, '{"intent": "VARCHAR", "answered_time": "BIGINT",
  "signed_receipt": {"read": "BOOLEAN", "valid": "BOOLEAN", "authorised": "BOOLEAN"}}') AS b FROM stage WHERE type = 'paid.result')
WHERE b.answered_time IS NOT NULL OR b.signed_receipt IS NOT NULL;

INSERT INTO settled_by
SELECT cap, unnest(from_json(body, '{"intent": "VARCHAR", "network": "VARCHAR", "sender": "VARCHAR", "block_time": "BIGINT"}'))
FROM stage WHERE type = 'settlement';

INSERT INTO buyers
SELECT cap, observed_at, event_id, json_extract_string(body, '$.network'), json_extract_string(body, '$.asset'),
  json_extract_string(body, '$.pay_to'), body::JSON FROM stage WHERE type = 'payee.buyers';

INSERT INTO paid_published
SELECT event_id, cap, observed_at, b.payer, micro_of(b.price), b.pay_to, b.pass, b.status IN (400, 404, 405, 406, 409, 410, 411, 413, 414, 415, 422),
  b.delivered, b.delivery, b.schema_ok, b.latency_ms, b.response_sha256
FROM (SELECT *, from_json(body, '{"payer": "VARCHAR", "price": "VARCHAR", "pay_to": "VARCHAR", "pass": "BOOLEAN", "status": "INTEGER",
  "delivered": "BOOLEAN", "delivery": "DOUBLE", "schema_ok": "BOOLEAN", "latency_ms": "DOUBLE", "response_sha256": "VARCHAR"}') AS b
  FROM stage WHERE type = 'paid.published');

INSERT INTO commitment_open
SELECT cap, observed_at, json_extract_string(body, '$.sha256') FROM stage WHERE type = 'paid.commitment';

INSERT INTO receipt_open
SELECT json_extract_string(body, '$.sha256'), observed_at FROM stage WHERE type = 'web.receipt';

CREATE OR REPLACE TEMP TABLE touched_intent AS
SELECT event_id AS intent FROM intent_new UNION SELECT event_id FROM stage WHERE type = 'paid.published' UNION
SELECT json_extract_string(body, CASE WHEN type = 'paid.followup' THEN '$.of' ELSE '$.intent' END)
FROM stage WHERE type IN ('paid.result', 'settlement', 'paid.followup') AND NOT is_retried(type, body);

-- The first leg of a paid call (the request without payment) gets a 402 like any other, so the terms in it are used;
-- but it is not counted as a free handshake.
CREATE OR REPLACE TEMP TABLE quoted_new AS SELECT DISTINCT cap, asked_micro FROM intent_new WHERE asked_micro IS NOT NULL;
CREATE OR REPLACE TEMP TABLE payee_new AS
SELECT cap, address_of(pay_to) AS pay_to, max(t) AS t
FROM (SELECT cap, t, unnest(list_append(list_transform(first_leg.terms.offers, lambda o: o.pay_to), pay_to)) AS pay_to FROM intent_new)
WHERE pay_to IS NOT NULL GROUP BY ALL;
CREATE OR REPLACE TEMP TABLE seen_new AS
SELECT cap, 0 AS probes, 0 AS answered, 0 AS asked, NULL::TIMESTAMP AS first_seen, NULL::TIMESTAMP AS last_seen,
  (count(*) OVER (PARTITION BY cap))::BIGINT AS paid_calls, t AS terms_t, event_id AS terms_id, price_micro, pay_to,
  first_leg.terms.offers, first_leg.terms.protocols, first_leg.terms.defects AS terms_defects, first_leg.differs AS differs, t AS last_tried
FROM intent_new QUALIFY row_number() OVER (PARTITION BY cap ORDER BY t DESC, event_id DESC) = 1;
