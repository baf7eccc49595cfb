-- One sample of kind 0 per new handshake; a handshake is never amended.
-- grain: sampled = one new sample of an endpoint with a correction
-- reads: temp knock, correction
-- writes: samples, temp sampled
INSERT INTO samples BY NAME
SELECT cap, event_id AS obs_id, t, 0 AS kind, NULL AS payer, 1.0 AS w,
  coalesce(fault, CASE WHEN wall THEN 'blocked' END) AS fault, live, honest,
  FALSE AS settled, NULL AS delivered, FALSE AS refunded, NULL AS delivery, NULL AS outcome, NULL AS schema_ok, latency_ms,
  price_micro / 1e6 AS price, NULL AS input, NULL AS response_sha256, pay_to
FROM knock;
-- Only what a correction may withdraw is looked at again, and few endpoints have one.
CREATE OR REPLACE TEMP TABLE sampled AS
SELECT event_id AS obs_id, cap, t FROM knock WHERE cap IN (SELECT cap FROM correction);
