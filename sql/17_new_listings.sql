-- Where the capabilities live that a staged listing names for the first time.
-- grain: one capability
-- reads: temp stage, endpoint
-- writes: nothing
SELECT cap, any_value(json_extract_string(body, '$.normalised_url')) AS url,
  any_value(json_extract_string(body, '$.claims.method')) AS method, any_value(json_extract_string(body, '$.claims.tool')) AS tool
FROM stage WHERE type = 'listing' AND cap NOT IN (SELECT cap FROM endpoint) GROUP BY cap
