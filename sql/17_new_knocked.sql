-- Where the capabilities live that were knocked at because somebody asked: the ask lies in the partition of its host, which
-- may be another's lake, so the handshake says it too. Older handshakes do not; the ask alone speaks for them.
-- grain: one capability
-- reads: temp stage, endpoint
-- writes: nothing
SELECT cap, any_value(json_extract_string(body, '$.url')) AS url, any_value(json_extract_string(body, '$.method')) AS method,
  NULL::VARCHAR AS tool
-- Few handshakes were asked for: only their bodies are read as JSON, in whatever order the engine takes the conditions.
FROM stage
WHERE type = 'handshake'
  AND CASE WHEN contains(body, 'planned":"asked"') THEN json_extract_string(body, '$.url') IS NOT NULL ELSE FALSE END
  AND cap NOT IN (SELECT cap FROM endpoint) GROUP BY cap
