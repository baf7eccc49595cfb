-- The records of the log, as loaded from the segment files, and the offset up to which each partition is loaded.
-- grain: loaded = one live segment; positions = one (topic, part); offer_signed, last_handshake = one capability, by its
--   newest record; commitment_open, receipt_open = one record that is not published yet; every other table = one record of the log, once
-- reads: nothing
-- writes: loaded, positions, event, paid_intent, paid_result, settlement, paid_followup, retried, answered, settled_by, buyers,
--   offer_signed, last_handshake, paid_published, commitment_open, receipt_open, listing, class_mapped, class_asked, correction,
--   reinstated, dispute, correction_record

-- since, until = observed_at of the earliest and the latest row, null if there is no row. They tell which files must
-- be opened to read the bodies of a day.
CREATE TABLE IF NOT EXISTS loaded (
  topic VARCHAR, part USMALLINT, file VARCHAR, rows BIGINT, since TIMESTAMP, until TIMESTAMP, PRIMARY KEY (topic, part, file));
-- Every offset below `next` is in a loaded segment, was rejected, or lies in a gap that a commit records.
CREATE TABLE IF NOT EXISTS positions (topic VARCHAR, part USMALLINT, next BIGINT, PRIMARY KEY (topic, part));

-- key = null if it equals cap, as in nearly every record.
-- body = null for probes (handshake, mcp.probe), which are nearly all records: their bodies stay in the segment, and
-- the columns from `block` on hold what a sample needs. block = number of the span of six hours for which the probe
-- was planned. In other records these columns are null.
-- Trying every compression on every column took a sixth of a load's CPU time. So only the compression named here is
-- tried; if it does not fit, the engine stores the column uncompressed. To pack `cap` took a quarter of a commit and
-- saved 18 of 74 bytes of a row.
CREATE TABLE IF NOT EXISTS event (
  event_id VARCHAR USING COMPRESSION uncompressed, type VARCHAR, key VARCHAR, cap VARCHAR USING COMPRESSION uncompressed,
  topic VARCHAR, part USMALLINT, log_offset BIGINT USING COMPRESSION bitpacking,
  observed_at TIMESTAMP USING COMPRESSION bitpacking, appended_at TIMESTAMP USING COMPRESSION bitpacking, body VARCHAR,
  block INTEGER USING COMPRESSION bitpacking, fault VARCHAR, live BOOLEAN, honest BOOLEAN, latency_ms DOUBLE,
  price_micro BIGINT USING COMPRESSION bitpacking, pay_to VARCHAR, asked_micro BIGINT USING COMPRESSION bitpacking);

-- Paid calls, from intent (written before the payment is sent) to follow-ups. slot_block = number of the span of six
-- hours for which the call was planned; w = its weight; leg_honest = the 402 of its first request agreed with the
-- seller's listing; watched = our process saw how the call ended; as_quoted = the Transfer matched the quoted terms.
CREATE TABLE IF NOT EXISTS paid_intent (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, slot_block INTEGER, w DOUBLE, input VARCHAR, url VARCHAR, price_micro BIGINT,
  pay_to VARCHAR, valid_before BIGINT, leg_honest BOOLEAN, asked_micro BIGINT);
-- began = bytes of an answer arrived that was no 402 and no wall, even if it was cut off.
CREATE TABLE IF NOT EXISTS paid_result (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, intent VARCHAR, watched BOOLEAN, fault VARCHAR, live BOOLEAN, honest BOOLEAN,
  delivered BOOLEAN, delivery DOUBLE, outcome DOUBLE, schema_ok BOOLEAN, latency_ms DOUBLE, response_sha256 VARCHAR, began BOOLEAN);
CREATE TABLE IF NOT EXISTS settlement (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, intent VARCHAR, final BOOLEAN, as_quoted BOOLEAN);
CREATE TABLE IF NOT EXISTS paid_followup (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, intent VARCHAR, kind VARCHAR, watched BOOLEAN,
  delivered BOOLEAN, delivery DOUBLE, outcome DOUBLE, schema_ok BOOLEAN, latency_ms DOUBLE, response_sha256 VARCHAR);
-- Answers to a used payment proof that was sent once more. They do not affect grades, since grading does not read this
-- table.
CREATE TABLE IF NOT EXISTS retried (cap VARCHAR, t TIMESTAMP, event_id VARCHAR, intent VARCHAR, outcome VARCHAR);
-- Facts of paid calls that do not affect grades, since grading does not read these tables. answered_time, block_time =
-- real unix seconds; sender = address that sent the settlement's transaction; receipt = {read, valid, authorised} of a
-- signed receipt.
CREATE TABLE IF NOT EXISTS answered (
  cap VARCHAR, intent VARCHAR, answered_time BIGINT, receipt STRUCT(read BOOLEAN, valid BOOLEAN, authorised BOOLEAN));
CREATE TABLE IF NOT EXISTS settled_by (cap VARCHAR, intent VARCHAR, network VARCHAR, sender VARCHAR, block_time BIGINT);
-- Other buyers of a payee, as read from the chain; body = the body of the record.
CREATE TABLE IF NOT EXISTS buyers (
  cap VARCHAR, t TIMESTAMP, event_id VARCHAR, network VARCHAR, asset VARCHAR, pay_to VARCHAR, body JSON);
-- Signed offers in the newest 402 of a free handshake, for endpoints of which any 402 had one. signed = null: the
-- newest 402 has no signed offer.
CREATE TABLE IF NOT EXISTS offer_signed (
  cap VARCHAR, t TIMESTAMP, event_id VARCHAR, signed STRUCT(present BIGINT, unread BIGINT, valid BIGINT, authorised BIGINT));
-- The newest handshake, for endpoints that ever answered a handshake with anything but readable terms.
CREATE TABLE IF NOT EXISTS last_handshake (cap VARCHAR, t TIMESTAMP, event_id VARCHAR, state VARCHAR, status BIGINT);
-- Calls that buyers published. refused = the status of the answer means that the request was at fault.
CREATE TABLE IF NOT EXISTS paid_published (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, payer VARCHAR, price_micro BIGINT, pay_to VARCHAR, pass BOOLEAN, refused BOOLEAN,
  delivered BOOLEAN, delivery DOUBLE, schema_ok BOOLEAN, latency_ms DOUBLE, response_sha256 VARCHAR);
-- Commitments that were not yet found in the public log. A row is deleted once its leaf (entry of the log) is found,
-- so the table stays short.
CREATE TABLE IF NOT EXISTS commitment_open (cap VARCHAR, t TIMESTAMP, sha256 VARCHAR);
-- Hashes of receipts that were not yet found in the public log; rows are deleted in the same way.
CREATE TABLE IF NOT EXISTS receipt_open (sha256 VARCHAR, t TIMESTAMP);

CREATE TABLE IF NOT EXISTS listing (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, log_offset BIGINT, source VARCHAR, source_id VARCHAR, gone BOOLEAN,
  seller_controlled BOOLEAN, claims VARCHAR, defects VARCHAR);

-- The class (kind of question with a known answer) that we assigned to an endpoint. class = null if we took it back,
-- or do not use it because no control input passed (dropped).
CREATE TABLE IF NOT EXISTS class_mapped (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, log_offset BIGINT, id VARCHAR, class VARCHAR, dropped BOOLEAN);
-- Paid calls that asked a question with a known answer. mapping = null if the seller named the class itself.
CREATE TABLE IF NOT EXISTS class_asked (
  intent VARCHAR, cap VARCHAR, t TIMESTAMP, class VARCHAR, mapping VARCHAR, control BOOLEAN);

CREATE TABLE IF NOT EXISTS correction (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, id VARCHAR, record_id VARCHAR, fault VARCHAR, issued_at TIMESTAMP);
CREATE TABLE IF NOT EXISTS reinstated (event_id VARCHAR, cap VARCHAR, t TIMESTAMP, correction VARCHAR);
CREATE TABLE IF NOT EXISTS dispute (event_id VARCHAR, cap VARCHAR, t TIMESTAMP, id VARCHAR, record_id VARCHAR);
-- The complete records of corrections, reinstatements and disputes, from which their leaves are made, and which are
-- served before these leaves are published. They are few, so reading all of them is cheap.
CREATE TABLE IF NOT EXISTS correction_record (
  event_id VARCHAR, type VARCHAR, cap VARCHAR, part USMALLINT, log_offset BIGINT, t TIMESTAMP, body VARCHAR);
