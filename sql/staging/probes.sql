-- Collects the facts of new probes, which are added to those of their endpoints (samples/seen), and updates the two
-- tables of signed offers and of newest handshakes.
-- grain: seen_new = one capability; quoted_new = one price of one capability; payee_new = one address of one capability;
--   signed_new, last_new = one capability; sampled = one new sample of an endpoint with a correction
-- reads: temp stage, event, correction, offer_signed, last_handshake
-- writes: offer_signed, last_handshake, temp seen_new, temp quoted_new, temp payee_new, temp signed_new, temp last_new,
--   temp sampled
CREATE OR REPLACE TEMP TABLE quoted_new AS SELECT DISTINCT cap, asked_micro FROM stage WHERE asked_micro IS NOT NULL;
CREATE OR REPLACE TEMP TABLE payee_new AS
SELECT cap, address_of(pay_to) AS pay_to, max(t) AS t
FROM (SELECT cap, observed_at AS t, unnest(list_transform(terms.offers, lambda o: o.pay_to)) AS pay_to FROM stage)
WHERE pay_to IS NOT NULL GROUP BY ALL;
-- Of several 402s of an endpoint, the newest by time, then by id.
CREATE OR REPLACE TEMP TABLE seen_new AS
WITH per_cap AS (
  SELECT cap, count(*) AS probes, count(*) FILTER (state NOT IN ('silent', 'unfetchable')) AS answered,
    count(*) FILTER (state IN ('asked', 'malformed')) AS asked, min(observed_at) AS first_seen, max(observed_at) AS last_seen,
    0 AS paid_calls, max(observed_at) FILTER (planned = 'paid' AND fault IS DISTINCT FROM 'ours') AS last_tried,
    max({t: observed_at, id: event_id, row: rowid}) FILTER (state IN ('asked', 'malformed')) AS newest
  FROM stage WHERE is_probe(type) GROUP BY cap)
SELECT c.* EXCLUDE (newest, last_tried), newest.t AS terms_t, newest.id AS terms_id, p.price_micro, p.pay_to, p.terms.offers, p.terms.protocols,
  p.terms.defects AS terms_defects, p.differs, c.last_tried
FROM per_cap c LEFT JOIN stage p ON p.rowid = newest.row;

-- Signed offers do not affect grades. Few 402s have any, so an endpoint gets a row only when one of its 402s has a
-- signed offer.
CREATE OR REPLACE TEMP TABLE signed_new AS
SELECT cap, newest.t, newest.id AS event_id, newest.signed FROM (
  SELECT cap, max({t: observed_at, id: event_id, signed: signed_offers}) AS newest FROM stage
  WHERE state = 'asked' AND cap IN (SELECT cap FROM stage WHERE signed_offers IS NOT NULL UNION ALL SELECT cap FROM offer_signed) GROUP BY cap)
WHERE newest.signed IS NOT NULL OR cap IN (SELECT cap FROM offer_signed);
-- A record may be loaded after newer ones of its endpoint, which got no row because nothing was to be stored of them. It
-- begins no row then; otherwise the rows would depend on the order of loading. Only a 402 with readable terms has `honest`.
DELETE FROM signed_new WHERE cap IN (
  SELECT n.cap FROM (FROM signed_new ANTI JOIN offer_signed USING (cap)) n JOIN event e ON e.cap = n.cap AND e.observed_at >= n.t
  WHERE {t: e.observed_at, id: e.event_id} > {t: n.t, id: n.event_id} AND is_probe(e.type) AND e.honest IS NOT NULL);
MERGE INTO offer_signed USING signed_new AS n ON offer_signed.cap = n.cap
WHEN MATCHED AND {t: n.t, id: n.event_id} > {t: offer_signed.t, id: offer_signed.event_id}
THEN UPDATE SET t = n.t, event_id = n.event_id, signed = n.signed
WHEN NOT MATCHED THEN INSERT BY NAME;

-- The state of the newest handshake (unpaid probe). Most handshakes get readable terms, so an endpoint gets a row only
-- when one of its handshakes does not, and no newer one is known, as above. Handshakes with a fault of ours are left out.
CREATE OR REPLACE TEMP TABLE last_new AS
SELECT cap, newest.t, newest.id AS event_id, newest.state, newest.status FROM (
  SELECT cap, max({t: observed_at, id: event_id, state: state, status: status}) AS newest FROM stage
  WHERE is_probe(type) AND fault IS DISTINCT FROM 'ours'
    AND cap IN (SELECT cap FROM stage WHERE is_probe(type) AND state <> 'asked' UNION ALL SELECT cap FROM last_handshake) GROUP BY cap)
WHERE newest.state <> 'asked' OR cap IN (SELECT cap FROM last_handshake);
DELETE FROM last_new WHERE cap IN (
  SELECT n.cap FROM (FROM last_new ANTI JOIN last_handshake USING (cap)) n JOIN event e ON e.cap = n.cap AND e.observed_at >= n.t
  WHERE {t: e.observed_at, id: e.event_id} > {t: n.t, id: n.event_id} AND is_probe(e.type) AND e.fault IS DISTINCT FROM 'ours');
MERGE INTO last_handshake USING last_new AS n ON last_handshake.cap = n.cap
WHEN MATCHED AND {t: n.t, id: n.event_id} > {t: last_handshake.t, id: last_handshake.event_id}
THEN UPDATE SET t = n.t, event_id = n.event_id, state = n.state, status = n.status
WHEN NOT MATCHED THEN INSERT BY NAME;

-- Only the samples of endpoints with a correction, of which there are few, need to be checked for withdrawal.
INSERT INTO sampled
SELECT event_id, cap, observed_at FROM stage WHERE is_probe(type) AND NOT filed AND cap IN (SELECT cap FROM correction);
