-- One sample of kind 0 per new handshake; a handshake is never amended. Where its body is cut, every_sample makes it.
-- grain: sampled = one new sample of an endpoint with a correction
-- reads: temp stage, temp probe_body, correction
-- writes: samples, temp sampled
INSERT INTO samples BY NAME
SELECT cap, event_id AS obs_id, observed_at AS t, 0 AS kind, 1.0 AS w, fault, live, honest, FALSE AS settled, FALSE AS refunded,
  latency_ms, price_micro / 1e6 AS price, pay_to
FROM (FROM stage WHERE shape IS NULL AND type IN ('handshake', 'mcp.probe')) k JOIN probe_body s ON s.id = -1 - k.log_offset;
-- Only what a correction may withdraw is looked at again, and few endpoints have one.
CREATE OR REPLACE TEMP TABLE sampled AS
SELECT event_id AS obs_id, cap, observed_at AS t FROM stage
WHERE type IN ('handshake', 'mcp.probe') AND cap IN (SELECT cap FROM correction);
