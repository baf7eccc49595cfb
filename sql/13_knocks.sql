-- New handshakes, and probes of MCP tools, with their columns, and what they add to what is known of an endpoint.
-- grain: probe_body = one text that staged probes share, or one whole body; knock = one handshake or probe; seen_new = one capability
-- reads: temp stage, temp shape_here
-- writes: temp probe_body, temp knock, temp seen_new, temp quoted_new
-- What a shape says is read once, with nulls in the places of the cuts. Offsets are numbers of one partition, and what is
-- staged is of one.
CREATE OR REPLACE TEMP TABLE probe_body AS
SELECT id, from_json(text, '{"state": "VARCHAR", "live": "BOOLEAN", "honest": "BOOLEAN", "wall": "BOOLEAN", "fault": "VARCHAR",
  "latency_ms": "DOUBLE", "price": "VARCHAR", "pay_to": "VARCHAR", "planned": "VARCHAR", "url": "VARCHAR", "method": "VARCHAR",
  "terms": {"protocols": ["VARCHAR"], "offers": [{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN"}],
    "defects": "JSON"}, "differs": "JSON"}') AS b
FROM (SELECT -1 - log_offset AS id, body AS text FROM stage WHERE type IN ('handshake', 'mcp.probe') AND shape IS NULL
  UNION ALL
  SELECT id, whole_body(NULL, pieces_of(text), 'null', 0, 0, '') AS text
  FROM shape_here);
-- Money has six decimals, always: without the dot it is micro-units.
CREATE OR REPLACE TEMP TABLE knock AS
SELECT k.event_id, k.cap, k.log_offset, k.observed_at AS t, b.state, b.live, b.honest, b.wall, b.fault,
  -- Of a tool's two times the second one: what connecting took is not its own.
  CASE WHEN k.shape IS NULL THEN b.latency_ms WHEN k.type = 'handshake' THEN TRY_CAST(k.measured AS DOUBLE)
    ELSE TRY_CAST(string_split(k.measured, ':')[-1] AS DOUBLE) END AS latency_ms,
  replace(b.price, '.', '')::BIGINT AS price_micro, b.pay_to, s.id AS probe_body
FROM stage k JOIN probe_body s ON s.id = coalesce(k.shape, -1 - k.log_offset) WHERE k.type IN ('handshake', 'mcp.probe');

CREATE OR REPLACE TEMP TABLE quoted_new AS SELECT DISTINCT cap, price_micro FROM knock WHERE price_micro IS NOT NULL;
-- The newest 402 by time, then by id. Few knocks of an endpoint share its newest moment, so ids are compared of those alone.
CREATE OR REPLACE TEMP TABLE seen_new AS
WITH per_cap AS (
  SELECT cap, count(*) AS probes, count(*) FILTER (state NOT IN ('silent', 'unfetchable')) AS answered,
    count(*) FILTER (state IN ('asked', 'malformed')) AS asked, min(t) AS first_seen, max(t) AS last_seen, 0 AS paid_calls,
    max(t) FILTER (state IN ('asked', 'malformed')) AS terms_t
  FROM knock GROUP BY cap),
 newest AS (
  SELECT k.cap, max({id: k.event_id, probe_body: k.probe_body, price_micro: k.price_micro, pay_to: k.pay_to}) AS k
  FROM knock k JOIN per_cap p ON p.cap = k.cap AND p.terms_t = k.t WHERE k.state IN ('asked', 'malformed') GROUP BY k.cap)
SELECT p.cap, probes, answered, asked, first_seen, last_seen, paid_calls, p.terms_t, n.k.id AS terms_id,
  n.k.price_micro, n.k.pay_to, s.b.terms.offers, s.b.terms.protocols, s.b.terms.defects AS terms_defects, s.b.differs AS differs
FROM per_cap p LEFT JOIN newest n USING (cap) LEFT JOIN probe_body s ON s.id = n.k.probe_body;
