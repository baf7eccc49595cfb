-- Makes one sample of kind 1 (a paid call of ours) from each touched intent (the record of a payment, made before it
-- was sent), its result, settlement and follow-ups. Touched means that the load brought a new record of the call. The
-- first leg of a call is its request without a payment.
-- The row does not depend on the order in which records arrive: every choice below is made by content, never by
-- offset. A record counts for an intent if it has the intent's capability and was observed no earlier than a day
-- before it (clocks of two machines differ).
-- grain: one intent
-- reads: temp touched_intent, paid_intent, paid_result, settlement, paid_followup; $shown_again_ms (of the method)
-- writes: samples, temp refold, temp sampled
CREATE OR REPLACE TEMP TABLE refold AS
SELECT i.*, since_call(i.t) AS since FROM paid_intent i SEMI JOIN touched_intent k ON k.intent = i.event_id;

DELETE FROM samples WHERE kind = 1 AND t BETWEEN (SELECT min(t) FROM refold) AND (SELECT max(t) FROM refold)
  AND obs_id IN (SELECT event_id FROM refold);

INSERT INTO samples BY NAME
WITH result AS (   -- a result whose call was watched to its end is preferred to one that was written after a restart
  SELECT r.* FROM paid_result r JOIN refold i ON r.intent = i.event_id AND r.cap = i.cap AND r.t >= i.since
  QUALIFY row_number() OVER (PARTITION BY r.intent ORDER BY r.watched DESC, r.t, r.event_id) = 1),
 follow AS (
  SELECT f.* FROM paid_followup f JOIN refold i ON f.intent = i.event_id AND f.cap = i.cap AND f.t >= i.since),
 money AS (         -- a final settlement is preferred to one that was only seen
  SELECT s.intent, bool_or(s.final) AS final, arg_min(s.as_quoted, {seen: NOT s.final, t: s.t, id: s.event_id}) AS as_quoted
  FROM settlement s JOIN refold i ON s.intent = i.event_id AND s.cap = i.cap AND s.t >= i.since
  GROUP BY s.intent),
 late AS (
  SELECT intent, bool_or(kind = 'finality') AS final, bool_or(kind = 'refund') AS refunded FROM follow GROUP BY intent),
 again AS (         -- the best answer to the same payment proof, sent again within $shown_again_ms of the first result
  SELECT f.* FROM follow f JOIN result r ON r.intent = f.intent AND f.t <= r.t + to_milliseconds($shown_again_ms)
  WHERE f.kind = 'shown_again' AND f.watched
  QUALIFY row_number() OVER (PARTITION BY f.intent ORDER BY f.delivered DESC, f.outcome DESC NULLS LAST,
    f.delivery DESC NULLS LAST, f.schema_ok DESC NULLS LAST, f.t, f.event_id) = 1),
 folded AS (
  SELECT i.*, r.intent IS NOT NULL AS answered, r.watched, r.fault AS reported, r.live, r.honest, m.as_quoted,
    coalesce(m.final OR late.final AND m.intent IS NOT NULL, FALSE) AS settled, coalesce(late.refunded, FALSE) AS refunded,
    a.intent IS NOT NULL AS shown, coalesce(r.delivered, FALSE) AS at_once, coalesce(a.delivered, FALSE) AS later,
    coalesce(r.began, FALSE) AND NOT at_once AND NOT later AS partial,        -- the answer began, and no whole one came
    CASE WHEN later AND NOT at_once THEN {delivery: a.delivery, outcome: a.outcome, schema_ok: a.schema_ok, sha: a.response_sha256,
        -- a seller that fails first, and answers the second request quickly, must not look fast
        ms: greatest(a.latency_ms, r.latency_ms)}
      ELSE {delivery: r.delivery, outcome: r.outcome, schema_ok: r.schema_ok, sha: r.response_sha256, ms: r.latency_ms} END AS answer
  FROM refold i LEFT JOIN result r ON r.intent = i.event_id LEFT JOIN money m ON m.intent = i.event_id
    LEFT JOIN late ON late.intent = i.event_id LEFT JOIN again a ON a.intent = i.event_id)
SELECT cap, event_id AS obs_id, t, 1 AS kind, NULL AS payer, w,
  CASE WHEN NOT answered OR NOT watched THEN 'ours'                            -- our process did not see how the call ended
    WHEN settled AND NOT at_once AND NOT shown THEN 'ours'                     -- a theft only after the proof was sent a second time
    ELSE reported END AS fault,
  coalesce(live, TRUE) AS live,                                                -- the first leg was a 402
  list_aggregate([honest, leg_honest, as_quoted], 'bool_and') AS honest,       -- nulls, which could not be compared, are left out
  settled, at_once OR later OR partial AS delivered, refunded, CASE WHEN partial THEN 0 ELSE answer.delivery END AS delivery,
  CASE WHEN input = 'known_answer' AND answered AND NOT (at_once OR later) THEN coalesce(answer.outcome, 0) ELSE answer.outcome END AS outcome,
  answer.schema_ok AS schema_ok, answer.ms AS latency_ms, price_micro / 1e6 AS price, input, answer.sha AS response_sha256, pay_to, asked_micro
FROM folded;
INSERT INTO sampled SELECT event_id, cap, t FROM refold;
