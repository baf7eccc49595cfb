-- New listings and delistings with their columns.
-- grain: one record of `listings`
-- reads: temp stage
-- writes: listing
INSERT INTO listing
SELECT event_id, cap, observed_at, log_offset, b.source, b.source_id, type = 'delisting', coalesce(b.seller_controlled, FALSE),
  b.claims, b.defects
FROM (SELECT *, from_json(body, '{"source": "VARCHAR", "source_id": "VARCHAR", "seller_controlled": "BOOLEAN",
  "claims": "JSON", "defects": "JSON"}') AS b FROM stage WHERE type IN ('listing', 'delisting'));
