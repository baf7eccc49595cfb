-- name: listed
-- The endpoints that are listed now, with the facts from which the planner decides about their calls.
-- The newest record of a (source, source id) decides: a listing assigns it to a capability, a delisting removes it.
-- A listing made from the endpoint's own 402 (source '402') lists it only if its seller never did, because nothing ever
-- delists such a row. A third party that lists and delists the endpoint does not change that; otherwise anybody could
-- take an endpoint off the market. Where another source lists the endpoint too, the row of source '402' takes part in
-- the choice of its current listing (speaking_listing).
-- grain: one listed capability
-- reads: listing, endpoint, seen, samples, withdrawn, class_mapped, class_asked, paid_result; $block_ms (of the method)
-- writes: nothing
WITH newest AS (
  SELECT * FROM listing
  QUALIFY is_newest(row(source, source_id), t, log_offset, event_id)),
 live AS (
  SELECT cap, speaking_listing(seller_controlled, t, log_offset, event_id, claims) AS best,
    to_json(list(event_id ORDER BY event_id))::VARCHAR AS standing FROM newest
  WHERE NOT gone GROUP BY cap
  HAVING bool_or(source <> '402') OR cap NOT IN (SELECT cap FROM listing WHERE source <> '402' AND seller_controlled)),
 paid AS (
  SELECT cap, t, obs_id, is_passed(delivered, delivery, outcome) AS pass
  FROM samples ANTI JOIN withdrawn USING (obs_id)
  WHERE kind = 1 AND is_counted(kind, fault, settled)),
 blocks AS (
  SELECT cap, count(DISTINCT epoch_ms(t) // $block_ms::BIGINT) AS paid_blocks, max({t: t, id: obs_id}) FILTER (NOT pass) AS failed
  FROM paid GROUP BY cap),
 mapped AS (
  SELECT * FROM class_mapped QUALIFY is_newest(cap, t, log_offset, event_id)),
 trials AS (          -- control inputs sent under the current mapping, and whether any call passed under it
  SELECT m.cap, count(*) FILTER (a.control) AS controls, bool_or(is_passed(r.delivered, r.delivery, r.outcome)) AS passed
  FROM mapped m JOIN class_asked a ON a.cap = m.cap AND a.mapping = m.id JOIN paid_result r ON r.intent = a.intent AND r.cap = a.cap
  WHERE r.watched GROUP BY m.cap),
 -- Endpoints with a failure that a buyer published are re-tested until our own calls have reproduced it, or enough of
 -- them have not.
 unconfirmed AS (SELECT DISTINCT cap FROM samples ANTI JOIN withdrawn USING (obs_id) WHERE kind = 2 AND fault = 'unconfirmed'),
 since AS (
  SELECT p.cap, count(*) AS passes FROM paid p JOIN blocks b ON p.cap = b.cap AND {t: p.t, id: p.obs_id} > b.failed
  GROUP BY p.cap)
SELECT l.cap, e.url, e.method, e.tool, l.best.claims AS claims, CASE WHEN l.best.own THEN l.best.id END AS seller_listing, l.standing,
  s.first_seen, coalesce(b.paid_blocks, 0)::INTEGER AS paid_blocks, b.failed IS NOT NULL OR d.cap IS NOT NULL AS failed,
  CASE WHEN d.cap IS NULL THEN coalesce(n.passes, 0) ELSE 0 END::INTEGER AS passes, d.cap IS NOT NULL AS unconfirmed, s.price_micro, s.pay_to, s.terms_t AS last_asked, s.last_tried,
  m.id AS mapping, coalesce(m.dropped, FALSE) AS mapping_dropped, coalesce(t.controls, 0)::INTEGER AS controls,
  coalesce(t.passed, FALSE) AS control_passed
FROM live l JOIN endpoint e USING (cap) LEFT JOIN seen s USING (cap) LEFT JOIN blocks b USING (cap) LEFT JOIN since n USING (cap)
  LEFT JOIN unconfirmed d USING (cap) LEFT JOIN mapped m USING (cap) LEFT JOIN trials t USING (cap)
ORDER BY l.cap;

-- name: current
-- The current listing of some endpoints: the seller's own newest listing if there is one, else the newest of a
-- catalogue, as in `listed`.
-- grain: one listed capability of $caps (JSON array)
-- reads: $caps, listing, endpoint
-- writes: nothing
WITH wanted AS (SELECT text AS cap FROM texts_of($caps)),
 newest AS (
  SELECT * FROM listing SEMI JOIN (SELECT DISTINCT source, source_id FROM listing SEMI JOIN wanted USING (cap)) w USING (source, source_id)
  QUALIFY is_newest(row(source, source_id), t, log_offset, event_id)),
 live AS (
  SELECT cap, speaking_listing(seller_controlled, t, log_offset, event_id, claims) AS best FROM newest SEMI JOIN wanted USING (cap)
  WHERE NOT gone GROUP BY cap
  HAVING bool_or(source <> '402') OR cap NOT IN (SELECT cap FROM listing SEMI JOIN wanted USING (cap) WHERE source <> '402' AND seller_controlled))
SELECT l.cap, e.url, e.method, e.tool, l.best.claims AS claims, l.best.own AS own FROM live l JOIN endpoint e USING (cap)
ORDER BY l.cap;

-- name: of_source
-- Listing records of one source: the newest record of each source id, and all records of one UTC day, so that no new
-- record of the day gets an id that is in use.
-- grain: one record of the source
-- reads: listing, endpoint; the parameters `source` and `day`
-- writes: nothing
WITH records AS (
  SELECT source_id, cap, event_id, gone, is_newest(source_id, t, log_offset, event_id) AS newest, epoch_ms(t)::DOUBLE AS at
  FROM listing WHERE source = $source
  QUALIFY newest OR t::DATE = $day::DATE)
SELECT r.*, e.url FROM records r LEFT JOIN endpoint e USING (cap);

-- name: left_sellers
-- Urls of endpoints that were delisted since $since (unix ms) and that their seller listed itself before.
-- grain: one url
-- reads: $since, listing, endpoint
-- writes: nothing
SELECT DISTINCT url FROM endpoint
SEMI JOIN (FROM listing WHERE gone AND t >= epoch_ms($since::BIGINT)) USING (cap)
SEMI JOIN (FROM listing WHERE seller_controlled) USING (cap);

-- name: facts
-- The contents of the listing leaves (entries of the public log) of endpoints that have new records; of all endpoints
-- if $every is true. The current listing is chosen as in the query `listed` above. A third party's listing alone does
-- not put an endpoint on the market (is_in_market).
-- grain: one capability with a known url; `listed` is false where no source names it now, or it is not on the market
-- reads: $every, dirty, endpoint, listing, seen, quoted, payee, class_mapped
-- writes: nothing
WITH news AS (SELECT cap FROM endpoint WHERE $every::BOOLEAN OR cap IN (SELECT cap FROM dirty)),
 sources AS (SELECT DISTINCT source, source_id FROM listing SEMI JOIN news USING (cap)),
 wanted AS (          -- and the capabilities that those sources named before: a listing may have moved from one to another
  FROM news UNION SELECT cap FROM listing SEMI JOIN sources USING (source, source_id)),
 newest AS (
  SELECT * FROM listing SEMI JOIN sources USING (source, source_id)
  QUALIFY is_newest(row(source, source_id), t, log_offset, event_id)),
 live AS (
  SELECT cap, speaking_listing(seller_controlled, t, log_offset, event_id, claims) AS best,
    -- a listing that a 402 declares is left out here: its defects are in terms_defects
    max({own: seller_controlled, t: t, o: log_offset, id: event_id, defects: defects}) FILTER (source <> '402') AS listed
  FROM newest SEMI JOIN wanted USING (cap) WHERE NOT gone GROUP BY cap
  HAVING bool_or(source <> '402') OR cap NOT IN (SELECT cap FROM listing SEMI JOIN wanted USING (cap) WHERE source <> '402' AND seller_controlled)),
 -- the class that we assigned to the endpoint is preferred to the class that the listing names
 mapped AS (
  SELECT cap, class FROM class_mapped SEMI JOIN wanted USING (cap)
  QUALIFY is_newest(cap, t, log_offset, event_id)),
 prices AS (SELECT cap, count(*) AS n FROM quoted SEMI JOIN wanted USING (cap) GROUP BY cap),
 payees AS (SELECT cap, count(*) AS n FROM payee SEMI JOIN wanted USING (cap) GROUP BY cap)
SELECT e.cap, e.url, e.method, e.tool, live.cap IS NOT NULL AND is_in_market(live.best.own, s.terms_t) AS listed,
  coalesce(live.best.own, FALSE) AS own,
  coalesce(m.class, json_extract_string(live.best.claims, '$.class')) AS class, json_extract_string(live.best.claims, '$.description') AS description,
  listing_defects_of(live.listed, s.terms_t) AS listing_defects, s.terms_defects, s.differs, coalesce(s.offers, []) AS offers,
  coalesce(p.n, 0)::DOUBLE AS prices, coalesce(y.n, 0)::DOUBLE AS payees
FROM endpoint e SEMI JOIN wanted USING (cap) LEFT JOIN live USING (cap) LEFT JOIN seen s USING (cap) LEFT JOIN mapped m USING (cap)
  LEFT JOIN prices p USING (cap) LEFT JOIN payees y USING (cap)
ORDER BY e.cap;
