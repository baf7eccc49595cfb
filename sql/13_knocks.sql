-- New handshakes, and probes of MCP tools, with their columns, and what they add to what is known of an endpoint.
-- grain: knock = one handshake or probe; seen_new = one capability
-- reads: temp stage
-- writes: temp knock, temp seen_new, temp quoted_new
-- Money has six decimals, always: without the dot it is micro-units.
CREATE OR REPLACE TEMP TABLE knock AS
SELECT event_id, cap, log_offset, t, b.state, b.live, b.honest, b.wall, b.fault, b.latency_ms, replace(b.price, '.', '')::BIGINT AS price_micro, b.pay_to
FROM (SELECT event_id, cap, log_offset, observed_at AS t, from_json(body, '{
  "state": "VARCHAR", "live": "BOOLEAN", "honest": "BOOLEAN", "wall": "BOOLEAN", "fault": "VARCHAR",
  "latency_ms": "DOUBLE", "price": "VARCHAR", "pay_to": "VARCHAR"}') AS b
FROM stage WHERE type IN ('handshake', 'mcp.probe'));

CREATE OR REPLACE TEMP TABLE quoted_new AS SELECT DISTINCT cap, price_micro FROM knock WHERE price_micro IS NOT NULL;
-- The newest 402 by time, then by id. Few knocks of an endpoint share its newest moment, so ids are compared of those alone.
-- Offsets are numbers of one partition; an endpoint lies in one, so with it they name the record whatever is staged.
CREATE OR REPLACE TEMP TABLE seen_new AS
WITH per_cap AS (
  SELECT cap, count(*) AS probes, count(*) FILTER (state NOT IN ('silent', 'unfetchable')) AS answered,
    count(*) FILTER (state IN ('asked', 'malformed')) AS asked, min(t) AS first_seen, max(t) AS last_seen, 0 AS paid_calls,
    max(t) FILTER (state IN ('asked', 'malformed')) AS terms_t
  FROM knock GROUP BY cap),
 latest AS (
  SELECT k.cap, max({id: k.event_id, o: k.log_offset, price_micro: k.price_micro, pay_to: k.pay_to}) AS k
  FROM knock k JOIN per_cap p ON p.cap = k.cap AND p.terms_t = k.t WHERE k.state IN ('asked', 'malformed') GROUP BY k.cap),
 newest AS (
  SELECT l.cap, l.k.id, l.k.price_micro, l.k.pay_to, from_json(s.body, '{"terms": {"protocols": ["VARCHAR"],
      "offers": [{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN"}], "defects": "JSON"}, "differs": "JSON"}') AS b
  FROM latest l JOIN stage s ON s.log_offset = l.k.o AND s.cap = l.cap)
SELECT p.cap, probes, answered, asked, first_seen, last_seen, paid_calls, p.terms_t, n.id AS terms_id,
  n.price_micro, n.pay_to, n.b.terms.offers, n.b.terms.protocols, n.b.terms.defects AS terms_defects, n.b.differs AS differs
FROM per_cap p LEFT JOIN newest n USING (cap);
