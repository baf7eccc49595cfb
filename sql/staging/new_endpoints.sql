-- Where the capabilities live that a staged listing, ask or probe names for the first time.
-- grain: one capability
-- reads: temp stage, temp probe, endpoint
-- writes: nothing
WITH named AS (
  SELECT cap, json_extract_string(body, '$.normalised_url') AS url, json_extract_string(body, '$.claims.method') AS method,
    json_extract_string(body, '$.claims.tool') AS tool
  FROM stage WHERE type = 'listing'
  UNION ALL
  SELECT json_extract_string(body, '$.cap'), json_extract_string(body, '$.normalised_url'), json_extract_string(body, '$.method'), json_extract_string(body, '$.tool')
  FROM stage WHERE type = 'ask'
  UNION ALL
  -- Somebody asked: the ask lies in the partition of its host, which may be another's lake, so the handshake says it too. Older
  -- handshakes do not; the ask alone speaks for them.
  SELECT cap, url, method, NULL FROM probe WHERE planned = 'asked' AND url IS NOT NULL)
SELECT cap, any_value(url) AS url, any_value(method) AS method, any_value(tool) AS tool
FROM named WHERE cap NOT IN (SELECT cap FROM endpoint) GROUP BY cap
