-- Capabilities that a run has looked at are no longer dirty. $caps is a JSON array of their ids.
-- grain: one capability
-- reads: $caps
-- writes: dirty
DELETE FROM dirty WHERE cap IN (SELECT unnest(from_json($caps, '["VARCHAR"]')))
