-- name: listings
-- Stores new listings and delistings, and the classes (kinds of questions with known answers) that we assigned to
-- endpoints.
-- grain: one record of `listings`
-- reads: temp stage
-- writes: listing, class_mapped
INSERT INTO listing
SELECT event_id, cap, observed_at, log_offset, b.source, b.source_id, type = 'delisting', coalesce(b.seller_controlled, FALSE),
  b.claims, b.defects
FROM (SELECT *, from_json(body, '{"source": "VARCHAR", "source_id": "VARCHAR", "seller_controlled": "BOOLEAN",
  "claims": "JSON", "defects": "JSON"}') AS b FROM stage WHERE type IN ('listing', 'delisting'));

INSERT INTO class_mapped
SELECT event_id, cap, observed_at, log_offset, b.mapping.id, CASE WHEN NOT b.dropped THEN b.mapping.class END, b.dropped
FROM (SELECT *, from_json(body, '{"mapping": {"id": "VARCHAR", "class": "VARCHAR"}, "dropped": "BOOLEAN"}') AS b
  FROM stage WHERE type = 'class.mapped');

-- name: asks
-- Stores new records of the topic `asks` in their tables. These records have a host or a replica as key, so their
-- capability is read from the body.
-- grain: asked = one ask; looked = one ask that was processed; demand = one capability in one tally
-- reads: temp stage
-- writes: asked, looked, demand
INSERT INTO asked SELECT json_extract_string(body, '$.cap'), observed_at, event_id, body FROM stage WHERE type = 'ask';

INSERT INTO looked SELECT json_extract_string(body, '$.cap'), observed_at, json_extract_string(body, '$.probed[*].cap')
FROM stage WHERE type = 'ask.looked';

-- A tally whose day does not exist (31 February) is left out.
INSERT INTO demand
SELECT a.cap, day, a.clients FROM (
  SELECT TRY_CAST(json_extract_string(body, '$.day') AS DATE) AS day,
    unnest(from_json(json_extract(body, '$.asked'), '[{"cap": "VARCHAR", "clients": "BIGINT"}]')) AS a
  FROM stage WHERE type = 'demand')
WHERE day IS NOT NULL;

-- name: corrections
-- Stores new corrections, reinstatements and disputes in their tables.
-- grain: one record of `corrections`
-- reads: temp stage
-- writes: correction, reinstated, dispute, correction_record
-- If a correction's issue time does not exist (31 February), the time of the record is used.
INSERT INTO correction
SELECT event_id, cap, observed_at, b.id, b.record_id, b.fault, coalesce(b.issued_at, observed_at)
FROM (SELECT *, from_json(body, '{"id": "VARCHAR", "record_id": "VARCHAR", "fault": "VARCHAR", "issued_at": "TIMESTAMP"}') AS b
  FROM stage WHERE type = 'correction');
INSERT INTO reinstated
SELECT event_id, cap, observed_at, json_extract_string(body, '$.correction') FROM stage WHERE type = 'reinstated';
INSERT INTO dispute
SELECT event_id, cap, observed_at, unnest(from_json(body, '{"id": "VARCHAR", "record_id": "VARCHAR"}'))
FROM stage WHERE type = 'dispute';
INSERT INTO correction_record
SELECT event_id, type, cap, part, log_offset, observed_at, body FROM stage WHERE type IN ('correction', 'reinstated', 'dispute');
