-- The rows of one endpoint since $since (unix ms) that no correction withdrew: what its next letter is computed over.
-- grain: one observation
-- reads: every_sample, withdrawn
-- writes: nothing
SELECT obs_id, t, kind, payer, w, fault, live, honest, settled, delivered, refunded, delivery, outcome, schema_ok, latency_ms,
  price, input, response_sha256, pay_to
FROM every_sample ANTI JOIN withdrawn USING (obs_id) WHERE cap = $cap AND t >= epoch_ms($since) ORDER BY t, obs_id
