-- What is listed now, with what the planner needs to know of it.
-- A (source, source id) is listed where its newest record put it; a delisting takes it out. Of several listings of one
-- capability the newest of the seller's own speaks, else the newest of a catalogue.
-- grain: one listed capability
-- reads: listing, endpoint, seen, samples, withdrawn
-- writes: nothing
WITH newest AS (
  SELECT * FROM listing
  QUALIFY row_number() OVER (PARTITION BY source, source_id ORDER BY t DESC, log_offset DESC, event_id DESC) = 1),
 live AS (
  SELECT cap, max({own: seller_controlled, t: t, o: log_offset, id: event_id, claims: claims}) AS best,
    to_json(list(event_id ORDER BY event_id))::VARCHAR AS standing FROM newest
  WHERE NOT gone GROUP BY cap),
 paid AS (           -- what counts: no fault of ours, and no made-up input that moved no money
  SELECT cap, t, obs_id, delivered AND coalesce(delivery, 0) >= 0.5 AND coalesce(outcome, 1) >= 0.5 AS pass
  FROM samples ANTI JOIN withdrawn USING (obs_id)
  WHERE kind = 1 AND (fault IS NULL OR fault = 'blocked' OR (fault = 'bad_input' AND settled))),
 blocks AS (
  SELECT cap, count(DISTINCT epoch(t)::BIGINT // 21600) AS paid_blocks, max({t: t, id: obs_id}) FILTER (NOT pass) AS failed
  FROM paid GROUP BY cap),
 since AS (
  SELECT p.cap, count(*) AS passes FROM paid p JOIN blocks b ON p.cap = b.cap AND {t: p.t, id: p.obs_id} > b.failed
  GROUP BY p.cap)
SELECT l.cap, e.url, e.method, e.tool, l.best.claims AS claims, CASE WHEN l.best.own THEN l.best.id END AS seller_listing, l.standing,
  s.first_seen, coalesce(b.paid_blocks, 0)::INTEGER AS paid_blocks, b.failed IS NOT NULL AS failed,
  coalesce(n.passes, 0)::INTEGER AS passes, s.price_micro, s.pay_to
FROM live l JOIN endpoint e USING (cap) LEFT JOIN seen s USING (cap) LEFT JOIN blocks b USING (cap) LEFT JOIN since n USING (cap)
ORDER BY l.cap
