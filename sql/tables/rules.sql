-- Rules that several statements go by, each written once.
-- grain: none
-- reads: nothing
-- writes: macros

-- bucket = first 6 bits of sha256(key), as for the partitions (records.md).
CREATE OR REPLACE MACRO bucket_of(key) AS ('0x' || sha256(key)[1:2])::INTEGER >> 2;
CREATE OR REPLACE MACRO on_day(t, day) AS t >= day::DATE AND t < day::DATE + INTERVAL 1 DAY;
-- A record counts for a paid call from a day before it on: clocks of two machines differ.
CREATE OR REPLACE MACRO since_call(t) AS t - INTERVAL 1 DAY;

CREATE OR REPLACE MACRO is_probe(type) AS type IN ('handshake', 'mcp.probe');
-- What a retry brought is a fact beside the grade: no sample is folded with it.
CREATE OR REPLACE MACRO is_retried(type, body) AS
  coalesce(type = 'paid.followup' AND json_extract_string(body, '$.kind') = 'retried', FALSE);
CREATE OR REPLACE MACRO fault_of(fault, wall) AS coalesce(fault, CASE WHEN wall THEN 'blocked' END);
-- Money has six decimals, always: without the dot it is micro-units.
CREATE OR REPLACE MACRO micro_of(money) AS replace(money, '.', '')::BIGINT;
-- What a 402 asks, whoever could pay it: its first offer with an asset and an amount that is money, micro-units.
CREATE OR REPLACE MACRO asked_micro_of(offers) AS
  micro_of(list_filter(offers, lambda o: o.asset IS NOT NULL AND o.price IS NOT NULL)[1].price);
-- Hex addresses differ by case only in their checksum; base58 is told apart by case.
CREATE OR REPLACE MACRO address_of(pay_to) AS CASE WHEN starts_with(lower(pay_to), '0x') THEN lower(pay_to) ELSE pay_to END;
CREATE OR REPLACE MACRO asset_of(offers) AS coalesce(list_filter(offers, lambda o: o.payable)[1].asset, offers[1].asset);

-- A sample counts: no fault of ours, no synthetic input that moved no money, no published call that was not reproduced.
CREATE OR REPLACE MACRO is_counted(kind, fault, settled) AS
  fault IS NULL OR (kind < 2 AND (fault = 'blocked' OR (fault = 'bad_input' AND coalesce(settled, FALSE))));
-- A paid call passes: something came, and it was at least half of what was due.
CREATE OR REPLACE MACRO is_passed(delivered, delivery, outcome) AS
  delivered AND coalesce(delivery, 0) >= 0.5 AND coalesce(outcome, 1) >= 0.5;
-- A payment that settled, brought nothing and was not paid back.
CREATE OR REPLACE MACRO is_unserved(settled, delivered, refunded) AS
  settled AND NOT coalesce(delivered, FALSE) AND NOT coalesce(refunded, FALSE);
-- A correction without a record id withdraws every record of its capability observed before it was issued.
CREATE OR REPLACE MACRO is_withdrawn_by(record_id, issued_at, obs_id, t) AS
  record_id = obs_id OR (record_id IS NULL AND t < issued_at);

-- The newest record of those that speak of one thing, for a QUALIFY: by time, then place in the log, then id.
CREATE OR REPLACE MACRO is_newest(about, t, log_offset, id) AS
  row_number() OVER (PARTITION BY about ORDER BY t DESC, log_offset DESC, id DESC) = 1;
-- Of several listings of one capability the newest of the seller's own speaks, else the newest of a catalogue.
CREATE OR REPLACE MACRO speaking_listing(own, t, log_offset, id, claims) AS
  max({own: own, t: t, o: log_offset, id: id, claims: claims});
-- What is wrong with a listing, {own, t, o, id, defects}: a third party's row is heard only as long as nothing of the
-- seller was, neither a listing of its own nor a 402.
CREATE OR REPLACE MACRO listing_defects_of(listing, terms_t) AS CASE WHEN listing.own OR terms_t IS NULL THEN listing.defects END;
-- The market holds what its seller lists itself and what answered with a 402: a catalogue alone cannot fill it.
CREATE OR REPLACE MACRO is_in_market(own, terms_t) AS own OR terms_t IS NOT NULL;
-- How far a partition is read, from a JSON array of {topic, part, next}.
CREATE OR REPLACE MACRO positions_of(list) AS TABLE
  SELECT unnest(from_json(list, '[{"topic": "VARCHAR", "part": "USMALLINT", "next": "BIGINT"}]'), recursive := true);
CREATE OR REPLACE MACRO texts_of(list) AS TABLE SELECT unnest(from_json(list, '["VARCHAR"]')) AS text;
