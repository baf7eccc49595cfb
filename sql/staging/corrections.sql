-- New corrections, reinstatements and disputes with their columns.
-- grain: one record of `corrections`
-- reads: temp stage
-- writes: correction, reinstated, dispute, correction_record
-- A time that has the form and is none (31 February) is taken as the time of the record.
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
