-- name: named
-- Urls of the capabilities that a listing, probe or ask (a request to probe a url) in temp stage names for the first
-- time. If several topics name one, the listing comes first.
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
  -- A probe that a client requested with an ask: the ask is in the partition of the url's host, which may be in
  -- another lake, so the handshake has the url too. Older handshakes lack it; for these only the ask has the url.
  SELECT topic, cap, url, method, NULL FROM stage
  WHERE topic = 'observations.free' AND planned = 'asked' AND url IS NOT NULL)
SELECT topic, cap, any_value(url) AS url, any_value(method) AS method, any_value(tool) AS tool
FROM named WHERE cap NOT IN (SELECT cap FROM endpoint) GROUP BY topic, cap
ORDER BY CASE topic WHEN 'listings' THEN 0 WHEN 'asks' THEN 2 ELSE 1 END, cap

-- name: added
-- Stores new endpoints, for which the caller has computed host, domain and platform, and marks them as touched, so
-- that `site` gets their domain. An endpoint that only an ask names may not be in the record yet, and its records may
-- be in another lake, so it is marked only if `site` has it already.
-- grain: one capability
-- reads: $endpoints (JSON array; topic = the one that named the endpoint), site
-- writes: endpoint, temp endpoint_new, temp touched
CREATE OR REPLACE TEMP TABLE endpoint_new AS
SELECT unnest(from_json($endpoints, '[{"topic": "VARCHAR", "cap": "VARCHAR", "url": "VARCHAR", "method": "VARCHAR", "tool": "VARCHAR",
  "host": "VARCHAR", "domain": "VARCHAR", "platform": "VARCHAR", "ours": "BOOLEAN"}]'), recursive := true);
INSERT INTO endpoint BY NAME SELECT * EXCLUDE (topic) FROM endpoint_new;
INSERT INTO touched SELECT cap FROM endpoint_new ANTI JOIN touched USING (cap)
WHERE topic <> 'asks' OR cap IN (SELECT cap FROM site);
