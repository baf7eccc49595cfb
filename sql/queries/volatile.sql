-- Facts of the wanted endpoints that change more often than their cards (published grades). `$wanted` is a JSON array
-- of {cap, at, since, read}: the time of the published card that GET /v1/check shows, and the start of that card's
-- window, in unix ms, and {topic: next offset}, up to which the grade run of the card had read the log. All three are
-- null if there is no card.
-- Every large table is joined with this list first, so that the cost depends on the length of the list alone.
-- grain: one capability of the list with a known address
-- reads: $wanted, endpoint, seen, quoted, payee, listing, event, samples, every_sample, paid_intent, paid_result, retried,
--   answered, settled_by, buyers, offer_signed, last_handshake, withdrawal, correction, reinstated, correction_in_force,
--   correction_record
-- writes: nothing
WITH wanted AS MATERIALIZED (
  SELECT w.cap, epoch_ms(w.at) AS at_, epoch_ms(w.since) AS window_start, w.read
  FROM (SELECT unnest(from_json($wanted, '[{"cap": "VARCHAR", "at": "BIGINT", "since": "BIGINT", "read": "MAP(VARCHAR, BIGINT)"}]')) AS w)),
 card AS MATERIALIZED (FROM wanted WHERE at_ IS NOT NULL),
 later AS (
  SELECT cap, count(*) AS n FROM every_sample JOIN card USING (cap)
  WHERE t > card.at_ AND t > (SELECT min(at_) FROM card) GROUP BY cap),
 -- The corrections that the card's grade run had read. They are found by offset and not by time, since the clocks of
 -- two machines differ.
 known_to_card AS (SELECT event_id, cap FROM correction_record s JOIN card USING (cap) WHERE s.log_offset < coalesce(card.read['corrections'], 0)),
 in_force_then AS (FROM correction c SEMI JOIN known_to_card USING (event_id, cap)
  ANTI JOIN (FROM reinstated SEMI JOIN known_to_card USING (event_id, cap)) r ON r.cap = c.cap AND r.correction = c.id),
 -- Few endpoints have a correction that their card does not include; of the largest tables, only the rows of these
 -- endpoints are read.
 corrected AS MATERIALIZED (
  SELECT DISTINCT cap FROM correction_in_force SEMI JOIN card USING (cap) ANTI JOIN known_to_card USING (event_id, cap)),
 sampled AS MATERIALIZED (FROM every_sample SEMI JOIN corrected USING (cap)),
 arrived AS MATERIALIZED (SELECT event_id, cap, topic, log_offset FROM event SEMI JOIN corrected USING (cap)),
 taken AS (          -- rows that were counted for the card and are withdrawn now; rows that a correction had withdrawn before
                     -- the card's run were not counted, even if a reinstatement has revoked that correction since
  SELECT w.cap, count(DISTINCT w.obs_id) AS n FROM withdrawal w JOIN card USING (cap) JOIN sampled s ON s.obs_id = w.obs_id AND s.cap = w.cap
    LEFT JOIN paid_result r ON r.intent = w.obs_id AND r.cap = w.cap AND r.watched
    -- records that were appended after the grade run had read the log were not counted, whenever they were observed;
    -- nor were calls without a watched result
    JOIN arrived e ON e.event_id = coalesce(r.event_id, w.obs_id) AND e.cap = w.cap AND e.log_offset < coalesce(card.read[e.topic], 0)
  WHERE s.t >= window_start AND s.t < card.at_
    AND s.kind < 2 AND is_counted(s.kind, s.fault, s.settled)
    AND NOT EXISTS (FROM in_force_then m WHERE m.cap = w.cap AND is_withdrawn_by(m.record_id, m.issued_at, w.obs_id, s.t))
  GROUP BY w.cap),
 offered AS (
  SELECT cap, max({t: t, o: log_offset, id: event_id, networks: list_filter(json_extract_string(claims, '$.offers[*].network'), lambda n: n IS NOT NULL)})
      FILTER (json_extract_string(claims, '$.offers[0].network') IS NOT NULL) AS claimed
  FROM listing SEMI JOIN wanted USING (cap) WHERE NOT gone GROUP BY cap),
 -- Defects as in queries/listings (facts): those of the seller's own newest listing are preferred to those of any other.
 sources AS (SELECT DISTINCT source, source_id FROM listing SEMI JOIN wanted USING (cap) WHERE source <> '402'),
 standing AS (
  SELECT * FROM listing SEMI JOIN sources USING (source, source_id)
  QUALIFY is_newest(row(source, source_id), t, log_offset, event_id)),
 listed AS (
  SELECT cap, max({own: seller_controlled, t: t, o: log_offset, id: event_id, defects: defects}) AS listing
  FROM standing SEMI JOIN wanted USING (cap) WHERE NOT gone GROUP BY cap),
 prices AS (SELECT cap, count(*) AS n FROM quoted SEMI JOIN wanted USING (cap) GROUP BY cap),
 paid_to AS (SELECT cap, list(pay_to ORDER BY t DESC, pay_to) AS addresses FROM payee SEMI JOIN wanted USING (cap) GROUP BY cap),
 own AS (             -- the newest current listing of the seller's own that names an address
  SELECT cap, arg_max(addresses, {t: t, o: log_offset, id: event_id}) AS addresses
  FROM (SELECT *, list_filter(json_extract_string(claims, '$.offers[*].pay_to'), lambda a: a IS NOT NULL) AS addresses
    FROM standing SEMI JOIN wanted USING (cap) WHERE NOT gone AND seller_controlled)
  WHERE len(addresses) > 0 GROUP BY cap),
 nothing AS (         -- our own calls that settled, delivered nothing and were not refunded, as grade/due counts thefts
  FROM samples SEMI JOIN wanted USING (cap)
  ANTI JOIN (SELECT obs_id FROM withdrawal SEMI JOIN wanted USING (cap)) USING (obs_id)
  WHERE kind = 1 AND is_counted(kind, fault, settled) AND is_unserved(settled, delivered, refunded)),
 unserved AS (SELECT cap, count(*) AS n, min(t) AS first FROM nothing GROUP BY cap),
 -- Thefts (payments that were taken for nothing), by the address that received the money. An answer of the service
 -- depends on whether a theft lies in the window and is a day old. The window begins with a UTC day, and the last 24
 -- hours lie in two UTC days, so the first theft of each of the newest three days is enough.
 thefts AS (
  SELECT cap, to_json(list({pay_to: pay_to, days: days} ORDER BY days DESC, pay_to)[1:64])::VARCHAR AS thefts
  FROM (SELECT cap, pay_to, list(first ORDER BY first DESC)[1:3] AS days
    FROM (SELECT cap, address_of(pay_to) AS pay_to, epoch_ms(min(t)) AS first FROM nothing GROUP BY cap, address_of(pay_to), t::DATE)
    GROUP BY cap, pay_to)
  GROUP BY cap),
 again AS (           -- the newest answer to a used payment proof sent once more, of calls that no correction withdrew
  SELECT cap, max({t: t, id: event_id, outcome: outcome}) AS last FROM retried SEMI JOIN wanted USING (cap)
  WHERE intent NOT IN (SELECT obs_id FROM withdrawal SEMI JOIN wanted USING (cap)) GROUP BY cap),
 -- Facts about payments that are shown beside the grade: who settled them, how long after the answer, and what was
 -- signed.
 replied AS (
  FROM answered SEMI JOIN wanted USING (cap) WHERE intent NOT IN (SELECT obs_id FROM withdrawal SEMI JOIN wanted USING (cap))),
 moved AS (SELECT cap, intent, max({t: block_time, network: network, sender: sender}) AS last FROM settled_by SEMI JOIN wanted USING (cap)
  GROUP BY cap, intent),
 settlers AS (
  SELECT cap, list({network: network, sender: sender, calls: n, median_s: median_s, max_s: max_s} ORDER BY n DESC, sender)[1:8] AS settlers
  FROM (SELECT m.cap, m.last.network, m.last.sender, count(*) AS n, median(late)::INTEGER AS median_s, max(late)::INTEGER AS max_s
    FROM (SELECT *, CASE WHEN r.answered_time IS NOT NULL THEN greatest(0, m.last.t - r.answered_time) END AS late FROM moved m LEFT JOIN replied r USING (cap, intent)) AS m
    WHERE m.last.sender IS NOT NULL GROUP BY ALL)
  GROUP BY cap),
 -- Payments whose call was answered and that never settled: the authorization expired before the block time of the
 -- newest settlement that we know of.
 unsettled AS (
  SELECT i.cap, count(*) AS n FROM paid_intent i JOIN replied r ON r.intent = i.event_id AND r.cap = i.cap
    JOIN paid_result p ON p.intent = i.event_id AND p.cap = i.cap AND p.watched AND p.delivered AND p.fault IS DISTINCT FROM 'ours'
  WHERE i.valid_before < (SELECT max(block_time) FROM settled_by)
    AND NOT EXISTS (FROM moved m WHERE m.intent = i.event_id AND m.cap = i.cap) GROUP BY i.cap),
 receipts AS (
  SELECT cap, {present: count(*), unread: count(*) FILTER (NOT receipt.read), valid: count(*) FILTER (receipt.valid),
    authorised: count(*) FILTER (receipt.authorised)} AS receipts
  FROM replied WHERE receipt IS NOT NULL GROUP BY cap),
 bought AS (          -- the other buyers of the payee, as last read from the chain
  SELECT cap, max({t: t, id: event_id, body: body}).body AS buyers FROM buyers SEMI JOIN wanted USING (cap) GROUP BY cap),
 beside AS (
  SELECT cap, to_json({offers: o.signed, receipts: r.receipts, settlers: coalesce(s.settlers, []), unsettled: coalesce(u.n, 0),
    buyers: b.buyers})::VARCHAR AS payments
  FROM wanted LEFT JOIN offer_signed o USING (cap) LEFT JOIN receipts r USING (cap) LEFT JOIN settlers s USING (cap)
    LEFT JOIN unsettled u USING (cap) LEFT JOIN bought b USING (cap)
  WHERE b.buyers IS NOT NULL OR o.signed IS NOT NULL OR r.receipts IS NOT NULL OR s.settlers IS NOT NULL OR u.n > 0),
 known AS (FROM seen SEMI JOIN wanted USING (cap))
SELECT e.cap AS capability_id, e.url, e.method, coalesce(s.probes, 0)::DOUBLE AS probes, coalesce(s.answered, 0)::DOUBLE AS answered,
  coalesce(s.asked, 0)::DOUBLE AS asked, epoch_ms(s.first_seen)::DOUBLE AS first_seen, epoch_ms(s.last_seen)::DOUBLE AS last_seen,
  coalesce(s.offers, []) AS offers, s.pay_to, coalesce(t.addresses, []) AS paid_to, coalesce(o.addresses, []) AS pay_tos_listed,
  coalesce(u.n, 0)::DOUBLE AS unserved, epoch_ms(u.first)::DOUBLE AS unserved_since,
  CASE WHEN NOT coalesce(e.ours, FALSE) THEN h.thefts END AS thefts,
  d.state AS last_state, d.status::DOUBLE AS last_status, a.last.outcome AS retried, epoch_ms(a.last.t)::DOUBLE AS retried_at, b.payments,
  coalesce(s.protocols, []) AS protocols, coalesce(p.n, 0)::DOUBLE AS distinct_prices, coalesce(s.paid_calls, 0)::DOUBLE AS paid_calls,
  coalesce(l.n, 0)::DOUBLE AS observations_since, coalesce(w.n, 0)::DOUBLE AS withdrawn_since,
  coalesce(list_distinct(offered.claimed.networks), []) AS networks_listed,
  listing_defects_of(listed.listing, s.terms_t) AS listing_defects, epoch_ms(listed.listing.t)::DOUBLE AS listing_t,
  s.terms_defects, s.differs, epoch_ms(s.terms_t)::DOUBLE AS terms_t
FROM (FROM endpoint SEMI JOIN wanted USING (cap)) e LEFT JOIN known s USING (cap) LEFT JOIN later l USING (cap)
  LEFT JOIN taken w USING (cap) LEFT JOIN offered USING (cap) LEFT JOIN listed USING (cap) LEFT JOIN prices p USING (cap)
  LEFT JOIN paid_to t USING (cap) LEFT JOIN own o USING (cap) LEFT JOIN unserved u USING (cap)
  LEFT JOIN thefts h USING (cap) LEFT JOIN again a USING (cap) LEFT JOIN beside b USING (cap)
  LEFT JOIN (FROM last_handshake SEMI JOIN wanted USING (cap)) d USING (cap)
-- A url that is known only from an ask (a request to probe it) is not in the record yet: it is answered as unknown,
-- and queued until it is probed.
WHERE s.cap IS NOT NULL OR offered.cap IS NOT NULL
ORDER BY e.cap
