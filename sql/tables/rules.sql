-- Macros for rules that several statements share.
-- grain: none
-- reads: nothing
-- writes: macros

-- bucket = first 6 bits of sha256(key); the partitions are made of the first of these bits (records.md).
CREATE OR REPLACE MACRO bucket_of(key) AS ('0x' || sha256(key)[1:2])::INTEGER >> 2;
CREATE OR REPLACE MACRO on_day(t, day) AS t >= day::DATE AND t < day::DATE + INTERVAL 1 DAY;
-- The earliest observed_at of a record that counts for a paid call made at t: a day before the call, since clocks of
-- two machines differ.
CREATE OR REPLACE MACRO since_call(t) AS t - INTERVAL 1 DAY;

CREATE OR REPLACE MACRO is_probe(type) AS type IN ('handshake', 'mcp.probe');
-- Whether a record is the answer to a retry (a used payment proof sent once more). It does not affect grades, and no
-- sample is made from it.
CREATE OR REPLACE MACRO is_retried(type, body) AS
  coalesce(type = 'paid.followup' AND json_extract_string(body, '$.kind') = 'retried', FALSE);
CREATE OR REPLACE MACRO fault_of(fault, wall) AS coalesce(fault, CASE WHEN wall THEN 'blocked' END);
-- The micro-units of a money text, which always has six decimals, so that it is their number once the point is
-- removed.
CREATE OR REPLACE MACRO micro_of(money) AS replace(money, '.', '')::BIGINT;
-- The price that a 402 asks for, in micro-units: that of its first offer with an asset and a money amount, even if we
-- cannot pay that offer.
CREATE OR REPLACE MACRO asked_micro_of(offers) AS
  micro_of(list_filter(offers, lambda o: o.asset IS NOT NULL AND o.price IS NOT NULL)[1].price);
-- An address in the form in which it is compared. In a hex address, case is only a checksum, so it is lower-cased; in
-- base58, case is part of the address.
CREATE OR REPLACE MACRO address_of(pay_to) AS CASE WHEN starts_with(lower(pay_to), '0x') THEN lower(pay_to) ELSE pay_to END;
CREATE OR REPLACE MACRO asset_of(offers) AS coalesce(list_filter(offers, lambda o: o.payable)[1].asset, offers[1].asset);

-- Whether a sample counts. These do not: samples with a fault of ours, refused synthetic inputs for which no money moved, and
-- published failures that were not reproduced.
CREATE OR REPLACE MACRO is_counted(kind, fault, settled) AS
  fault IS NULL OR (kind < 2 AND (fault = 'blocked' OR (fault = 'bad_input' AND coalesce(settled, FALSE))));
-- Whether a paid call passes: an answer was delivered, and delivery and outcome are at least half.
CREATE OR REPLACE MACRO is_passed(delivered, delivery, outcome) AS
  delivered AND coalesce(delivery, 0) >= 0.5 AND coalesce(outcome, 1) >= 0.5;
-- Whether a payment settled, delivered nothing and was not refunded.
CREATE OR REPLACE MACRO is_unserved(settled, delivered, refunded) AS
  settled AND NOT coalesce(delivered, FALSE) AND NOT coalesce(refunded, FALSE);
-- A correction without a record id withdraws every record of its capability observed before it was issued.
CREATE OR REPLACE MACRO is_withdrawn_by(record_id, issued_at, obs_id, t) AS
  record_id = obs_id OR (record_id IS NULL AND t < issued_at);

-- Whether a record is the newest of all records with this `about`, by time, then offset, then id; for use in QUALIFY.
CREATE OR REPLACE MACRO is_newest(about, t, log_offset, id) AS
  row_number() OVER (PARTITION BY about ORDER BY t DESC, log_offset DESC, id DESC) = 1;
-- Chooses among the listings of one capability: the seller's own newest listing, else the newest of a catalogue.
CREATE OR REPLACE MACRO speaking_listing(own, t, log_offset, id, claims) AS
  max({own: own, t: t, o: log_offset, id: id, claims: claims});
-- Defects of the listing {own, t, o, id, defects} that was chosen. Defects of a third party's listing count only while
-- the seller has neither listed the endpoint itself nor answered with a 402.
CREATE OR REPLACE MACRO listing_defects_of(listing, terms_t) AS CASE WHEN listing.own OR terms_t IS NULL THEN listing.defects END;
-- Whether an endpoint is on the market: its seller lists it, or it answered with a 402. The listing of a catalogue
-- alone is not enough.
CREATE OR REPLACE MACRO is_in_market(own, terms_t) AS own OR terms_t IS NOT NULL;
-- The rows of a JSON array of {topic, part, next}: the offset up to which each partition was read.
CREATE OR REPLACE MACRO positions_of(list) AS TABLE
  SELECT unnest(from_json(list, '[{"topic": "VARCHAR", "part": "USMALLINT", "next": "BIGINT"}]'), recursive := true);
CREATE OR REPLACE MACRO texts_of(list) AS TABLE SELECT unnest(from_json(list, '["VARCHAR"]')) AS text;
