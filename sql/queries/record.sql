-- name: segment
-- The records of one segment (file of records), of one key or of all keys.
-- grain: one record of the log, in offset order
-- reads: $segment (Parquet file), $key (null: all keys)
-- writes: nothing
SELECT event_id, type, key, observed_at, "offset" AS log_offset, body FROM read_parquet($segment)
WHERE $key IS NULL OR key = $key ORDER BY "offset";

-- name: corrections
-- Records of corrections, disputes and reinstatements, oldest first, with what their leaves (entries of the public
-- log) are made of.
-- grain: one correction, dispute or reinstatement
-- reads: correction_record
-- writes: nothing
SELECT type, cap, body, part, log_offset FROM correction_record ORDER BY t, part, log_offset;

-- name: samples
-- The rows of one endpoint since $since (unix ms) that no correction withdrew. From these rows the cost of its next
-- better letter is computed.
-- grain: one observation
-- reads: every_sample, withdrawn
-- writes: nothing
SELECT obs_id, t, kind, payer, w, fault, live, honest, settled, delivered, refunded, delivery, outcome, schema_ok, latency_ms,
  price, input, response_sha256, pay_to
FROM every_sample ANTI JOIN withdrawn USING (obs_id) WHERE cap = $cap AND t >= epoch_ms($since) ORDER BY t, obs_id;
