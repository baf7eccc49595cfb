-- New handshakes, and probes of MCP tools: what they say, and what they add to what is known of an endpoint.
-- grain: probe_body = one text that staged probes share, or one whole body; knocked = probes of one capability that share one;
--   seen_new = one capability; quoted_new = one price of one capability
-- reads: temp stage, temp shape_here
-- writes: shape, temp probe_body, temp knocked, temp seen_new, temp quoted_new
-- What a shape says is read once. Offsets are numbers of one partition, and what is staged is of one.
CREATE OR REPLACE TEMP TABLE probe_body AS
SELECT id, says.state, says.planned, says.url, says.method, says.latency_ms, says.terms, says.differs, unnest(probe_facts(says))
FROM (
  SELECT -1 - log_offset AS id, probe_says(body) AS says FROM stage WHERE type IN ('handshake', 'mcp.probe') AND shape IS NULL
  UNION ALL
  SELECT id, probe_says(shape_text(text)) AS says FROM shape_here);
INSERT INTO shape BY NAME
SELECT id, name, text, fault, live, honest, price_micro, pay_to FROM shape_here JOIN probe_body USING (id) WHERE is_new;

CREATE OR REPLACE TEMP TABLE knocked AS
SELECT cap, coalesce(shape, -1 - log_offset) AS probe_body, count(*) AS probes, min(observed_at) AS first_seen, max(observed_at) AS last_seen
FROM stage WHERE type IN ('handshake', 'mcp.probe') GROUP BY ALL;
CREATE OR REPLACE TEMP TABLE quoted_new AS
SELECT DISTINCT cap, price_micro FROM knocked k JOIN probe_body s ON s.id = k.probe_body WHERE price_micro IS NOT NULL;
-- The newest 402 by time, then by id. Few knocks of an endpoint share its newest moment, so ids are compared of those alone.
CREATE OR REPLACE TEMP TABLE seen_new AS
WITH per_cap AS (
  SELECT cap, sum(probes)::BIGINT AS probes,
    coalesce(sum(probes) FILTER (state NOT IN ('silent', 'unfetchable')), 0)::BIGINT AS answered,
    coalesce(sum(probes) FILTER (state IN ('asked', 'malformed')), 0)::BIGINT AS asked,
    min(first_seen) AS first_seen, max(last_seen) AS last_seen, 0 AS paid_calls,
    max(last_seen) FILTER (state IN ('asked', 'malformed')) AS terms_t
  FROM knocked k JOIN probe_body s ON s.id = k.probe_body GROUP BY cap),
 newest AS (
  SELECT k.cap, max({id: k.event_id, probe_body: s.id}) AS k
  FROM stage k JOIN per_cap p ON p.cap = k.cap AND p.terms_t = k.observed_at
    JOIN probe_body s ON s.id = coalesce(k.shape, -1 - k.log_offset)
  WHERE k.type IN ('handshake', 'mcp.probe') AND state IN ('asked', 'malformed') GROUP BY k.cap)
SELECT p.cap, probes, answered, asked, first_seen, last_seen, paid_calls, p.terms_t, n.k.id AS terms_id,
  s.price_micro, s.pay_to, s.terms.offers, s.terms.protocols,
  s.terms.defects AS terms_defects, s.differs AS differs
FROM per_cap p LEFT JOIN newest n USING (cap) LEFT JOIN probe_body s ON s.id = n.k.probe_body;
