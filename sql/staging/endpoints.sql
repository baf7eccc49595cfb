-- New endpoints as the caller worked them out; they are touched, so that `site` knows their domain. An url that
-- was only asked about is not in the record yet, and its records may be in another's lake: the ask alone touches nothing.
-- grain: one capability
-- reads: $endpoints (JSON array), $topic that they came by; site
-- writes: endpoint, temp touched
CREATE OR REPLACE TEMP TABLE endpoint_new AS
SELECT unnest(from_json($endpoints, '[{"cap": "VARCHAR", "url": "VARCHAR", "method": "VARCHAR", "tool": "VARCHAR",
  "host": "VARCHAR", "domain": "VARCHAR", "ours": "BOOLEAN"}]'), recursive := true);
INSERT INTO endpoint BY NAME FROM endpoint_new;
INSERT INTO touched SELECT cap FROM endpoint_new ANTI JOIN touched USING (cap)
WHERE $topic <> 'asks' OR cap IN (SELECT cap FROM site);
