-- name: thieves
-- The endpoints that took money without delivering, for the published table of parties related to them.
-- grain: one endpoint with a payment that was taken and not answered within the grading window
-- reads: thefts
-- writes: nothing
SELECT cap, pay_to, domain FROM thefts ORDER BY cap;

-- name: affected
-- Endpoints that share a payTo or a registrable domain with another endpoint in $changed, a JSON array of {cap,
-- pay_to, domain}. Their flags about related parties may change.
-- grain: one capability
-- reads: $changed, site
-- writes: nothing
WITH changed AS (
  SELECT unnest(from_json($changed, '[{"cap": "VARCHAR", "pay_to": "VARCHAR", "domain": "VARCHAR"}]'), recursive := true))
SELECT s.cap FROM site s JOIN changed t ON address_of(s.pay_to) = address_of(t.pay_to) AND s.cap <> t.cap WHERE NOT s.ours
UNION
SELECT s.cap FROM site s JOIN changed t ON s.domain = t.domain AND s.cap <> t.cap WHERE NOT s.ours
ORDER BY cap;
