-- New endpoints as the caller worked them out (JSON array); they are touched, so that `site` knows their domain.
-- grain: one capability
-- reads: the variable `endpoints`
-- writes: endpoint, temp touched
CREATE OR REPLACE TEMP TABLE endpoint_new AS
SELECT unnest(from_json(getvariable('endpoints'), '[{"cap": "VARCHAR", "url": "VARCHAR", "method": "VARCHAR", "tool": "VARCHAR",
  "host": "VARCHAR", "domain": "VARCHAR", "ours": "BOOLEAN"}]'), recursive := true);
INSERT INTO endpoint BY NAME FROM endpoint_new;
INSERT INTO touched SELECT cap FROM endpoint_new ANTI JOIN touched USING (cap);
