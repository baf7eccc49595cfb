-- Where the capabilities live that were knocked at because somebody asked: the ask lies in the partition of its host, which
-- may be another's lake, so the handshake says it too. Older handshakes do not; the ask alone speaks for them.
-- grain: one capability
-- reads: temp knocked, temp probe_body, endpoint
-- writes: nothing
SELECT cap, any_value(url) AS url, any_value(method) AS method, NULL::VARCHAR AS tool
FROM (SELECT id, url, method FROM probe_body WHERE planned = 'asked' AND url IS NOT NULL) p JOIN knocked k ON k.probe_body = p.id
WHERE cap NOT IN (SELECT cap FROM endpoint) GROUP BY cap
