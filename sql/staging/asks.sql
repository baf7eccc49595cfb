-- New records of the topic `asks` with their columns. Their keys are hosts and replicas, so the capability is in the body.
-- grain: asked = one ask; looked = one ask that was looked at; demand = one capability of one tally
-- reads: temp stage
-- writes: asked, looked, demand
INSERT INTO asked SELECT json_extract_string(body, '$.cap'), observed_at, event_id, body FROM stage WHERE type = 'ask';

INSERT INTO looked SELECT json_extract_string(body, '$.cap'), observed_at, json_extract_string(body, '$.probed[*].cap')
FROM stage WHERE type = 'ask.looked';

INSERT INTO demand
SELECT a.cap, day, a.clients FROM (
  SELECT json_extract_string(body, '$.day')::DATE AS day,
    unnest(from_json(json_extract(body, '$.asked'), '[{"cap": "VARCHAR", "clients": "BIGINT"}]')) AS a
  FROM stage WHERE type = 'demand');
