-- Where the capabilities live that a staged ask names for the first time.
-- grain: one capability
-- reads: temp stage, endpoint
-- writes: nothing
SELECT json_extract_string(body, '$.cap') AS cap, any_value(json_extract_string(body, '$.normalised_url')) AS url,
  any_value(json_extract_string(body, '$.method')) AS method, NULL::VARCHAR AS tool
FROM stage WHERE type = 'ask' AND json_extract_string(body, '$.cap') NOT IN (SELECT cap FROM endpoint) GROUP BY ALL
