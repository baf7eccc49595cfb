-- Makes one sample of kind 2 from each touched call that a buyer published, and from the verdict of our own re-tests.
-- Touched means that the load brought a new record of the call. A failure counts only once one of our own calls failed
-- in the same way (method, section 3), and never if the seller's status means that the request was at fault. Of two
-- verdicts, the one that is earlier by time, not by offset, is used.
-- grain: one published call
-- reads: temp touched_intent, paid_published, paid_followup
-- writes: samples, temp republish, temp sampled
CREATE OR REPLACE TEMP TABLE republish AS
SELECT p.*, since_call(p.t) AS since FROM paid_published p SEMI JOIN touched_intent k ON k.intent = p.event_id;

DELETE FROM samples WHERE kind = 2 AND obs_id IN (SELECT event_id FROM republish);

INSERT INTO samples BY NAME
WITH verdict AS (
  SELECT f.intent, arg_min(f.kind, {t: f.t, id: f.event_id}) AS kind
  FROM paid_followup f JOIN republish p ON f.intent = p.event_id AND f.cap = p.cap AND f.t >= p.since
  WHERE f.kind IN ('reproduced', 'not_reproduced') GROUP BY f.intent)
SELECT p.cap, p.event_id AS obs_id, p.t, 2 AS kind, p.payer, 1.0 AS w,
  CASE WHEN p.pass THEN NULL WHEN p.refused THEN 'bad_input' WHEN v.kind IS NULL THEN 'unconfirmed'
    WHEN v.kind = 'not_reproduced' THEN 'not_reproduced' END AS fault,
  TRUE AS live,                                  -- it asked for a payment and received it
  NULL::BOOLEAN AS honest, TRUE AS settled, p.delivered, FALSE AS refunded, p.delivery, NULL::DOUBLE AS outcome, p.schema_ok, p.latency_ms,
  p.price_micro / 1e6 AS price, NULL AS input, p.response_sha256, p.pay_to, NULL::BIGINT AS asked_micro
FROM republish p LEFT JOIN verdict v ON v.intent = p.event_id;
INSERT INTO sampled SELECT event_id, cap, t FROM republish;
