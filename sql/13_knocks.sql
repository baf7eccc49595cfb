-- New handshakes, and probes of MCP tools, with their columns, and what they add to what is known of an endpoint.
-- grain: knock = one handshake or probe; seen_new = one capability
-- reads: temp stage
-- writes: temp knock, temp seen_new, temp quoted_new
-- Money has six decimals, always: without the dot it is micro-units.
CREATE OR REPLACE TEMP TABLE knock AS
SELECT event_id, cap, t, b.state, b.live, b.honest, b.wall, b.fault, b.latency_ms, replace(b.price, '.', '')::BIGINT AS price_micro, b.pay_to
FROM (SELECT event_id, cap, observed_at AS t, from_json(body, '{
  "state": "VARCHAR", "live": "BOOLEAN", "honest": "BOOLEAN", "wall": "BOOLEAN", "fault": "VARCHAR",
  "latency_ms": "DOUBLE", "price": "VARCHAR", "pay_to": "VARCHAR"}') AS b
FROM stage WHERE type IN ('handshake', 'mcp.probe'));

CREATE OR REPLACE TEMP TABLE quoted_new AS SELECT DISTINCT cap, price_micro FROM knock WHERE price_micro IS NOT NULL;
CREATE OR REPLACE TEMP TABLE seen_new AS
WITH per_cap AS (
  SELECT cap, count(*) AS probes, count(*) FILTER (state NOT IN ('silent', 'unfetchable')) AS answered,
    count(*) FILTER (state IN ('asked', 'malformed')) AS asked, min(t) AS first_seen, max(t) AS last_seen, 0 AS paid_calls,
    max({t: t, id: event_id}) FILTER (state IN ('asked', 'malformed')) AS newest
  FROM knock GROUP BY cap),
 newest AS (
  SELECT k.event_id, k.price_micro, k.pay_to, from_json(s.body, '{"terms": {"protocols": ["VARCHAR"],
      "offers": [{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN"}], "defects": "JSON"}, "differs": "JSON"}') AS b
  FROM per_cap p JOIN knock k ON k.event_id = p.newest.id AND k.cap = p.cap JOIN stage s ON s.event_id = k.event_id AND s.cap = k.cap)
SELECT p.cap, probes, answered, asked, first_seen, last_seen, paid_calls, p.newest.t AS terms_t, p.newest.id AS terms_id,
  n.price_micro, n.pay_to, n.b.terms.offers, n.b.terms.protocols, n.b.terms.defects AS terms_defects, n.b.differs AS differs
FROM per_cap p LEFT JOIN newest n ON n.event_id = p.newest.id;
