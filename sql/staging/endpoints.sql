-- name: named
-- Where the capabilities live that a staged listing, probe or ask names for the first time, by what is heard first.
-- grain: one capability of one topic
-- reads: temp stage, endpoint
-- writes: nothing
WITH named AS (
  SELECT topic, cap, json_extract_string(body, '$.normalised_url') AS url, json_extract_string(body, '$.claims.method') AS method,
    json_extract_string(body, '$.claims.tool') AS tool
  FROM stage WHERE type = 'listing'
  UNION ALL
  SELECT topic, json_extract_string(body, '$.cap'), json_extract_string(body, '$.normalised_url'), json_extract_string(body, '$.method'), json_extract_string(body, '$.tool')
  FROM stage WHERE type = 'ask'
  UNION ALL
  -- Somebody asked: the ask lies in the partition of its host, which may be another's lake, so the handshake says it too. Older
  -- handshakes do not; the ask alone speaks for them.
  SELECT topic, cap, url, method, NULL FROM stage
  WHERE topic = 'observations.free' AND planned = 'asked' AND url IS NOT NULL)
SELECT topic, cap, any_value(url) AS url, any_value(method) AS method, any_value(tool) AS tool
FROM named WHERE cap NOT IN (SELECT cap FROM endpoint) GROUP BY topic, cap
ORDER BY CASE topic WHEN 'listings' THEN 0 WHEN 'asks' THEN 2 ELSE 1 END, cap

-- name: added
-- New endpoints as the caller worked them out; they are touched, so that `site` knows their domain. An url that
-- was only asked about is not in the record yet, and its records may be in another's lake: the ask alone touches nothing.
-- grain: one capability
-- reads: $endpoints (JSON array; topic = that it came by), site
-- writes: endpoint, temp touched
CREATE OR REPLACE TEMP TABLE endpoint_new AS
SELECT unnest(from_json($endpoints, '[{"topic": "VARCHAR", "cap": "VARCHAR", "url": "VARCHAR", "method": "VARCHAR", "tool": "VARCHAR",
  "host": "VARCHAR", "domain": "VARCHAR", "platform": "VARCHAR", "ours": "BOOLEAN"}]'), recursive := true);
INSERT INTO endpoint BY NAME SELECT * EXCLUDE (topic) FROM endpoint_new;
INSERT INTO touched SELECT cap FROM endpoint_new ANTI JOIN touched USING (cap)
WHERE topic <> 'asks' OR cap IN (SELECT cap FROM site);
