-- name: thieves
-- The payee and domain table as the run that was just made left it.
-- grain: one endpoint that took money in its window
-- reads: thefts
-- writes: nothing
SELECT cap, pay_to, domain FROM thefts ORDER BY cap;

-- name: turned
-- Endpoints whose payTo or registrable domain is among $turned, a JSON array of {pay_to, domain}: their flags of related
-- parties may change.
-- grain: one capability
-- reads: $turned, site
-- writes: nothing
WITH turned AS (SELECT unnest(from_json($turned, '[{"pay_to": "VARCHAR", "domain": "VARCHAR"}]'), recursive := true))
SELECT cap FROM site
WHERE NOT ours AND (address_of(pay_to) IN (SELECT address_of(pay_to) FROM turned WHERE pay_to IS NOT NULL)
  OR domain IN (SELECT domain FROM turned WHERE domain IS NOT NULL))
ORDER BY cap;
