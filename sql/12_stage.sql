-- The records of one segment that the lake does not have yet: a copy is dropped by event id within its key and scope.
-- grain: stage = one new record; touched = one capability with a new record; shape_here = one text that cut bodies share
-- reads: the segment file named by the variable `segment`, event, shape
-- writes: temp stage, temp touched, temp shape_here, event
-- Names are compared, not texts: they are a tenth as long, and a lake has a shape or some of every endpoint.
CREATE OR REPLACE TEMP TABLE shape_here AS
SELECT coalesce(s.id, (SELECT coalesce(max(id), 0) FROM shape) + row_number() OVER ()) AS id, name, h.text, s.id IS NULL AS is_new
FROM (SELECT shape AS text, unhex(sha256(shape)) AS name FROM (
    SELECT DISTINCT shape FROM segment_rows(getvariable('segment')) WHERE shape IS NOT NULL)) h
  LEFT JOIN shape s USING (name);

CREATE OR REPLACE TEMP TABLE stage AS
SELECT event_id, type, CASE WHEN topic = 'asks' OR cap <> key THEN key END AS key,
  CASE WHEN topic = 'asks' THEN cap ELSE coalesce(cap, key) END AS cap, topic, part, "offset" AS log_offset,
  -- The id of a planned call names its slot, so its copy is the same wherever it lies; the others repeat day by day.
  CASE WHEN type IN ('handshake', 'mcp.probe', 'paid.intent', 'mcp.paid') THEN DATE '1970-01-01' ELSE observed_at::DATE END AS scope,
  observed_at, appended_at, producer, v, body, extra, h.id AS shape, measured, block, minute, unhex(sha) AS sha
FROM segment_rows(getvariable('segment')) r LEFT JOIN shape_here h ON h.text = r.shape;

-- Only the days around the batch and its own partition are looked at, whatever the lake has grown to: copies have one key.
SET VARIABLE stage_topic = (SELECT any_value(topic) FROM stage);
SET VARIABLE stage_part = (SELECT any_value(part) FROM stage);
SET VARIABLE stage_since = (SELECT min(observed_at) - INTERVAL 1 DAY FROM stage);
SET VARIABLE stage_until = (SELECT max(observed_at) + INTERVAL 1 DAY FROM stage);
CREATE OR REPLACE TEMP VIEW around AS
SELECT event_id, key, cap, scope FROM event
WHERE topic = getvariable('stage_topic') AND part = getvariable('stage_part')
  AND observed_at BETWEEN getvariable('stage_since') AND getvariable('stage_until');
-- Nearly none is a copy, and a look at numbers alone says so of most.
DELETE FROM stage WHERE log_offset IN (
  SELECT unnest(list_sort(list(log_offset))[2:]) FROM stage
  WHERE hash(event_id) IN (SELECT hash(event_id) FROM stage GROUP BY ALL HAVING count(*) > 1)
  GROUP BY event_id, coalesce(key, cap), scope
  UNION ALL
  SELECT s.log_offset FROM around e JOIN stage s ON e.event_id = s.event_id AND e.scope = s.scope
  WHERE coalesce(e.key, e.cap) = coalesce(s.key, s.cap) AND hash(s.event_id) IN (SELECT hash(event_id) FROM around));

INSERT INTO event BY NAME SELECT * FROM stage;
-- A commitment says nothing of its endpoint: it touches none.
CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT cap FROM stage WHERE topic <> 'asks' AND type <> 'paid.commitment';
