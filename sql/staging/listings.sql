-- New listings and delistings with their columns, and which class we gave an endpoint.
-- grain: one record of `listings`
-- reads: temp stage
-- writes: listing, class_mapped
INSERT INTO listing
SELECT event_id, cap, observed_at, log_offset, b.source, b.source_id, type = 'delisting', coalesce(b.seller_controlled, FALSE),
  b.claims, b.defects
FROM (SELECT *, from_json(body, '{"source": "VARCHAR", "source_id": "VARCHAR", "seller_controlled": "BOOLEAN",
  "claims": "JSON", "defects": "JSON"}') AS b FROM stage WHERE type IN ('listing', 'delisting'));

INSERT INTO class_mapped
SELECT event_id, cap, observed_at, log_offset, b.mapping.id, CASE WHEN NOT b.dropped THEN b.mapping.class END, b.dropped
FROM (SELECT *, from_json(body, '{"mapping": {"id": "VARCHAR", "class": "VARCHAR"}, "dropped": "BOOLEAN"}') AS b
  FROM stage WHERE type = 'class.mapped');
